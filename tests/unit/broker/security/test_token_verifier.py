"""Verification of tokens: signatures, then claims."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.jwt_issuer import AUDIENCE, ISSUER, SigningKey, claims, key_set, sign
from tests.unit.broker.net.harness import on_a_loop

from ottla.broker.jwks import Jwks
from ottla.broker.token_verifier import TokenVerifier
from ottla.core.security.jwt import TokenPolicy, TokenRejected

T = TypeVar("T")
KEYS = {name: SigningKey(name, name) for name in ("RS256", "PS256", "ES256", "ES384", "EdDSA")}


class Pool:
    def __init__(self) -> None:
        self.calls = 0

    async def run_blocking(self, work: Callable[[], T]) -> T:
        self.calls += 1
        return await asyncio.to_thread(work)


class Source:
    interval_s = 3600.0

    def read(self) -> bytes | None:
        return key_set(*KEYS.values())


async def verify(token: str, pool: Pool | None = None) -> Any:
    threads = pool or Pool()
    keys = Jwks(Source(), threads, max_backoff_s=3600)
    await keys.refresh()
    threads.calls = 0
    policy = TokenPolicy(ISSUER, frozenset({AUDIENCE}))
    try:
        return await TokenVerifier(keys, policy, threads).verify(token)
    finally:
        await keys.close()


@pytest.mark.parametrize("name", KEYS)
@on_a_loop
async def test_a_valid_token_is_accepted(name: str) -> None:
    expires_at = time.time() + 60
    found = await verify(sign(KEYS[name], exp=expires_at))
    assert found.subject == "alice"
    assert found.expires_at == pytest.approx(expires_at)


@pytest.mark.parametrize("name", KEYS)
@on_a_loop
async def test_a_wrong_signature_is_rejected(name: str) -> None:
    forged = SigningKey(name, name)
    with pytest.raises(TokenRejected, match="signature is wrong"):
        await verify(sign(forged))


@pytest.mark.parametrize("name", KEYS)
@on_a_loop
async def test_a_changed_payload_is_rejected(name: str) -> None:
    header, _, signature = sign(KEYS[name]).split(".")
    payload = encode(claims(sub="admin"))
    with pytest.raises(TokenRejected, match="signature is wrong"):
        await verify(f"{header}.{payload}.{signature}")


@pytest.mark.parametrize("name", KEYS)
@on_a_loop
async def test_a_signature_of_another_length_is_rejected(name: str) -> None:
    unsigned, _, _ = sign(KEYS[name]).rpartition(".")
    with pytest.raises(TokenRejected, match="signature is wrong"):
        await verify(f"{unsigned}.AAAA")


@on_a_loop
async def test_a_token_without_a_signature_is_rejected() -> None:
    header = encode({"alg": "none", "kid": "RS256"})
    with pytest.raises(TokenRejected, match="algorithm 'none'"):
        await verify(f"{header}.{encode(claims())}.AAAA")


@on_a_loop
async def test_the_public_key_is_not_a_secret_for_hs256() -> None:
    public = KEYS["RS256"].private.public_key()
    secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encode({'alg': 'HS256', 'kid': 'RS256'})}.{encode(claims())}"
    forged = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), "sha256"))
    with pytest.raises(TokenRejected, match="algorithm 'HS256'"):
        await verify(f"{signed}.{forged.rstrip(b'=').decode()}")


@on_a_loop
async def test_a_key_does_not_verify_another_algorithm() -> None:
    token = sign(KEYS["PS256"], headers={"kid": "RS256"})
    with pytest.raises(TokenRejected, match="no key of the issuer fits"):
        await verify(token)


@on_a_loop
async def test_claims_are_checked() -> None:
    with pytest.raises(TokenRejected, match="audience"):
        await verify(sign(KEYS["ES256"], aud="payroll"))


@on_a_loop
async def test_only_slow_algorithms_use_a_thread() -> None:
    pool = Pool()
    await verify(sign(KEYS["ES256"]), pool)
    assert pool.calls == 0
    await verify(sign(KEYS["ES384"]), pool)
    assert pool.calls == 1


def encode(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
