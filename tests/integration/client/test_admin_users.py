"""Admin calls for users with SCRAM credentials."""

from __future__ import annotations

import pytest
from tests.raw_client import eventually

from ottla.base.errors import ErrorCode
from ottla.client.admin import (
    Admin,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.errors import ClientError, InvalidConfig

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
Upsertion, Deletion = UserScramCredentialUpsertion, UserScramCredentialDeletion


def codes(admin: Admin, *alterations: Upsertion | Deletion) -> dict[str, ErrorCode | None]:
    results = admin.alter_user_scram_credentials(*alterations, return_errors=True)
    return {user: error.code for user, error in results.errors.items()} | results


def test_users_are_added_described_and_deleted(admin: Admin, topic: str) -> None:
    admin.alter_user_scram_credentials(Upsertion(topic, SHA_512, "secret", 8192))
    assert eventually(
        lambda: admin.describe_user_scram_credentials(topic, "nobody", return_errors=True)
    ) == {topic: [ScramCredentialInfo(SHA_512, 8192)]}
    assert topic in admin.describe_user_scram_credentials()
    admin.alter_user_scram_credentials(Upsertion(topic, SHA_256, "secret"))
    found = eventually(
        lambda: admin.describe_user_scram_credentials(topic)[topic], lambda infos: len(infos) == 2
    )
    assert set(found) == {ScramCredentialInfo(SHA_256, 4096), ScramCredentialInfo(SHA_512, 8192)}
    for mechanism in (SHA_256, SHA_512):
        admin.alter_user_scram_credentials([Deletion(topic, mechanism)])
    eventually(
        lambda: admin.describe_user_scram_credentials(topic, return_errors=True),
        lambda users: not users,
    )
    assert topic not in admin.describe_user_scram_credentials()


def test_each_user_has_its_own_outcome(admin: Admin, topic: str) -> None:
    new = Upsertion(f"{topic}-new", SHA_512, "secret")
    assert codes(admin, new, Deletion(f"{topic}-unknown", SHA_256)) == {
        new.user: None,
        f"{topic}-unknown": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert codes(admin, new, new, Upsertion("", SHA_256, "secret")) == {
        new.user: ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    with pytest.raises(ClientError) as failure:
        admin.describe_user_scram_credentials(f"{topic}-unknown")
    assert failure.value.code is ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(("new", "message"), [
    (Upsertion("alice", SHA_256, ""), "The password of alice must not be empty"),
    (Upsertion("alice", SHA_256, "hunter2", 1), "between 4096 and 16384, not 1"),
    (Upsertion("alice", SHA_256, "hunter2", 10**9), "between 4096 and 16384"),
    (Upsertion("alice", ScramMechanism.UNKNOWN, "hunter2"), "mechanism"),
])  # fmt: skip
def test_credentials_that_no_broker_accepts_are_not_sent(
    admin: Admin, new: Upsertion, message: str
) -> None:
    with pytest.raises((ClientError, InvalidConfig), match=message) as failure:
        admin.alter_user_scram_credentials(new)
    assert "hunter2" not in str(failure.value)


def test_a_password_is_not_part_of_the_representation() -> None:
    new = Upsertion("alice", SHA_512, "hunter2", salt=b"hunter3")
    assert "alice" in repr(new)
    assert "hunter" not in repr(new)
