"""Keys that verify tokens: key sets, their sources, and when they are read again."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.integration.client.certificates import Authority, needs_openssl
from tests.jwt_issuer import KeyServer, SigningKey, key_set, sign
from tests.unit.broker.net.harness import on_a_loop, until

from ottla.base.config.oauthbearer_settings import OAuthBearerSettings
from ottla.base.config.tls_settings import TlsSettings
from ottla.base.errors import UserError
from ottla.broker import jwks as jwks_module
from ottla.broker.jwks import (
    MAX_DOCUMENT_BYTES,
    MAX_KEYS,
    InvalidKeySet,
    Jwks,
    JwksFile,
    open_jwks,
    parse_key_set,
)
from ottla.core.security.jwt import parse_token

T = TypeVar("T")
KEY = SigningKey("k1")
OTHER = SigningKey("k2")


class Pool:
    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)


class Source:
    """A key set in memory that counts how often it is read."""

    interval_s = 3600.0

    def __init__(self, document: bytes | None) -> None:
        self.document = document
        self.reads = 0

    def read(self) -> bytes | None:
        self.reads += 1
        if self.document is None:
            raise InvalidKeySet("it is away")
        return self.document


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(jwks: Jwks) -> AsyncIterator[Jwks]:
    await jwks.start()
    try:
        yield jwks
    finally:
        await jwks.close()


def settings(url: str, **changes: Any) -> OAuthBearerSettings:
    found = {"expected_issuer": "https://idp", "expected_audience": ("kafka",), **changes}
    return OAuthBearerSettings(jwks_endpoint_url=url, **found)


# -------------------------------------------------------------------------------------- key sets


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"]
)
def test_a_key_fits_tokens_of_its_algorithm_and_id(algorithm: str) -> None:
    key = SigningKey("k", algorithm)
    found = parse_key_set(key_set(OTHER, key))
    (candidate,) = found.candidates(parse_token(sign(key)))
    assert candidate.algorithms == {algorithm}
    assert not found.candidates(parse_token(sign(key, headers={"kid": "other"})))


def test_a_token_without_a_key_id_fits_every_key_of_its_algorithm() -> None:
    found = parse_key_set(key_set(*(SigningKey(str(each)) for each in range(6))))
    assert len(found.candidates(parse_token(sign(KEY, headers={"kid": ...})))) == 4


def test_a_key_without_an_algorithm_verifies_what_its_type_can() -> None:
    entry = SigningKey("k", "RS256").public_jwk()
    del entry["alg"]
    (found,) = parse_key_set(key_set(entry)).keys
    assert found.algorithms == {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"},
        KEY.public_jwk(use="enc"),
        KEY.public_jwk(key_ops=["sign"]),
        KEY.public_jwk(alg="RS256"),
        KEY.public_jwk(kty="new"),
        KEY.public_jwk(x="AAAA"),
        KEY.public_jwk(x=7),
        KEY.public_jwk(kid=7),
        {"kty": "EC", "crv": "P-256", "kid": "k"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "k"},
        "nonsense",
        None,
    ],
)
def test_a_key_that_cannot_be_used_is_skipped(entry: Any) -> None:
    document = json.dumps({"keys": [entry, OTHER.public_jwk()]}).encode()
    assert [each.key_id for each in parse_key_set(document).keys] == ["k2"]


def test_the_private_part_of_a_key_is_dropped() -> None:
    private = KEY.private.private_numbers().private_value
    entry = KEY.public_jwk(d=str(private))
    (found,) = parse_key_set(key_set(entry)).keys
    assert not hasattr(found.key, "private_numbers")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "not a JSON document"),
        (b"<html>", "not a JSON document"),
        (b"[" * 100_000, "not a JSON document"),
        (b"[]", "no list 'keys'"),
        (b'{"keys": {}}', "no list 'keys'"),
        (b'{"keys": []}', "no key that can verify"),
        (json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode(), "more than 256 keys"),
    ],
)
def test_a_document_that_is_not_a_key_set_is_refused(document: bytes, reason: str) -> None:
    with pytest.raises(InvalidKeySet, match=reason):
        parse_key_set(document)


# ---------------------------------------------------------------------------------------- files


@on_a_loop
async def test_a_changed_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JwksFile, "interval_s", 0.01)
    path = tmp_path / "key set.json"
    path.write_bytes(key_set(KEY))
    async with running(open_jwks(settings(path.as_uri()), Pool())) as jwks:
        assert [each.key_id for each in jwks.keys.keys] == ["k1"]
        replace(path, key_set(KEY, OTHER))
        await until(lambda: len(jwks.keys.keys) == 2)


@on_a_loop
async def test_a_file_that_becomes_invalid_or_vanishes_keeps_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(JwksFile, "interval_s", 0.01)
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(KEY))
    jwks = open_jwks(settings(path.as_uri(), jwks_endpoint_retry_backoff_max_ms=10), Pool())
    async with running(jwks):
        replace(path, b"broken")
        await until(lambda: "not a JSON document" in caplog.text)
        path.unlink()
        await until(lambda: "no such file" in caplog.text)
        assert [each.key_id for each in jwks.keys.keys] == ["k1"]
        replace(path, key_set(OTHER))
        await until(lambda: [each.key_id for each in jwks.keys.keys] == ["k2"])
    assert caplog.text.count("no such file") == 1


def replace(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)


@pytest.mark.parametrize("content", [None, b"broken", b"x" * (MAX_DOCUMENT_BYTES + 1)])
def test_a_file_that_cannot_be_used_is_refused_at_start(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url=file:.*used: "):
        open_jwks(settings(path.as_uri()), Pool())


# ------------------------------------------------------------------------------------ endpoints


@on_a_loop
async def test_an_endpoint_is_read_again_at_intervals() -> None:
    with KeyServer(key_set(KEY)) as server:
        jwks = open_jwks(settings(server.url, jwks_endpoint_refresh_ms=10), Pool())
        async with running(jwks):
            assert [each.key_id for each in jwks.keys.keys] == ["k1"]
            server.document = key_set(OTHER)
            await until(lambda: [each.key_id for each in jwks.keys.keys] == ["k2"])


@on_a_loop
async def test_an_endpoint_that_fails_is_tried_again_and_its_keys_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with KeyServer(key_set(KEY)) as server:
        changes = {"jwks_endpoint_refresh_ms": 10, "jwks_endpoint_retry_backoff_ms": 1}
        async with running(open_jwks(settings(server.url, **changes), Pool())) as jwks:
            server.status = 503
            await until(lambda: "answers with status 503" in caplog.text)
            failed = server.requests
            await until(lambda: server.requests > failed + 2)
            assert [each.key_id for each in jwks.keys.keys] == ["k1"]
            server.status, server.document = 200, key_set(OTHER)
            await until(lambda: [each.key_id for each in jwks.keys.keys] == ["k2"])
    assert caplog.text.count("503") == 1


@on_a_loop
async def test_a_broker_starts_while_the_endpoint_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with KeyServer(key_set(KEY)) as server:
        server.status = 500
        changes = {"jwks_endpoint_retry_backoff_ms": 1}
        async with running(open_jwks(settings(server.url, **changes), Pool())) as jwks:
            assert not jwks.keys.keys
            server.status = 200
            await until(lambda: bool(jwks.keys.keys))
    assert "cannot get keys for tokens from http://127.0.0.1" in caplog.text


@pytest.mark.parametrize(
    ("document", "reason"),
    [(b"x" * (MAX_DOCUMENT_BYTES + 1), "more than 524288 bytes"), (b"x", "not a JSON document")],
)
@on_a_loop
async def test_a_response_that_is_too_large_or_malformed_is_refused(
    document: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with KeyServer(document) as server:
        async with running(open_jwks(settings(server.url), Pool())) as jwks:
            assert not jwks.keys.keys
    assert reason in caplog.text


@on_a_loop
async def test_a_response_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jwks_module, "FETCH_DEADLINE_S", -1.0)
    with KeyServer(key_set(KEY)) as server:
        async with running(open_jwks(settings(server.url), Pool())) as jwks:
            assert not jwks.keys.keys
    assert "takes longer than" in caplog.text


@needs_openssl
@on_a_loop
async def test_an_endpoint_with_tls_is_checked_with_the_trust_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    trusting = TlsSettings(truststore_type="PEM", truststore_location=authority.certificate)
    with KeyServer(key_set(KEY), tls=server_tls(authority)) as server:
        async with running(open_jwks(settings(server.url, tls=trusting), Pool())) as jwks:
            assert len(jwks.keys.keys) == 1
        assert not caplog.text
        async with running(open_jwks(settings(server.url), Pool())) as jwks:
            assert not jwks.keys.keys
    assert "certificate verify failed" in caplog.text.lower()


@needs_openssl
@on_a_loop
async def test_a_redirect_from_https_to_http_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    trusting = TlsSettings(truststore_type="PEM", truststore_location=authority.certificate)
    with KeyServer(key_set(KEY)) as target, KeyServer(b"", server_tls(authority)) as server:
        server.status, server.location = 302, target.url
        async with running(open_jwks(settings(server.url, tls=trusting), Pool())) as jwks:
            assert not jwks.keys.keys
        assert not target.requests
    assert "redirects from https to another protocol" in caplog.text


def server_tls(authority: Authority) -> ssl.SSLContext:
    own = authority.sign("issuer", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    return context


@on_a_loop
async def test_a_redirect_is_followed() -> None:
    with KeyServer(key_set(KEY)) as target, KeyServer(b"") as server:
        server.status, server.location = 307, target.url
        async with running(open_jwks(settings(server.url), Pool())) as jwks:
            assert len(jwks.keys.keys) == 1


def test_plain_http_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    open_jwks(settings("http://127.0.0.1:1/jwks"), Pool())
    assert "use https" in caplog.text


def test_unverified_claims_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    open_jwks(settings("https://127.0.0.1:1/", expected_audience=()), Pool())
    assert "tokens of every audience are accepted" in caplog.text
    assert "every issuer" not in caplog.text


# --------------------------------------------------------------------------------- unknown keys


@on_a_loop
async def test_an_unknown_key_causes_one_read_and_is_found() -> None:
    source = Source(key_set(KEY))
    async with running(Jwks(source, Pool())) as jwks:
        source.document = key_set(OTHER)
        (found,) = await jwks.candidates(parse_token(sign(OTHER)))
        assert found.key_id == "k2"
        assert source.reads == 2


@on_a_loop
async def test_made_up_keys_do_not_cause_more_reads_than_the_backoff_allows() -> None:
    source, now = Source(key_set(KEY)), Time()
    async with running(Jwks(source, Pool(), max_backoff_s=10, monotonic=now)) as jwks:
        made_up = [parse_token(sign(SigningKey(f"made-up-{each}"))) for each in range(50)]
        answers = await asyncio.gather(*map(jwks.candidates, made_up))
        assert not any(answers)
        assert source.reads == 2
        now.now += 9.9
        await asyncio.gather(*map(jwks.candidates, made_up))
        assert source.reads == 2
        now.now += 0.2
        await asyncio.gather(*map(jwks.candidates, made_up))
        assert source.reads == 3


@on_a_loop
async def test_a_client_does_not_wait_for_an_endpoint_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwks_module, "LOOK_UP_TIMEOUT_S", 0.05)
    with KeyServer(key_set(KEY)) as server:
        async with running(open_jwks(settings(server.url), Pool())) as jwks:
            server.hold.clear()
            token = parse_token(sign(OTHER))
            async with asyncio.timeout(5):
                assert not await jwks.candidates(token)
                assert not await jwks.candidates(token)
            server.hold.set()
            await until(lambda: server.requests == 2)
