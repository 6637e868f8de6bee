"""Tests of SCRAM with the test vectors of its RFCs, and of passwords in Java's notation."""

from __future__ import annotations

import base64

import pytest

from ottla.client.config import CommonConfig
from ottla.client.errors import AuthenticationFailed, InvalidConfig
from ottla.client.security import Scram, authenticator, credentials
from ottla.client.tls import tls_settings

CHALLENGE_256 = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)


def scram_256() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")


def test_the_vector_of_rfc_7677() -> None:
    scram = scram_256()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(CHALLENGE_256) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_vector_of_rfc_5802_with_sha_1() -> None:
    """Kafka has no SCRAM-SHA-1, but the RFC's test vector exercises the same algorithm."""
    scram = Scram("SCRAM-SHA-1", "user", "pencil", nonce="fyko+d2lbbFgONRv9qkxdawL")
    final = scram.final(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096")
    assert final == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    scram.verify(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


def test_each_dialogue_has_a_nonce_of_its_own() -> None:
    assert Scram("SCRAM-SHA-256", "u", "p").first() != Scram("SCRAM-SHA-256", "u", "p").first()


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
        scram_256().final(challenge)


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
    scram = scram_256()
    scram.final(CHALLENGE_256)
    with pytest.raises(AuthenticationFailed, match=message):
        scram.verify(final)


# ---------------------------------------------------------------------------------------- JAAS


def of_jaas(text: str) -> tuple[str, str]:
    keywords = {"security_protocol": "SASL_SSL", "sasl_jaas_config": text}
    return credentials(CommonConfig.of(None, None, keywords))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('m.PlainLoginModule required username="alice" password="secret";', ("alice", "secret")),
        ("m.PlainLoginModule required\n username='a b'\n password='c;d';", ("a b", "c;d")),
        ("m.ScramLoginModule required username=alice password=secret;", ("alice", "secret")),
        (r'm required username="a" password="quo\"te\\";', ("a", 'quo"te\\')),
        ('m required user="x" username = "a" password="p=q";', ("a", "p=q")),
    ],
)
def test_javas_way_to_write_a_password(text: str, found: tuple[str, str]) -> None:
    assert of_jaas(text) == found


def test_names_of_our_own_win_over_jaas() -> None:
    keywords = {
        "security_protocol": "SASL_SSL",
        "sasl_username": "me",
        "sasl_password": "mine",
        "sasl_jaas_config": 'm required username="other" password="theirs";',
    }
    assert credentials(CommonConfig.of(None, None, keywords)) == ("me", "mine")


def test_a_user_is_needed() -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.username and sasl\.password must be set"):
        of_jaas("m required;")


def test_plaintext_needs_neither_tls_nor_sasl() -> None:
    plain = CommonConfig.of(None, None, {})
    assert tls_settings(plain) is None
    assert authenticator(plain) is None
