"""Tests of SCRAM on the server, against another implementation of the client."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache

import pytest
from scramp import ScramClient

from ottla.base.scram import ScramCredential, ScramMechanism, derive_credential, salt_password
from ottla.core.security.principal import Principal
from ottla.core.security.sasl import Authenticated, Challenge, Rejected, Step
from ottla.core.security.scram import (
    MAX_MESSAGE_BYTES,
    ScramExchange,
    ScramMechanismServer,
    TokenCredential,
)

SHA_256 = ScramMechanism.SHA_256
BOTH = pytest.mark.parametrize("mechanism", ScramMechanism)


@cache
def credential_of(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = 4096
) -> ScramCredential:
    salted = salt_password(mechanism, password, salt, iterations)
    return derive_credential(mechanism, salted, salt, iterations)


class Users:
    def __init__(self, passwords: dict[str, str], shape: tuple[int, int] = (24, 4096)) -> None:
        self.passwords = passwords
        self.shape = shape

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        password, (salt_bytes, iterations) = self.passwords.get(user), self.shape
        if password is None:
            return None
        return credential_of(mechanism, password, b"s" * salt_bytes, iterations)

    def example(self, mechanism: ScramMechanism) -> ScramCredential | None:
        return self.credential(mechanism, min(self.passwords, default=""))


class Tokens:
    async def token_credential(
        self, mechanism: ScramMechanism, token_id: str
    ) -> TokenCredential | None:
        if token_id != "token-1":
            return None
        credential = credential_of(mechanism, "hmac", b"t" * 24)
        return TokenCredential(credential, Principal("User", "owner"), 5_000.0)


def exchange(
    mechanism: ScramMechanism = SHA_256, nonce: str = "server", secret: bytes = b"of this process"
) -> ScramExchange:
    users = Users({"alice": "secret", "a=b,c": "pencil", "token-1": "not the token"})
    return ScramMechanismServer(
        mechanism, users, Tokens(), secret=secret, new_nonce=lambda: nonce
    ).start()


def converse(
    mechanism: ScramMechanism,
    user: str,
    password: str,
    change_first: Callable[[bytes], bytes] = lambda first: first,
    change_final: Callable[[bytes], bytes] = lambda final: final,
) -> Step:
    """Authenticate with the reference client. Checks the server's signature if it succeeds."""
    server, client = exchange(mechanism), ScramClient([mechanism.sasl_name], user, password)
    challenge = waited(server.step(change_first(client.get_client_first().encode())))
    if not isinstance(challenge, Challenge):
        return challenge
    client.set_server_first(challenge.message.decode())
    found = waited(server.step(change_final(client.get_client_final().encode())))
    if isinstance(found, Authenticated):
        client.set_server_final(found.message.decode())
    return found


@BOTH
@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("a=b,c", "pencil")])
def test_a_user_with_the_right_password_is_authenticated(
    mechanism: ScramMechanism, user: str, password: str
) -> None:
    found = converse(mechanism, user, password)
    assert isinstance(found, Authenticated)
    assert (found.principal, found.expires_at) == (Principal("User", user), None)


@BOTH
@pytest.mark.parametrize(
    ("user", "reason"),
    [("alice", "wrong password of user 'alice'"), ("nobody", "unknown user 'nobody'")],
)
def test_a_wrong_password_and_an_unknown_user_fail_after_the_same_messages(
    mechanism: ScramMechanism, user: str, reason: str
) -> None:
    found = converse(mechanism, user, "guess")
    assert found == Rejected(reason)


def challenge(users: Users, user: str, secret: bytes) -> str:
    server = ScramMechanismServer(SHA_256, users, None, secret=secret, new_nonce=lambda: "server")
    found = server.start().step(f"n,,n={user},r=c".encode())
    assert isinstance(found, Challenge)
    return found.message.decode()


@pytest.mark.parametrize("shape", [(24, 4096), (26, 8192), (200, 4097)])
def test_an_unknown_user_has_the_same_challenge_every_time_and_on_every_broker(
    shape: tuple[int, int],
) -> None:
    users = Users({"alice": "secret", "bob": "secret"}, shape)
    found = [challenge(users, "nobody", secret) for secret in (b"one", b"one", b"another")]
    assert len(set(found)) == 1
    found += [challenge(users, user, b"one") for user in ("nobody2", "alice", "bob")]
    shapes = set()
    for each in found:
        nonce, salt, iterations = each.split(",")
        shapes.add((nonce, len(base64.b64decode(salt[2:])), iterations))
    assert shapes == {("r=cserver", shape[0], f"i={shape[1]}")}
    assert challenge(users, "nobody", b"one") != challenge(users, "nobody2", b"one")


def test_the_challenges_of_a_cluster_without_users_depend_on_the_secret() -> None:
    assert challenge(Users({}), "nobody", b"one") == challenge(Users({}), "nobody", b"one")
    assert challenge(Users({}), "nobody", b"one") != challenge(Users({}), "nobody", b"two")


def test_a_delegation_token_authenticates_its_owner() -> None:
    def with_extension(first: bytes) -> bytes:
        return first + b",tokenauth=true"

    server = exchange()
    client = ScramClient(["SCRAM-SHA-256"], "token-1", "hmac")
    first = client.get_client_first()
    challenge = waited(server.step(with_extension(first.encode())))
    assert isinstance(challenge, Challenge)
    client.client_first_bare = f"{client.client_first_bare},tokenauth=true"
    client.set_server_first(challenge.message.decode())
    found = server.step(client.get_client_final().encode())
    assert isinstance(found, Authenticated)
    assert (found.principal, found.expires_at) == (Principal("User", "owner"), 5_000.0)
    assert found.principal.is_token_authenticated


def waited(step: Step | Awaitable[Step]) -> Step:
    """Return the result of a step that is ready without waiting."""
    if not isinstance(step, Coroutine):
        assert not isinstance(step, Awaitable)
        return step
    with pytest.raises(StopIteration) as done:
        step.send(None)
    found: Step = done.value.value
    return found


def test_the_password_of_a_user_is_not_one_of_a_token() -> None:
    server = exchange()
    client = ScramClient(["SCRAM-SHA-256"], "alice", "secret")
    first = client.get_client_first() + ",tokenauth=true"
    challenge = waited(server.step(first.encode()))
    assert isinstance(challenge, Challenge)
    client.client_first_bare = f"{client.client_first_bare},tokenauth=true"
    client.set_server_first(challenge.message.decode())
    assert waited(server.step(client.get_client_final().encode())) == Rejected(
        "unknown delegation token 'alice'"
    )


def test_an_unknown_token_is_rejected_at_the_end() -> None:
    challenge = waited(exchange().step(b"n,,n=token-2,r=c,tokenauth=true"))
    assert isinstance(challenge, Challenge)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"n,,",
        b"n,,n=alice",
        b"n,,r=c",
        b"n,,n=,r=c",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=c",
        b"n,,n=al=2cice,r=c",
        b"n,,n=alice,r=\x01",
        b"n,,n=alice,r=" + b"c" * 2_000,
        b"n,,m=mandatory,n=alice,r=c",
        b"p=tls-unique,,n=alice,r=c",
        b"x,,n=alice,r=c",
        b"n,b=alice,n=alice,r=c",
        b"n,,n=alice,r=c,trailing",
        b"n,,n=alice,r=c" + b",x=1" * MAX_MESSAGE_BYTES,
    ],
)
def test_a_malformed_first_message_is_rejected(message: bytes) -> None:
    assert exchange().step(message) == Rejected("the client sent a malformed message")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda final: b"", "malformed"),
        (lambda final: b"\xff", "malformed"),
        (lambda final: final.split(b",p=")[0], "malformed"),
        (lambda final: final.split(b",p=")[0] + b",p=====", "malformed"),
        (lambda final: final + b",x", "malformed"),
        (lambda final: final.replace(b"c=biws", b"c=eSws"), "channel binding"),
        (lambda final: final.replace(b"server", b"xerver"), "nonce"),
        (lambda final: final.split(b",p=")[0] + b",p=YQ==", "wrong password"),
        (lambda final: final.split(b",p=")[0] + b",x=1,p=" + final.split(b",p=")[1], "wrong pass"),
    ],
)
def test_a_malformed_final_message_is_rejected(
    change: Callable[[bytes], bytes], reason: str
) -> None:
    found = converse(SHA_256, "alice", "secret", change_final=change)
    assert isinstance(found, Rejected)
    assert reason in found.reason
    assert not found.message


def test_the_repeated_nonce_of_old_versions_of_librdkafka_is_accepted() -> None:
    assert isinstance(prove(exchange(), b"n,,", b"ccserver"), Authenticated)
    assert isinstance(prove(exchange(), b"n,,", b"server"), Rejected)
    assert isinstance(prove(exchange(), b"n,,", b"cserverc"), Rejected)


@pytest.mark.parametrize(
    ("header", "is_accepted"),
    [(b"n,,", True), (b"y,,", True), (b"n,a=alice,", True), (b"n,a=bob,", False)],
)
def test_a_client_can_act_only_as_itself(header: bytes, is_accepted: bool) -> None:
    found = prove(exchange(), header, b"cserver")
    assert isinstance(found, Authenticated) is is_accepted
    if isinstance(found, Rejected):
        assert "authorization id that is different" in found.message


def prove(server: ScramExchange, header: bytes, nonce: bytes) -> Step:
    """Return the answer to a client that knows the password and sends this nonce."""
    import hashlib
    import hmac

    challenge = server.step(header + b"n=alice,r=c")
    assert isinstance(challenge, Challenge)
    without_proof = b"c=" + base64.b64encode(header) + b",r=" + nonce
    signed = b"n=alice,r=c," + challenge.message + b"," + without_proof
    salted = salt_password(SHA_256, "secret", b"s" * 24, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return server.step(without_proof + b",p=" + base64.b64encode(proof))
