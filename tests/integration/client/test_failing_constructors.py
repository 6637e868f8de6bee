"""A client whose constructor or `start` fails leaves no task, thread or socket behind."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.integration.client.fake_broker import FakeBroker, Stream

from ottla import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.client.blocking import LoopThread
from ottla.testing.broker import BrokerProcess
from ottla.wire.api import Api

DESCRIPTORS = Path("/proc/self/fd")
PATIENCE_S = 20.0
SOON_MS = 200
LATER_MS = 2_000
"""Enough for a thread on a busy machine to read the system's certificates, and a handshake."""
BLOCKING: dict[str, Callable[..., Any]] = {
    "producer": Producer, "consumer": Consumer, "admin": Admin,
}  # fmt: skip
ASYNC: dict[str, Callable[..., Any]] = {
    "producer": AsyncProducer, "consumer": AsyncConsumer, "admin": AsyncAdmin,
}  # fmt: skip


class Failure(NamedTuple):
    broker: Callable[[], AbstractContextManager[str]]
    options: dict[str, Any]
    message: str
    clients: tuple[str, ...] = ("producer", "consumer", "admin")
    timeout_ms: int = SOON_MS


def fake(script: Callable[[Stream], object]) -> Callable[[], AbstractContextManager[str]]:
    @contextmanager
    def started() -> Iterator[str]:
        with FakeBroker(script) as broker:
            yield broker.bootstrap

    return started


@contextmanager
def closed_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield f"127.0.0.1:{port}"


def close_at_once(stream: Stream) -> None:
    pass


def never_answer(stream: Stream) -> None:
    while stream.receive() is not None:
        pass


def answer_versions_only(stream: Stream) -> None:
    stream.open()
    never_answer(stream)


def speak_plainly(stream: Stream) -> None:
    stream.send(b"no TLS here")


def refuse_the_password(stream: Stream) -> None:
    stream.open()
    asked = stream.receive()
    assert asked is not None
    assert asked.api == Api.SASL_HANDSHAKE
    stream.answer(asked, error_code=0, mechanisms=["PLAIN"])
    asked = stream.receive()
    assert asked is not None
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    stream.answer(asked, error_code=code, error_message="bad password", auth_bytes=b"")


PLAIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_username": "alice",
    "sasl_password": "guess",
}
UNREAD = {"security_protocol": "SSL", "ssl_ca_location": "/nowhere/ca.pem"}
FAILURES = {
    "an unknown property": Failure(closed_port, {"linger_msec": 5}, "linger"),
    "a wrong value": Failure(closed_port, {"request_timeout_ms": "soon"}, "request.timeout.ms"),
    "a wrong address": Failure(lambda: nullcontext("nowhere"), {}, "host:port"),
    "a wrong serialiser": Failure(closed_port, {"key_serializer": 5}, "5", ("producer",)),
    "a wrong deserialiser": Failure(closed_port, {"key_deserializer": 5}, "5", ("consumer",)),
    "topics without a group": Failure(closed_port, {"topics": "x"}, "set group_id", ("consumer",)),
    "topics of a wrong type": Failure(
        closed_port, {"topics": 5, "group_id": "g"}, "not 5", ("consumer",)
    ),
    "a file that is not there": Failure(closed_port, UNREAD, "/nowhere/ca.pem"),
    "nobody listens": Failure(closed_port, {}, "connection refused"),
    "the connection is closed at once": Failure(fake(close_at_once), {}, "closed the connection"),
    "no answer": Failure(fake(never_answer), {}, "did not answer"),
    "no answer to Metadata": Failure(fake(answer_versions_only), {}, "did not answer"),
    "TLS where there is none": Failure(
        fake(speak_plainly), {"security_protocol": "SSL"}, "TLS", timeout_ms=LATER_MS
    ),
    "a wrong password": Failure(fake(refuse_the_password), PLAIN, "bad password"),
}
CASES = [
    pytest.param(kind, failure, id=f"{kind}-{name}")
    for name, failure in FAILURES.items()
    for kind in failure.clients
]


@pytest.fixture(scope="module", autouse=True)
def what_the_first_loop_opens_for_all() -> None:
    """Start a uvloop loop once: the first one opens a pipe for signals and keeps it."""
    LoopThread("first").close()


def with_short_timeouts(
    kind: str, options: dict[str, Any], timeout_ms: int = SOON_MS
) -> dict[str, Any]:
    timeout = "max_block_ms" if kind == "producer" else "default_api_timeout_ms"
    return {timeout: timeout_ms, **options}


def held() -> tuple[set[str], int]:
    """Return the names of the threads, and the number of open files and sockets."""
    open_files = len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.exists() else 0
    names = {thread.name for thread in threading.enumerate()}
    return {name for name in names if name.startswith(("ottla-", "asyncio"))}, open_files


@contextmanager
def nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that everything opened in the block is soon closed, without asyncio warnings."""
    before = held()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        gc.collect()  # asyncio complains about tasks and transports when they are collected
        deadline = time.monotonic() + PATIENCE_S
        while held() != before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert held() == before
    assert [str(each.message) for each in warned if each.category is ResourceWarning] == []
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


@pytest.mark.parametrize(("kind", "failure"), CASES)
def test_a_blocking_client_that_fails_leaves_nothing_behind(
    kind: str, failure: Failure, caplog: pytest.LogCaptureFixture
) -> None:
    with failure.broker() as bootstrap, nothing_left(caplog):
        options = with_short_timeouts(kind, failure.options, failure.timeout_ms)
        with pytest.raises((UserError, KafkaError)) as raised:
            BLOCKING[kind](bootstrap, **options)
        assert failure.message in str(raised.value)
        del raised


@pytest.mark.parametrize(("kind", "failure"), CASES)
def test_an_asyncio_client_that_fails_leaves_nothing_behind(
    kind: str, failure: Failure, caplog: pytest.LogCaptureFixture
) -> None:
    async def begin(bootstrap: str) -> None:
        options = with_short_timeouts(kind, failure.options, failure.timeout_ms)
        client = ASYNC[kind](bootstrap, **options)
        await client.start()  # not `async with`, which could still close it

    async def fail(bootstrap: str) -> None:
        with pytest.raises((UserError, KafkaError)) as raised:
            await begin(bootstrap)
        assert failure.message in str(raised.value)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with failure.broker() as bootstrap, nothing_left(caplog):
        asyncio.run(fail(bootstrap))


def test_a_transactional_producer_that_is_refused_leaves_nothing_behind(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"transactional_id": "refused", "transaction_timeout_ms": 2**31 - 1}

    async def fail() -> None:
        with pytest.raises(KafkaError):
            await AsyncProducer(broker.bootstrap, **options).start()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with nothing_left(caplog):
        asyncio.run(fail())
        with pytest.raises(KafkaError):
            Producer(broker.bootstrap, **options)


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_start_that_is_cancelled_leaves_nothing_behind(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_connected = threading.Event()

    def connected(stream: Stream) -> None:
        is_connected.set()
        never_answer(stream)

    async def cancel(bootstrap: str) -> None:
        starting = asyncio.ensure_future(ASYNC[kind](bootstrap).start())
        assert await asyncio.to_thread(is_connected.wait, PATIENCE_S)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with FakeBroker(connected) as fake_broker, nothing_left(caplog):
        asyncio.run(cancel(fake_broker.bootstrap))


def test_a_client_can_be_started_again_when_the_broker_is_there() -> None:
    async def retry(client: Any) -> None:
        with pytest.raises(KafkaError):
            await client.start()
        with FakeBroker(lambda stream: stream.serve()) as there:
            client.config.bootstrap_servers[:] = [there.bootstrap]
            await client.start()
            await client.close()

    for kind in ASYNC:
        with closed_port() as nobody:
            asyncio.run(retry(ASYNC[kind](nobody, **with_short_timeouts(kind, {}))))


def test_the_descriptors_are_counted_where_the_system_shows_them() -> None:
    names, before = held()
    with socket.socket():
        assert held() == (names, before + 1) or not os.path.isdir(DESCRIPTORS)
