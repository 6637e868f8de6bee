"""SASL DIGEST-MD5: the example of RFC 2831, and servers that cannot be trusted."""

from __future__ import annotations

import pytest

from ottla.metadata.zookeeper.digest_md5 import DigestMd5Client, DigestMd5Error

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)


def rfc_client(password: str = "secret") -> DigestMd5Client:
    return DigestMd5Client("chris", password, "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com")


def test_the_example_of_the_rfc() -> None:
    client = rfc_client()
    response = client.respond(CHALLENGE)
    assert b"response=d388dad90d4bbd760a152321f2143af7" in response
    assert b'username="chris"' in response
    assert b"secret" not in response
    client.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")


@pytest.mark.parametrize("final", [b"", b"rspauth=", b"rspauth=00", b"a=b", b"\xff\xfe"])
def test_a_server_that_does_not_know_the_password_is_rejected(final: bytes) -> None:
    client = rfc_client()
    client.respond(CHALLENGE)
    with pytest.raises(DigestMd5Error):
        client.check(final)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\x00\x01",
        b'realm="x"',
        b'nonce="n",algorithm=md5',
        b'nonce="n",algorithm=md5-sess,qop="auth-conf"',
        b'nonce="n',
        b"rspauth=1",
    ],
)
def test_a_challenge_of_another_mechanism_is_rejected(challenge: bytes) -> None:
    with pytest.raises(DigestMd5Error):
        rfc_client().respond(challenge)


def test_quotes_in_names_are_escaped() -> None:
    response = DigestMd5Client('a"b\\c', "p").respond(CHALLENGE)
    assert b'username="a\\"b\\\\c"' in response


def test_each_authentication_has_its_own_nonce() -> None:
    first, second = (DigestMd5Client("a", "p").respond(CHALLENGE) for _ in range(2))
    assert first != second
