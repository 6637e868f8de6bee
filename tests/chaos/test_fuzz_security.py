"""Random and mutated bytes from clients that are not authenticated: SASL requests, and TLS records.

SASL clients follow the dialogue and change some of their requests. Their connections use in-memory
transports, as in test_fuzz_requests.py. TLS clients use socket pairs, because the handshake is the
event loop's.

The following must hold for every input:
- no exception reaches the event loop, and no handler raises;
- the connection has responded, is closed, or waits for the rest of a frame;
- a client is authenticated only if it has sent the right token, unchanged;
- memory reserved for requests is released, and the process does not grow."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import random
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from tests.chaos.test_fuzz_requests import GROWTH_BYTES, Transport, resident_bytes
from tests.integration.client.certificates import Authority, needs_openssl
from tests.integration.security.sasl_broker import plain_jaas
from tests.jwt_issuer import AUDIENCE, ISSUER, SigningKey, key_set, sign

from ottla.base.config.broker import BrokerConfig
from ottla.base.scram import ScramMechanism, derive_credential, salt_password
from ottla.broker.broker import Broker
from ottla.broker.clock import SystemClock
from ottla.broker.connection import Connection
from ottla.broker.server import Server
from ottla.broker.tls_acceptor import TlsAcceptor
from ottla.core.security.principal import ANONYMOUS
from ottla.storage.file import OsFileSystem
from ottla.wire import codec

VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD = "alice-secret"
RIGHT_PLAIN = b"\0alice\0alice-secret"
KEY = SigningKey("k1")
RIGHT_TOKEN = sign(KEY, exp=time.time() + 7_200).encode()
WRONG_TOKENS = [
    *(sign(KEY, aud="other").encode(), sign(KEY, exp=1, iat=0).encode()),
    *(sign(SigningKey("k1")).encode(), sign(SigningKey("k2", "RS256")).encode()),
]
LISTENER = "SASL_PLAINTEXT"
LOOK_EVERY = 250
TLS_CLIENTS = 20
"""Number of TLS clients at the same time."""
PATIENCE_S = 45.0
"""A handshake has 10 seconds, the end of a TLS connection 5, and the sweep up to 20 after it."""


SALT = bytes(24)
SALTED = {each: salt_password(each, PASSWORD, SALT, 4096) for each in ScramMechanism}
CREDENTIALS = {each: derive_credential(each, SALTED[each], SALT, 4096) for each in ScramMechanism}


@asynccontextmanager
async def serving(directory: Path, **more: str) -> AsyncIterator[Server]:
    keys = directory.with_name(f"{directory.name}-keys.json")
    keys.write_bytes(key_set(KEY))
    properties = {
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "delegation.token.secret.key": "secret",
        "listeners": f"{LISTENER}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas({"alice": PASSWORD}),
        "connection.failed.authentication.delay.ms": "0",
        "connections.max.reauth.ms": "60000",
        "log.dirs": str(directory),
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    broker = Broker(BrokerConfig(properties), OsFileSystem(1_000), SystemClock())
    await broker.start()
    broker.image.scram["alice"] = CREDENTIALS
    try:
        yield broker.server
    finally:
        await broker.stop()


# --------------------------------------------------------------------------------- SASL: one client


class Client:
    """A SASL client that changes some of what it sends."""

    def __init__(self, server: Server, rng: random.Random) -> None:
        self.rng = rng
        self.server = server
        self.sent = b""
        """Everything that was sent, without the frames' sizes."""
        self.right_tokens = [RIGHT_PLAIN, RIGHT_TOKEN]
        self._transport = Recorder()
        self.connection = Connection(server, LISTENER)
        self._transport.connection = self.connection
        self.connection.connection_made(self._transport)  # type: ignore[arg-type]
        self._count = 0
        self._mechanism = rng.choice(MECHANISMS)
        self._is_raw = rng.random() < 0.2
        self._first = b""

    @property
    def is_usable(self) -> bool:
        return self._transport.is_reading and not self._transport.is_closed

    def close(self) -> None:
        self._transport.close()

    async def send_next(self) -> bytes:
        """Send the next input, wait for its effect, and return it."""
        rng = self.rng
        frame = self._request()
        if rng.random() < 0.3:
            for _ in range(rng.choice([1, 1, 2, 4])):
                frame = mutated(rng, frame)
        size = len(frame)
        if rng.random() < 0.02:
            size = rng.choice([-1, 0, 7, size // 2, size + 3, 524_288, 524_289, 2**31 - 1])
        self.sent += frame
        data = struct.pack(">i", size) + frame
        if rng.random() < 0.01:
            data = rng.randbytes(rng.choice([1, 4, 200, 5_000]))
        await self._write(data)
        return data

    def _request(self) -> bytes:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.05:
            return self._encoded(rng.choice([0, 1, 3, 19, 36, 17]), 1, rng.randbytes(20))
        step, self._count = self._count, self._count + 1
        if step == 0 and kind < 0.5:
            self._count -= rng.random() < 0.1
            return self._api(VERSIONS, 0, {})
        if step <= 1:
            self._count = 2
            name = self._mechanism if kind < 0.9 else rng.choice(["", "GSSAPI", "é" * 40])
            return self._api(HANDSHAKE, 0 if self._is_raw else 1, {"mechanism": name})
        token = self._token(step)
        if self._is_raw:
            return token
        return self._api(AUTHENTICATE, rng.choice([0, 1, 2, 2]), {"auth_bytes": token})

    def _token(self, step: int) -> bytes:
        rng = self.rng
        if self._mechanism == "PLAIN":
            return rng.choice([RIGHT_PLAIN, b"\0alice\0x", b"", b"\0" * 5, rng.randbytes(50)])
        if self._mechanism == "OAUTHBEARER":
            token = rng.choice([RIGHT_TOKEN, RIGHT_TOKEN, *WRONG_TOKENS, b"a.b.c", b""])
            header = rng.choice([b"n,,", b"n,,", b"n,a=alice,", b"y,,"])
            extension = rng.choice([b"", b"", b"key=value\x01", b"key\x01"])
            message = header + b"\x01auth=Bearer " + token + b"\x01" + extension + b"\x01"
            return rng.choice([message, message, b"\x01"])
        if step % 2 == 0:
            user = rng.choice(["alice", "alice", "nobody", "=2C"])
            header = rng.choice(["n,,", "y,,", "n,a=alice,", "p=x,,"])
            self._header = header
            bare = f"n={user},r=" + base64.b64encode(rng.randbytes(8)).decode()
            bare += rng.choice(["", "", "", "", ",tokenauth=true"])
            self._first = bare.encode()
            return (header + bare).encode()
        return self._scram_final(self._transport.last)

    def _scram_final(self, answer: bytes) -> bytes:
        """Return the right final message if the broker's last response has a challenge."""
        start = answer.find(b"r=")
        if start < 0:
            return b"c=biws,r=x,p=eA=="
        end = answer.find(b",i=4096", start) + len(b",i=4096")
        challenge = answer[start:end]
        nonce = challenge.split(b",")[0]
        unsigned = b"c=" + base64.b64encode(self._header.encode()) + b"," + nonce
        signed = self._first + b"," + challenge + b"," + unsigned
        mechanism = next(each for each in ScramMechanism if each.sasl_name == self._mechanism)
        key = hmac.digest(SALTED[mechanism], b"Client Key", mechanism.hash_name)
        stored = hashlib.new(mechanism.hash_name, key).digest()
        signature = hmac.digest(stored, signed, mechanism.hash_name)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        final = unsigned + b",p=" + base64.b64encode(proof)
        self.right_tokens.append(final)
        return final

    def _api(self, key: int, version: int, body: dict[str, Any]) -> bytes:
        pieces = codec.encode_request(key, version, self._count, "fuzz", body)
        return b"".join(bytes(piece) for piece in pieces)[4:]

    def _encoded(self, key: int, version: int, body: bytes) -> bytes:
        return struct.pack(">hhih", key, version, self._count, -1) + body

    async def _write(self, data: bytes) -> None:
        while data and self.is_usable:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data), self.rng.choice([3, 1 << 20, 1 << 20, 1 << 20]))
            room[:count] = data[:count]
            del room
            self.connection.buffer_updated(count)
            data = data[count:]
            for _ in range(20):
                if self.is_usable or self._transport.is_closed:
                    break
                await asyncio.sleep(0)


class Recorder(Transport):
    """Transport that keeps the last response."""

    def __init__(self) -> None:
        super().__init__()
        self.last = b""

    def write(self, data: bytes) -> None:
        super().write(data)
        self.last = bytes(data)


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    at = rng.randrange(len(changed) + 1)
    match rng.randrange(5):
        case 0 if changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        case 1:
            del changed[at:]
        case 2:
            changed[at : at + 4] = rng.choice(
                [b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), b"\x80\0\0\0", rng.randbytes(4)]
            )
        case 3:
            changed[at:at] = rng.randbytes(rng.randrange(1, 20))
        case _:
            part = changed[at : at + rng.randrange(1, 60)]
            changed[at:at] = part * rng.choice([1, 3, 50])
    return bytes(changed)


async def fuzz_sasl(directory: Path, seed: int, inputs: int) -> None:
    escaped: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    rng = random.Random(seed)
    async with serving(directory) as server:
        client = Client(server, rng)
        at_first = resident_bytes()
        for number in range(inputs):
            if not client.is_usable or rng.random() < 0.01:
                client.close()
                await asyncio.sleep(0)
                client = Client(server, rng)
            described = f"seed {seed}, input {number}: {(await client.send_next())[:300].hex()}"
            assert not escaped, described
            assert server.requests_failed == 0, described
            assert server.request_memory.used_bytes < 2_000_000, described
            if client.connection.principal != ANONYMOUS:
                assert str(client.connection.principal) == "User:alice", described
                assert any(token in client.sent for token in client.right_tokens), described
            if number % LOOK_EVERY == 0:
                assert resident_bytes() < at_first + GROWTH_BYTES, described
        client.close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert server.connections_open == 0
        assert server.request_memory.used_bytes == 0
        assert server.authentications_succeeded > inputs // 100
        assert server.authentications_failed > inputs // 100
        assert server.connections_closed_abusive > inputs // 100
    assert not escaped


def test_a_few_thousand_random_sasl_requests_are_answered_or_refused(tmp_path: Path) -> None:
    uvloop.run(fuzz_sasl(tmp_path, seed=1, inputs=5_000))


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(200, 210))
def test_two_hundred_thousand_random_sasl_requests_are_answered_or_refused(
    tmp_path: Path, seed: int
) -> None:
    uvloop.run(fuzz_sasl(tmp_path, seed, inputs=20_000))


# -------------------------------------------------------------------------------------- TLS records


class TlsClient:
    """A TLS client that changes one of its flights: the hello, the end of the handshake, or data
    after it."""

    def __init__(self, context: ssl.SSLContext, rng: random.Random) -> None:
        self._rng = rng
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._changed_flight = rng.choice([0, 0, 0, 1, 2])
        self.sent = b""
        """The changed flight."""

    async def run(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for flight in range(4):
            self._advance(flight)
            data = self._outgoing.read()
            if flight == self._changed_flight:
                data = self.sent = self._changed(data)
            await loop.sock_sendall(sock, data)
            if flight == self._changed_flight:
                break
            received = await loop.sock_recv(sock, 1 << 16)
            if not received:
                return
            self._incoming.write(received)
        sock.shutdown(socket.SHUT_WR)
        while await loop.sock_recv(sock, 1 << 16):
            pass

    def _advance(self, flight: int) -> None:
        with suppress(ssl.SSLError):
            if flight < 2:
                self._tls.do_handshake()
            else:
                self._tls.write(struct.pack(">ihhih", 10, VERSIONS, 0, 1, -1))

    def _changed(self, data: bytes) -> bytes:
        rng = self._rng
        if rng.random() < 0.1:
            return rng.randbytes(rng.choice([1, 5, 100, 5_000]))
        for _ in range(rng.choice([1, 1, 2, 4])):
            data = mutated(rng, data)
        return data


def tls_settings(directory: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """Return the properties of a broker with TLS listeners, and the context of its clients."""
    authority = Authority(directory)
    own = authority.sign("broker", "DNS:localhost")
    store = directory / "broker.pem"
    store.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    context = ssl.create_default_context(cafile=authority.certificate)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    properties = {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener__name__sasl_ssl__plain__sasl__jaas__config": plain_jaas({"alice": PASSWORD}),
        "ssl__keystore__type": "PEM",
        "ssl__keystore__location": str(store),
    }
    return properties, context


async def fuzz_tls(directory: Path, seed: int, inputs: int) -> None:
    escaped: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: escaped.append(context))
    properties, context = tls_settings(directory)
    rng = random.Random(seed)
    done = 0

    async with serving(directory / "data", **properties) as server:
        acceptors = [cast("TlsAcceptor", each) for each in server._servers]
        at_first = resident_bytes()

        async def clients() -> None:
            nonlocal done
            while done < inputs:
                done += 1
                client = TlsClient(context, rng)
                ours, theirs = socket.socketpair()
                for each in (ours, theirs):
                    each.setblocking(False)
                rng.choice(acceptors)._admit(theirs, "192.0.2.1", done)
                task = asyncio.ensure_future(client.run(ours))
                _, unfinished = await asyncio.wait([task], timeout=PATIENCE_S)
                ours.close()
                described = f"seed {seed}: {client.sent[:300].hex()}"
                assert not unfinished, described
                assert isinstance(task.exception(), ConnectionError | None), described
                assert not escaped, described
                assert server.requests_failed == 0, described
                if done % LOOK_EVERY == 0:
                    assert resident_bytes() < at_first + GROWTH_BYTES, described

        await asyncio.gather(*(clients() for _ in range(TLS_CLIENTS)))
        async with asyncio.timeout(PATIENCE_S):
            while server.connections_open:  # noqa: ASYNC110 - the event loop ends them
                await asyncio.sleep(0.01)
        assert server.request_memory.used_bytes == 0
        assert server.authentications_succeeded == 0
        assert server.handshakes_failed > inputs // 2
        assert not server._tasks
    assert not escaped


@needs_openssl
def test_a_few_hundred_random_tls_records_are_refused(tmp_path: Path) -> None:
    uvloop.run(fuzz_tls(tmp_path, seed=1, inputs=500))


@pytest.mark.chaos
@pytest.mark.timeout(900)
@needs_openssl
@pytest.mark.parametrize("seed", range(300, 310))
def test_two_hundred_thousand_random_tls_records_are_refused(tmp_path: Path, seed: int) -> None:
    uvloop.run(fuzz_tls(tmp_path, seed, inputs=20_000))
