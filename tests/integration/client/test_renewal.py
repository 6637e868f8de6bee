"""Clients that authenticate again before their session ends (KIP-368)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.integration.client.fake_broker import Asked, FakeBroker, Stream

from ottla.base.errors import ErrorCode
from ottla.net import connection as connection_module
from ottla.net.connection import Connection
from ottla.net.errors import AuthenticationFailed, ConnectionLost
from ottla.net.sasl import Plain, authenticator
from ottla.wire import rpc
from ottla.wire.api import Api

METADATA = rpc.metadata(topics=[])
LONG_MS = 3_600_000


class Sessions:
    """A script that grants sessions, and fails for a request that a broker would not accept."""

    def __init__(self, *lifetimes_ms: int) -> None:
        self._lifetimes_ms = list(lifetimes_ms)
        self.served: list[int] = []
        """APIs of the requests, without ApiVersions."""
        self.refuses_after = 1_000
        """Number of authentications that are accepted."""
        self.hangs = False
        """Whether authentications after the first one are not answered."""

    def __call__(self, stream: Stream) -> None:
        stream.open()
        is_open = True
        while is_open and (asked := stream.receive()) is not None:
            is_open = self._answer(stream, asked)

    def _answer(self, stream: Stream, asked: Asked) -> bool:
        is_authenticating = self.served[-1:] == [Api.SASL_HANDSHAKE]
        assert is_authenticating == (asked.api == Api.SASL_AUTHENTICATE)
        self.served.append(asked.api)
        if asked.api == Api.SASL_HANDSHAKE:
            stream.answer(asked, error_code=0, mechanisms=["PLAIN"])
        elif asked.api == Api.SASL_AUTHENTICATE:
            count = self.served.count(Api.SASL_AUTHENTICATE)
            if count > 1 and self.hangs:
                return stream.receive() is not None
            code = 0 if count <= self.refuses_after else ErrorCode.SASL_AUTHENTICATION_FAILED
            lifetime_ms = self._lifetimes_ms.pop(0) if self._lifetimes_ms else LONG_MS
            stream.answer(asked, error_code=code, auth_bytes=b"", session_lifetime_ms=lifetime_ms)
        elif asked.api == Api.METADATA:
            stream.answer(asked, **stream.broker.metadata())
        return True


def run_with(script: Sessions, use: Callable[[Connection], Awaitable[None]]) -> None:
    async def main(port: int) -> None:
        connection = await Connection.open(
            "127.0.0.1", port, authenticate=authenticator(Plain("alice", "secret"), 5.0)
        )
        try:
            await use(connection)
        finally:
            connection.close()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with FakeBroker(script) as broker:
        asyncio.run(main(broker.port))


@pytest.fixture(autouse=True)
def _renew_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MIN_RENEWAL_INTERVAL_S", 0.0)


async def metadata(connection: Connection) -> Any:
    return await connection.request(METADATA, 5.0)


async def until_due(connection: Connection) -> None:
    """Wait until the session must be renewed."""
    async with asyncio.timeout(5.0):
        while connection._loop.time() < connection._renew_at:  # noqa: ASYNC110 time passes
            await asyncio.sleep(0.001)


def test_the_first_request_after_most_of_the_lifetime_waits_for_a_new_session() -> None:
    script = Sessions(1)

    async def use(connection: Connection) -> None:
        await until_due(connection)
        assert script.served == [Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE]
        assert len((await metadata(connection)).brokers) == 1
        await metadata(connection)

    run_with(script, use)
    session = [Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE]
    assert script.served == [*session, *session, Api.METADATA, Api.METADATA]


def test_a_session_without_a_limit_is_never_renewed() -> None:
    script = Sessions(0)

    async def use(connection: Connection) -> None:
        for _ in range(3):
            await metadata(connection)

    run_with(script, use)
    assert script.served.count(Api.SASL_HANDSHAKE) == 1


def test_no_request_is_lost_while_sessions_are_renewed_all_the_time() -> None:
    script = Sessions(*[1] * 1_000)
    requests = 200

    async def use(connection: Connection) -> None:
        pending = []
        for number in range(requests):
            pending.append(asyncio.ensure_future(metadata(connection)))
            if number % 7 == 0:
                await asyncio.sleep(0.001)
        for answer in await asyncio.gather(*pending):
            assert len(answer.brokers) == 1
        assert connection.in_flight == 0

    run_with(script, use)
    assert script.served.count(Api.METADATA) == requests
    assert script.served.count(Api.SASL_AUTHENTICATE) > 2


def test_requests_without_a_response_keep_their_place() -> None:
    script = Sessions(1)
    heartbeat = rpc.heartbeat(group_id="g", generation_id=1, member_id="m")

    async def use(connection: Connection) -> None:
        await until_due(connection)
        before = connection.send(METADATA, 12, 5.0)
        connection.send_without_response(heartbeat, 4)
        after = connection.send(METADATA, 12, 5.0)
        assert connection.in_flight == 2
        await asyncio.gather(before, after)

    run_with(script, use)
    assert script.served[4:] == [Api.METADATA, Api.HEARTBEAT, Api.METADATA]


def test_requests_before_the_renewal_get_their_responses_first() -> None:
    script = Sessions(LONG_MS)

    async def use(connection: Connection) -> None:
        first = connection.send(METADATA, 12, 5.0)
        connection._renew_at = 0.0
        second = connection.send(METADATA, 12, 5.0)
        assert len((await first).brokers) == 1
        assert not second.done()
        await second

    run_with(script, use)
    session = [Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE]
    assert script.served == [*session, Api.METADATA, *session, Api.METADATA]


def test_a_refused_renewal_fails_the_requests_that_wait() -> None:
    script = Sessions(1)
    script.refuses_after = 1

    async def use(connection: Connection) -> None:
        await until_due(connection)
        with pytest.raises(AuthenticationFailed, match="rejected the credentials"):
            await metadata(connection)
        assert not connection.is_open

    run_with(script, use)
    assert Api.METADATA not in script.served


def test_a_refusal_that_arrives_with_the_end_of_the_connection_is_reported() -> None:
    script = Sessions(1)
    script.refuses_after = 1

    async def use(connection: Connection) -> None:
        receive = connection.buffer_updated

        def receive_with_end(count: int) -> None:
            receive(count)
            if script.served.count(Api.SASL_AUTHENTICATE) == 2:
                connection.eof_received()

        connection.buffer_updated = receive_with_end  # type: ignore[method-assign]
        await until_due(connection)
        with pytest.raises(AuthenticationFailed, match="rejected the credentials"):
            await metadata(connection)

    run_with(script, use)


@pytest.mark.parametrize("is_ended_by_client", [True, False])
def test_a_connection_that_ends_during_a_renewal_fails_the_requests_that_wait(
    is_ended_by_client: bool,
) -> None:
    script = Sessions(1)
    script.hangs = True

    async def use(connection: Connection) -> None:
        await until_due(connection)
        request = asyncio.ensure_future(metadata(connection))
        async with asyncio.timeout(5.0):
            while script.served.count(Api.SASL_AUTHENTICATE) < 2:  # noqa: ASYNC110 another thread
                await asyncio.sleep(0.001)
        if is_ended_by_client:
            connection.close()
        else:
            connection.connection_lost(None)
        with pytest.raises(ConnectionLost):
            await request

    run_with(script, use)


def test_a_renewal_that_takes_too_long_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "RENEWAL_TIMEOUT_S", 0.05)
    script = Sessions(1)
    script.hangs = True

    async def use(connection: Connection) -> None:
        await until_due(connection)
        with pytest.raises(TimeoutError, match="did not authenticate the client again in time"):
            await metadata(connection)

    run_with(script, use)


def test_requests_that_wait_count_as_unsent_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_HELD_BYTES", 100)
    script = Sessions(1)

    async def use(connection: Connection) -> None:
        await until_due(connection)
        waiting = []
        while connection.can_write:
            assert len(waiting) < 100
            waiting.append(connection.send(METADATA, 12, 5.0))
        await asyncio.gather(*waiting)
        assert connection.can_write

    run_with(script, use)
