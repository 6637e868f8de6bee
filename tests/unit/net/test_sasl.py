"""The client's messages of SASL, with the test vectors of the RFCs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
from typing import Any

import pytest

from ottla.net.errors import AuthenticationFailed
from ottla.net.sasl import Plain, Scram, ScramExchange

CHALLENGE_256 = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL_256 = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram_256() -> ScramExchange:
    return Scram("SCRAM-SHA-256", "user", "pencil").start("rOprNGfwEbeRWgbNEkqO")


def responses(exchange: ScramExchange, *challenges: bytes) -> list[bytes | None]:
    async def respond() -> list[bytes | None]:
        return [await exchange.first(), *[await exchange.respond(each) for each in challenges]]

    return asyncio.run(respond())


def test_plain_sends_the_password_at_once() -> None:
    async def messages() -> list[bytes | None]:
        exchange = Plain("alice", "pässword").start()
        return [await exchange.first(), await exchange.respond(b"")]

    assert asyncio.run(messages()) == ["\0alice\0pässword".encode(), None]


def test_the_vector_of_rfc_7677() -> None:
    assert responses(scram_256(), CHALLENGE_256, FINAL_256) == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        None,
    ]


def test_the_vector_of_rfc_5802_with_sha_1() -> None:
    """Kafka has no SCRAM-SHA-1, but the RFC's test vector exercises the same algorithm."""
    exchange = Scram("SCRAM-SHA-1", "user", "pencil").start("fyko+d2lbbFgONRv9qkxdawL")
    challenge = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    _, proof, end = responses(exchange, challenge, b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")
    assert proof == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    assert end is None


def test_each_authentication_has_a_nonce_of_its_own() -> None:
    mechanism = Scram("SCRAM-SHA-256", "u", "p")
    assert responses(mechanism.start()) != responses(mechanism.start())


def test_special_characters_in_user_names_are_escaped() -> None:
    exchange = Scram("SCRAM-SHA-256", "a=b,c", "p").start("n")
    assert responses(exchange) == [b"n,,n=a=3Db=2Cc,r=n"]


def test_the_password_is_salted_once_and_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def pbkdf2_hmac(*arguments: Any) -> bytes:
        threads.append(threading.current_thread())
        return original(*arguments)

    original = hashlib.pbkdf2_hmac
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", pbkdf2_hmac)
    mechanism = Scram("SCRAM-SHA-256", "user", "pencil")
    for _ in range(2):
        responses(mechanism.start("rOprNGfwEbeRWgbNEkqO"), CHALLENGE_256, FINAL_256)
    assert len(threads) == 1
    assert threads != [threading.main_thread()]
    other_salt = CHALLENGE_256.replace(b"s=W22Z", b"s=W22Y")
    responses(mechanism.start("rOprNGfwEbeRWgbNEkqO"), other_salt)
    assert len(threads) == 2


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"", "is malformed"),
        (b"\xff\xfe", "is malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0S,i=many", "is malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=!!!,i=4096", "is malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,i=4096", "is malformed"),
        (b"r=another nonce,s=W22ZaJ0S,i=4096", "does not extend the client's"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0S,i=4096", "does not extend the client's"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0S,i=1", "1 SCRAM iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0S,i=2000000000", "SCRAM iterations"),
    ],
)
def test_an_invalid_challenge_is_refused(challenge: bytes, message: str) -> None:
    with pytest.raises(AuthenticationFailed, match=message):
        responses(scram_256(), challenge)


@pytest.mark.parametrize(
    ("final", "message"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "could not prove"),
        (b"", "is malformed"),
        (b"v=!!!", "is malformed"),
        (b"e=invalid-proof", "rejected the credentials: invalid-proof"),
    ],
)
def test_a_broker_that_proves_nothing_is_not_believed(final: bytes, message: str) -> None:
    with pytest.raises(AuthenticationFailed, match=message):
        responses(scram_256(), CHALLENGE_256, final)


def test_no_representation_shows_a_password() -> None:
    assert "pencil" not in f"{Scram('SCRAM-SHA-256', 'u', 'pencil')!r} {Plain('u', 'pencil')!r}"
