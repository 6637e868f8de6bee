"""SCRAM credentials of users, client quotas, delegation tokens, which anonymous clients do not get,
and ACLs, for which a broker needs an authorizer."""

from __future__ import annotations

from tests.integration.scenarios.given import Given, Scenarios
from tests.raw_client import Api, newest

SHA_256, SHA_512 = 1, 2
UNSUPPORTED_VERSION, INVALID_REQUEST, SECURITY_DISABLED = 35, 42, 54
REQUEST_NOT_ALLOWED = 64
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


def create_delegation_token(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.CREATE_DELEGATION_TOKEN,
        version,
        owner_principal_type=None,
        owner_principal_name=None,
        renewers=[{"principal_type": "User", "principal_name": "bob"}],
        max_lifetime_ms=-1,
    )
    assert answer.error_code == REQUEST_NOT_ALLOWED
    assert (answer.principal_name, answer.token_id, answer.hmac) == ("ANONYMOUS", "", b"")


def renew_delegation_token(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.RENEW_DELEGATION_TOKEN, version, hmac=b"hmac", renew_period_ms=-1
    )
    assert (answer.error_code, answer.expiry_timestamp_ms) == (REQUEST_NOT_ALLOWED, 0)


def expire_delegation_token(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.EXPIRE_DELEGATION_TOKEN, version, hmac=b"hmac", expiry_time_period_ms=-1
    )
    assert (answer.error_code, answer.expiry_timestamp_ms) == (REQUEST_NOT_ALLOWED, 0)


def describe_delegation_token(given: Given, version: int) -> None:
    answer = given.client.call(Api.DESCRIBE_DELEGATION_TOKEN, version, owners=None)
    assert (answer.error_code, list(answer.tokens)) == (REQUEST_NOT_ALLOWED, [])


ACL_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "orders",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def describe_acls(given: Given, version: int) -> None:
    answer = given.client.call(Api.DESCRIBE_ACLS, version, **ACL_FILTER)
    assert (answer.error_code, list(answer.resources)) == (SECURITY_DISABLED, [])
    assert "authorizer.class.name" in answer.error_message


def create_acls(given: Given, version: int) -> None:
    creation = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    answer = given.client.call(Api.CREATE_ACLS, version, creations=[creation, creation])
    assert [each.error_code for each in answer.results] == [SECURITY_DISABLED] * 2


def delete_acls(given: Given, version: int) -> None:
    answer = given.client.call(Api.DELETE_ACLS, version, filters=[ACL_FILTER])
    (result,) = answer.filter_results
    assert (result.error_code, list(result.matching_acls)) == (SECURITY_DISABLED, [])


def describe_client_quotas(given: Given, version: int) -> None:
    user = f"{given.topic}-user"
    both = [{"entity_type": "user", "entity_name": user}, ANY_CLIENT]
    assert altered_quotas(given, newest(Api.ALTER_CLIENT_QUOTAS), both, 1024.0) == 0
    assert described_quotas(given, version, user) == [(both, {"producer_byte_rate": 1024.0})]
    answer = given.client.call(
        Api.DESCRIBE_CLIENT_QUOTAS,
        version,
        components=[{"entity_type": "planet", "match_type": 2, "match": None}],
        strict=False,
    )
    assert (answer.error_code, answer.entries) == (UNSUPPORTED_VERSION, None)


def alter_client_quotas(given: Given, version: int) -> None:
    user = f"{given.topic}-user"
    both = [{"entity_type": "user", "entity_name": user}, ANY_CLIENT]
    assert altered_quotas(given, version, both, 5.0, validate_only=True) == 0
    assert described_quotas(given, newest(Api.DESCRIBE_CLIENT_QUOTAS), user) == []
    assert altered_quotas(given, version, both, 5.0) == 0
    assert altered_quotas(given, version, both, 0.5) == INVALID_REQUEST
    found = described_quotas(given, newest(Api.DESCRIBE_CLIENT_QUOTAS), user)
    assert found == [(both, {"producer_byte_rate": 5.0})]
    assert altered_quotas(given, version, both, None) == 0
    assert described_quotas(given, newest(Api.DESCRIBE_CLIENT_QUOTAS), user) == []


ANY_CLIENT = {"entity_type": "client-id", "entity_name": None}


def altered_quotas(
    given: Given,
    version: int,
    entity: list[dict[str, str | None]],
    rate: float | None,
    *,
    validate_only: bool = False,
) -> int:
    change = {"key": "producer_byte_rate", "value": rate or 0.0, "remove": rate is None}
    answer = given.client.call(
        Api.ALTER_CLIENT_QUOTAS,
        version,
        entries=[{"entity": entity, "ops": [change]}],
        validate_only=validate_only,
    )
    (result,) = answer.entries
    assert [(part.entity_type, part.entity_name) for part in result.entity] == [
        (part["entity_type"], part["entity_name"]) for part in entity
    ]
    code: int = result.error_code
    return code


def described_quotas(
    given: Given, version: int, user: str
) -> list[tuple[list[dict[str, str | None]], dict[str, float]]]:
    answer = given.client.call(
        Api.DESCRIBE_CLIENT_QUOTAS,
        version,
        components=[
            {"entity_type": "user", "match_type": 0, "match": user},
            {"entity_type": "client-id", "match_type": 1, "match": None},
        ],
        strict=True,
    )
    assert answer.error_code == 0
    return [
        (
            [
                {"entity_type": part.entity_type, "entity_name": part.entity_name}
                for part in entry.entity
            ],
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


SCENARIOS: Scenarios = {
    Api.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    Api.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    Api.DESCRIBE_ACLS: describe_acls,
    Api.CREATE_ACLS: create_acls,
    Api.DELETE_ACLS: delete_acls,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    Api.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    Api.CREATE_DELEGATION_TOKEN: create_delegation_token,
    Api.RENEW_DELEGATION_TOKEN: renew_delegation_token,
    Api.EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
    Api.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
}
