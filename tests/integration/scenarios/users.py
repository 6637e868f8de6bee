"""SCRAM credentials of users."""

from __future__ import annotations

from tests.integration.scenarios.given import Given, Scenarios
from tests.raw_client import Api

SHA_256, SHA_512 = 1, 2
RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL = 91, 92, 93


def alter_user_scram_credentials(given: Given, version: int) -> None:
    user = f"{given.topic}-user"
    new = {"iterations": 8192, "salt": b"salt", "salted_password": b"p" * 32}
    answer = given.client.call(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        version,
        deletions=[{"name": "nobody", "mechanism": SHA_256}],
        upsertions=[
            {"name": user, "mechanism": SHA_512, **new},
            {"name": "weak", "mechanism": SHA_512, **new, "iterations": 1},
        ],
    )
    codes = {each.user: each.error_code for each in answer.results}
    assert codes == {user: 0, "nobody": RESOURCE_NOT_FOUND, "weak": UNACCEPTABLE_CREDENTIAL}
    assert all((each.error_message is None) == (each.user == user) for each in answer.results)
    assert described(given, version, user) == {user: (0, [(SHA_512, 8192)])}
    answer = given.client.call(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        version,
        deletions=[{"name": user, "mechanism": SHA_512}],
        upsertions=[],
    )
    assert [(each.user, each.error_code) for each in answer.results] == [(user, 0)]
    assert described(given, version, user) == {user: (RESOURCE_NOT_FOUND, [])}


def describe_user_scram_credentials(given: Given, version: int) -> None:
    user = f"{given.topic}-user"
    new = {"iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    given.client.call(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        upsertions=[{"name": user, "mechanism": each, **new} for each in (SHA_256, SHA_512)],
        deletions=[],
    )
    expected = (0, [(SHA_256, 4096), (SHA_512, 4096)])
    assert described(given, version, user, "nobody", "twice", "twice") == {
        user: expected,
        "nobody": (RESOURCE_NOT_FOUND, []),
        "twice": (DUPLICATE_RESOURCE, []),
    }
    assert described(given, version)[user] == expected
    answer = given.client.call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, version, users=None)
    assert answer.error_code == 0
    assert user in {each.user for each in answer.results}


def described(
    given: Given, version: int, *users: str
) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    answer = given.client.call(
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS, version, users=[{"name": user} for user in users]
    )
    assert answer.error_code == 0
    return {
        each.user: (
            each.error_code,
            [(info.mechanism, info.iterations) for info in each.credential_infos],
        )
        for each in answer.results
    }


SCENARIOS: Scenarios = {
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    Api.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
}
