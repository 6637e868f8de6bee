"""Delegation tokens: created by users, and used to log in with SCRAM."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.running import running_on
from tests.integration.security.sasl_broker import (
    TIMEOUT_S,
    add_users,
    address,
    profile,
    sasl_properties,
)
from tests.raw_client import Api, RawClient

from ottla import Admin, Producer, ScramMechanism, UserScramCredentialUpsertion
from ottla.base.errors import ErrorCode
from ottla.client.admin import DelegationToken, Principal
from ottla.client.errors import AuthenticationFailed, ClientError
from ottla.testing.broker_thread import BrokerThread

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SECRET = "secret of the cluster"


def properties(**more: str) -> dict[str, str]:
    return sasl_properties(delegation__token__secret__key=SECRET, super__users="User:bob", **more)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=properties()) as broker:
        add_users(broker)
        yield broker


def admin_of(broker: BrokerThread, user: str = "alice") -> Admin:
    return Admin(address(broker), profile=profile(user, "SCRAM-SHA-512"))


def with_token(token: DelegationToken, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """Return the properties of a client that logs in with a token, as Java's clients have."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{SCRAM_MODULE} required "
        f'username="{token.token_id}" password="{token.hmac_base64}" tokenauth="true";',
    }


def code_of(call: Any, *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(ClientError) as raised:
        call(*args, **kwargs)
    code: ErrorCode = raised.value.code
    return code


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_client_logs_in_with_a_token_as_its_owner(broker: BrokerThread, mechanism: str) -> None:
    with admin_of(broker) as admin:
        token = admin.create_delegation_token(renewers=["User:carol"])
    assert token.owner == token.requester == Principal("User", "alice")
    assert token.renewers == (Principal("User", "carol"),)
    with Producer(address(broker), profile=with_token(token, mechanism)) as producer:
        producer.send("tokens", b"v").result(TIMEOUT_S)
        server = broker.broker.server
        principals = {str(each.principal) for each in server.connections}
        assert "User:alice" in principals


def test_the_representation_of_a_token_has_no_hmac(broker: BrokerThread) -> None:
    with admin_of(broker) as admin:
        token = admin.create_delegation_token()
    assert repr(token.hmac) not in repr(token)
    assert token.hmac_base64 not in repr(token)


def test_a_wrong_hmac_and_an_unknown_token_are_rejected_alike(broker: BrokerThread) -> None:
    with admin_of(broker) as admin:
        token = admin.create_delegation_token()
    right = with_token(token)
    texts = set()
    for wrong in (
        right["sasl.jaas.config"].replace(token.hmac_base64, "AAAA"),
        right["sasl.jaas.config"].replace(token.token_id, "unknown"),
        right["sasl.jaas.config"].replace('tokenauth="true"', ""),
    ):
        with (
            pytest.raises(AuthenticationFailed) as raised,
            Producer(address(broker), profile={**right, "sasl.jaas.config": wrong}),
        ):
            pass
        texts.add(str(raised.value))
    assert len(texts) == 1


def test_a_token_does_not_create_or_show_tokens(broker: BrokerThread) -> None:
    with admin_of(broker) as admin:
        token = admin.create_delegation_token()
    with Admin(address(broker), profile=with_token(token)) as admin:
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert code_of(admin.create_delegation_token) == refused
        assert code_of(admin.renew_delegation_token, token.hmac) == refused
        assert code_of(admin.expire_delegation_token, token.hmac) == refused
        assert code_of(admin.describe_delegation_tokens) == refused


def test_anonymous_clients_have_no_tokens(broker: BrokerThread) -> None:
    with Admin(address(broker, "PLAINTEXT")) as admin:
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert code_of(admin.create_delegation_token) == refused
        assert code_of(admin.describe_delegation_tokens) == refused


def test_only_super_users_act_for_others(broker: BrokerThread) -> None:
    with admin_of(broker) as alice, admin_of(broker, "bob") as bob:
        refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert code_of(alice.create_delegation_token, owner="User:bob") == refused
        token = bob.create_delegation_token(owner="User:alice")
        assert (str(token.owner), str(token.requester)) == ("User:alice", "User:bob")
        assert token in alice.describe_delegation_tokens()
        own = bob.create_delegation_token()
        assert own.token_id not in {
            each.token_id for each in alice.describe_delegation_tokens(["User:bob"])
        }
        assert own in bob.describe_delegation_tokens(["User:bob"])
        assert token in bob.describe_delegation_tokens()


def test_renewers_renew_and_expire_and_others_do_not(broker: BrokerThread) -> None:
    with admin_of(broker) as alice, admin_of(broker, "bob") as bob:
        token = alice.create_delegation_token(max_lifetime_ms=60_000)
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert code_of(bob.renew_delegation_token, token.hmac) == mismatch
        assert code_of(bob.expire_delegation_token, token.hmac) == mismatch
        shared = alice.create_delegation_token(renewers=["User:bob"])
        earlier = bob.renew_delegation_token(shared.hmac, renew_period_ms=1_000)
        assert earlier < shared.expiry_timestamp_ms
        assert alice.renew_delegation_token(token.hmac) == token.max_timestamp_ms
        unknown = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert code_of(bob.renew_delegation_token, b"unknown") == unknown
        invalid = ErrorCode.INVALID_PRINCIPAL_TYPE
        assert code_of(alice.create_delegation_token, renewers=["Group:x"]) == invalid


def test_an_expired_token_cannot_log_in_and_a_session_ends_with_it(broker: BrokerThread) -> None:
    with admin_of(broker) as admin:
        removed = admin.create_delegation_token()
        admin.expire_delegation_token(removed.hmac)
        brief = admin.create_delegation_token()
        expires_ms = admin.expire_delegation_token(brief.hmac, expiry_period_ms=300)
        assert removed.token_id not in {
            each.token_id for each in admin.describe_delegation_tokens()
        }
        while time.time() * 1000 <= expires_ms:
            time.sleep(0.01)
        expired = ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert code_of(admin.renew_delegation_token, brief.hmac) == expired
    for token in (removed, brief):
        with (
            pytest.raises(AuthenticationFailed),
            Producer(address(broker), profile=with_token(token)),
        ):
            pass


def test_the_controller_removes_expired_tokens() -> None:
    changes = {"delegation__token__expiry__check__interval__ms": "20"}
    with BrokerThread(overrides=properties(**changes)) as broker:
        add_users(broker)
        with admin_of(broker) as admin:
            admin.create_delegation_token(max_lifetime_ms=50)
            kept = admin.create_delegation_token()
        tokens = broker.broker.image.tokens
        deadline = time.monotonic() + TIMEOUT_S
        while len(tokens) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(tokens) == [kept.token_id]


def test_tokens_survive_a_restart() -> None:
    broker = BrokerThread(overrides=properties()).start()
    try:
        add_users(broker)
        with admin_of(broker) as admin:
            token = admin.create_delegation_token()
        broker.stop()
        broker.restart()
        with Producer(address(broker), profile=with_token(token)) as producer:
            producer.send("t", b"v").result(TIMEOUT_S)
    finally:
        broker.close()


def test_without_a_secret_tokens_are_disabled() -> None:
    with BrokerThread(overrides=sasl_properties()) as broker:
        add_users(broker)
        with admin_of(broker) as admin:
            disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
            assert code_of(admin.create_delegation_token) == disabled
            assert code_of(admin.renew_delegation_token, b"x") == disabled
            assert code_of(admin.expire_delegation_token, b"x") == disabled
            assert code_of(admin.describe_delegation_tokens) == disabled


def test_a_token_needs_version_1_of_the_handshake(broker: BrokerThread) -> None:
    with admin_of(broker) as admin:
        token = admin.create_delegation_token()
    with RawClient(broker.broker.ports["SASL_PLAINTEXT"]) as client:
        client.call(Api.SASL_HANDSHAKE, 0, mechanism="SCRAM-SHA-256")
        client.send_frame(f"n,,n={token.token_id},r=nonce,tokenauth=true".encode())
        client.assert_is_closed()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_of_the_requests_is_served(broker: BrokerThread, version: int) -> None:
    owner = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    short = min(version, 2)  # renewals and expiries have two versions
    with RawClient(broker.broker.ports["SASL_PLAINTEXT"]) as client:
        client.call(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.call(Api.SASL_AUTHENTICATE, auth_bytes=b"\0bob\0bob-secret")
        renewers = [{"principal_type": "User", "principal_name": "carol"}]
        created = client.call(
            Api.CREATE_DELEGATION_TOKEN, version, renewers=renewers, max_lifetime_ms=9_000, **owner
        )
        assert created.error_code == ErrorCode.NONE
        assert created.principal_name == ("alice" if version == 3 else "bob")
        renewed = client.call(
            Api.RENEW_DELEGATION_TOKEN, short, hmac=created.hmac, renew_period_ms=8_000
        )
        code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH if version == 3 else ErrorCode.NONE
        assert renewed.error_code == code
        owners = [{"principal_type": "User", "principal_name": "carol"}]
        described = client.call(Api.DESCRIBE_DELEGATION_TOKEN, version, owners=owners)
        (token,) = [each for each in described.tokens if each.token_id == created.token_id]
        assert token.hmac == created.hmac
        assert [each.principal_name for each in token.renewers] == ["carol"]
        assert token.max_timestamp == created.max_timestamp_ms
        if version == 3:
            assert token.token_requester_principal_name == "bob"
        else:
            assert token.expiry_timestamp == renewed.expiry_timestamp_ms
        expired = client.call(
            Api.EXPIRE_DELEGATION_TOKEN, short, hmac=created.hmac, expiry_time_period_ms=-1
        )
        assert expired.error_code == code


def test_a_token_does_not_describe_or_alter_users(broker: BrokerThread) -> None:
    with admin_of(broker) as admin:
        token = admin.create_delegation_token()
    with Admin(address(broker), profile=with_token(token)) as admin:
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert code_of(admin.describe_user_scram_credentials) == refused
        new = UserScramCredentialUpsertion("mallory", ScramMechanism.SCRAM_SHA_256, "x")
        assert code_of(admin.alter_user_scram_credentials, new) == refused


def test_the_tool_prints_what_kafkas_tool_prints(broker: BrokerThread, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "".join(f"{name}={value}\n" for name, value in profile("alice", "SCRAM-SHA-256").items())
    )

    run = running_on(address(broker))

    def tool(*arguments: str) -> list[str]:
        found = run("delegation-tokens", "--command-config", str(config), *arguments)
        assert found.code == 0, found.err
        return found.out.splitlines()

    renewer = ("--renewer-principal", "User:bob", "--renewer-principal", "User:carol")
    calling, created, _, heading, _, row = tool(
        "--create", "--max-life-time-period", "-1", *renewer
    )
    assert calling == (
        "Calling create token operation with renewers :[User:bob, User:carol] , "
        "max-life-time-period :-1"
    )
    token_id, hmac, owner, requester, *_ = row.split()
    assert created == f"Created delegation token with tokenId : {token_id}"
    assert heading.split()[:5] == ["TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS"]
    assert (owner, requester) == ("User:alice", "User:alice")

    lines = tool("--describe", "--owner-principal", "User:bob")
    assert lines[0] == "Calling describe token operation for owners: [User:bob]"
    assert any(token_id in line and hmac in line for line in lines)

    renewed = tool("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert renewed[0] == f"Calling renew token operation with hmac :{hmac} , renew-time-period :-1"
    assert renewed[1].startswith("Completed renew operation. New expiry date : 20")

    tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    lines = tool("--describe")
    assert lines[0] == "Calling describe token operation for current user."
    assert lines[1].startswith("Total number of tokens : ")
    assert not any(token_id in line for line in lines)
