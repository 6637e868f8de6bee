"""One connection to a broker: versions, pipelining, timeouts and misbehaving peers."""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.integration.client.fake_broker import KNOWN, FakeBroker, Script, Stream, versions_body

from ottla.base.errors import ErrorCode
from ottla.net.connection import MAX_FRAME_BYTES, RECEIVE_BYTES, Connection
from ottla.net.errors import ClientError, ConnectionLost, KafkaTimeout, UnsupportedVersion
from ottla.testing.broker import BrokerProcess
from ottla.wire import rpc
from ottla.wire.api import Api
from ottla.wire.codec import encode_response

METADATA = rpc.metadata(topics=[])


def run_with(
    broker: FakeBroker, use: Callable[[Connection], Awaitable[object]], timeout_s: float = 5.0
) -> None:
    async def main() -> None:
        connection = await Connection.open("127.0.0.1", broker.port, timeout_s=timeout_s)
        try:
            await use(connection)
        finally:
            connection.close()

    asyncio.run(main())


def opening(script: Script, timeout_s: float = 5.0) -> ClientError:
    """Return the error of opening a connection to a peer that runs this script."""
    with FakeBroker(script) as broker, pytest.raises(ClientError) as failure:
        run_with(broker, lambda connection: asyncio.sleep(0), timeout_s)
    assert f"127.0.0.1:{broker.port}" in str(failure.value)
    return failure.value


# ------------------------------------------------------------------------------------ versions


def test_the_newest_version_that_both_know_is_used(broker: BrokerProcess) -> None:
    async def main() -> None:
        connection = await Connection.open("127.0.0.1", broker.port)
        assert connection.version_of(Api.METADATA) == 13
        assert connection.version_of(Api.METADATA, maximum=5) == 5
        answer = await connection.request(METADATA, 5)
        assert len(answer.brokers) == 1
        connection.close()

    asyncio.run(main())


def test_a_broker_that_does_not_know_our_api_versions_is_asked_in_version_0() -> None:
    def script(stream: Stream) -> None:
        first = stream.receive()
        assert first is not None
        assert first.version == 4
        refusal = versions_body({18: (0, 2)}) | {"error_code": ErrorCode.UNSUPPORTED_VERSION}
        stream.answer(first, version=0, **refusal)
        second = stream.receive()
        assert second is not None
        assert second.version == 0
        stream.answer_versions(second, {3: (0, 5), 18: (0, 2)})
        stream.receive()

    async def use(connection: Connection) -> None:
        assert connection.version_of(Api.METADATA) == 5

    with FakeBroker(script) as broker:
        run_with(broker, use)


def test_a_request_without_a_common_version_is_refused_before_it_is_sent() -> None:
    async def use(connection: Connection) -> None:
        with pytest.raises(UnsupportedVersion, match=r"LIST_GROUPS.*supports 0 to 3"):
            await connection.request(rpc.list_groups(), 5, min_version=4)
        with pytest.raises(UnsupportedVersion, match="does not support it"):
            await connection.request(rpc.describe_cluster(), 5)
        assert connection.is_open

    with FakeBroker(lambda stream: stream.serve({3: (0, 5), 16: (0, 3), 18: (0, 4)})) as broker:
        run_with(broker, use)
    assert [asked.api for asked in broker.asked] == [Api.API_VERSIONS]


def test_the_client_identifies_itself_to_the_broker() -> None:
    async def main(port: int) -> None:
        connection = await Connection.open("127.0.0.1", port, client_id="me")
        connection.close()

    with FakeBroker(lambda stream: stream.serve()) as broker:
        asyncio.run(main(broker.port))
    (asked,) = broker.asked
    assert (asked.client_id, asked.body.client_software_name) == ("me", "ottla")


# ---------------------------------------------------------------------------------- pipelining


def test_requests_go_out_without_waiting_and_answers_find_theirs() -> None:
    def script(stream: Stream) -> None:
        stream.open()
        asked = [stream.receive() for _ in range(5)]
        for number, each in enumerate(asked):
            assert each is not None
            metadata = {**stream.broker.metadata(), "cluster_id": f"cluster {number}"}
            stream.answer(each, **metadata)
        stream.receive()

    async def use(connection: Connection) -> None:
        futures = [connection.send(METADATA, 9, 5) for _ in range(5)]
        assert connection.in_flight == 5
        answers = await asyncio.gather(*futures)
        assert [each.cluster_id for each in answers] == [f"cluster {n}" for n in range(5)]
        assert connection.in_flight == 0

    with FakeBroker(script) as broker:
        run_with(broker, use)


@pytest.mark.parametrize("size", [1, 1000, RECEIVE_BYTES - 4, RECEIVE_BYTES, 5 * RECEIVE_BYTES])
@pytest.mark.parametrize("piece", [1 << 20, 7_001])
def test_answers_of_any_size_arrive_in_pieces_of_any_size(size: int, piece: int) -> None:
    def script(stream: Stream) -> None:
        stream.open()
        data = b""
        for _ in range(3):
            asked = stream.receive()
            assert asked is not None
            body = {**stream.broker.metadata(), "cluster_id": "x" * min(size, 32_000)}
            racks = [
                {"node_id": n, "host": "h", "port": 1, "rack": "r" * 30_000}
                for n in range(size // 30_000)
            ]
            body["brokers"] = racks
            data += b"".join(encode_response(asked.api, asked.version, asked.correlation_id, body))
        for start in range(0, len(data), piece):
            stream.send(data[start : start + piece])
        stream.receive()

    async def use(connection: Connection) -> None:
        futures = [connection.send(METADATA, 9, 5) for _ in range(3)]
        for answer in await asyncio.gather(*futures):
            assert answer.cluster_id == "x" * min(size, 32_000)
            assert len(answer.brokers) == size // 30_000

    with FakeBroker(script) as broker:
        run_with(broker, use)


def test_a_response_that_is_no_longer_awaited_is_dropped() -> None:
    async def use(connection: Connection) -> None:
        given_up = connection.send(METADATA, 9, 5)
        given_up.cancel()
        answer = await connection.request(METADATA, 5)
        assert answer.cluster_id == "fake"

    with FakeBroker(lambda stream: stream.serve()) as broker:
        run_with(broker, use)


# ---------------------------------------------------------------------------------------- time


def test_a_request_not_answered_in_time_closes_the_connection_and_fails_those_behind_it() -> None:
    def script(stream: Stream) -> None:
        stream.open()
        while stream.receive() is not None:
            pass

    async def use(connection: Connection) -> None:
        start = time.monotonic()
        slow = connection.send(METADATA, 9, 0.2)
        behind = connection.send(rpc.list_groups(), 4, 60)
        with pytest.raises(KafkaTimeout, match="did not answer METADATA in time"):
            await slow
        with pytest.raises(KafkaTimeout):
            await behind
        assert 0.15 < time.monotonic() - start < 3
        assert not connection.is_open
        with pytest.raises(KafkaTimeout):
            connection.send(METADATA, 9, 5)

    with FakeBroker(script) as broker:
        run_with(broker, use)


def test_a_short_time_counts_though_a_long_one_was_asked_for_first() -> None:
    def script(stream: Stream) -> None:
        stream.open()
        while stream.receive() is not None:
            pass

    async def use(connection: Connection) -> None:
        connection.send(METADATA, 9, 60)
        start = time.monotonic()
        with pytest.raises(KafkaTimeout, match="LIST_GROUPS"):
            await connection.send(rpc.list_groups(), 4, 0.2)
        assert time.monotonic() - start < 3

    with FakeBroker(script) as broker:
        run_with(broker, use)


def test_a_silent_peer_is_given_up_in_time() -> None:
    start = time.monotonic()
    error = opening(lambda stream: stream.receive() and stream.receive(), timeout_s=0.3)
    assert isinstance(error, KafkaTimeout)
    assert time.monotonic() - start < 3


def test_a_closed_port_and_an_unknown_host_are_named() -> None:
    async def main(host: str, port: int) -> None:
        await Connection.open(host, port, timeout_s=5)

    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1 \(connection refused\)"):
        asyncio.run(main("127.0.0.1", 1))
    with pytest.raises(ConnectionLost, match=r"cannot connect to nobody\.invalid:9092"):
        asyncio.run(main("nobody.invalid", 9092))


# ------------------------------------------------------------------ peers that are not brokers


def test_a_web_server_is_no_broker() -> None:
    def script(stream: Stream) -> None:
        stream.socket.recv(1000)
        stream.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        stream.socket.recv(1)

    error = opening(script)
    assert isinstance(error, ConnectionLost)
    assert "did not send a Kafka response" in str(error)


def test_a_tls_alert_reserves_no_memory() -> None:
    def script(stream: Stream) -> None:
        stream.socket.recv(1000)
        stream.send(b"\x15\x03\x03\x00\x02\x02\x46")  # read as a frame size: 352 million bytes
        stream.socket.recv(1)

    error = opening(script)
    assert isinstance(error, ConnectionLost)
    assert "it uses TLS, set security.protocol to SSL or SASL_SSL" in str(error)


@pytest.mark.parametrize("size", [-1, 0, 3, MAX_FRAME_BYTES + 1, 2**31 - 1, -(2**31)])
def test_sizes_that_no_answer_has_close_the_connection(size: int) -> None:
    def script(stream: Stream) -> None:
        stream.open()
        stream.receive()
        stream.send(struct.pack(">i", size))
        stream.socket.recv(1)

    async def use(connection: Connection) -> None:
        with pytest.raises(ConnectionLost, match=f"invalid frame size of {size} bytes"):
            await connection.request(METADATA, 5)
        assert not connection.is_open

    with FakeBroker(script) as broker:
        run_with(broker, use)


def of_versions(correlation_id: int, rest: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(rest), correlation_id) + rest


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(of_versions(0, b""), id="empty"),
        pytest.param(of_versions(0, b"\0"), id="one byte"),
        pytest.param(of_versions(0, b"\0\0\xff\xff\xff\xff\x0f"), id="two thousand million APIs"),
        pytest.param(of_versions(9, b"\0\0\1\0\0\0\0\0"), id="to another request"),
        pytest.param(of_versions(0, b"\0\x23\x7f\xff\xff\xff"), id="refusal of many APIs"),
    ],
)
def test_an_answer_that_cannot_be_read_closes_the_connection(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def script(stream: Stream) -> None:
        stream.receive()
        stream.send(answer)
        stream.socket.recv(1)

    with caplog.at_level(logging.ERROR):
        assert "did not send a Kafka response" in str(opening(script))
    assert not caplog.records, "nothing was left to the event loop to complain of"


def test_half_an_answer_is_no_answer() -> None:
    def script(stream: Stream) -> None:
        stream.open()
        asked = stream.receive()
        assert asked is not None
        whole = encode_response(
            asked.api, asked.version, asked.correlation_id, stream.broker.metadata()
        )
        stream.send(b"".join(whole)[:-3])

    async def use(connection: Connection) -> None:
        with pytest.raises(ConnectionLost, match="closed the connection"):
            await connection.request(METADATA, 5)

    with FakeBroker(script) as broker:
        run_with(broker, use)


def test_an_answer_to_no_request_closes_the_connection() -> None:
    sent = threading.Event()

    def script(stream: Stream) -> None:
        stream.open()
        stream.send(struct.pack(">ii", 4, 99))
        sent.set()
        stream.socket.recv(1)

    async def use(connection: Connection) -> None:
        while connection.is_open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLost, match="a response without a request"):
            connection.send(METADATA, 9, 5)

    with FakeBroker(script) as broker:
        run_with(broker, use)
    assert sent.is_set()


def test_a_broker_that_goes_away_fails_what_was_asked() -> None:
    def script(stream: Stream) -> None:
        stream.open()
        stream.receive()

    async def use(connection: Connection) -> None:
        futures = [connection.send(METADATA, 9, 60) for _ in range(3)]
        for future in futures:
            with pytest.raises(ConnectionLost):
                await future

    with FakeBroker(script) as broker:
        run_with(broker, use)


def test_versions_that_are_refused_are_a_failure() -> None:
    def script(stream: Stream) -> None:
        asked = stream.receive()
        assert asked is not None
        stream.answer(asked, **(versions_body(KNOWN) | {"error_code": 42}))
        stream.receive()

    assert "rejected ApiVersions" in str(opening(script))


def test_requests_time_out_on_every_loop() -> None:
    """On uvloop, the handle of a callback that is due at once has no due time."""
    uvloop = pytest.importorskip("uvloop")

    async def main(port: int) -> None:
        connection = await Connection.open("127.0.0.1", port, timeout_s=5.0)
        answers = [connection.send(METADATA, 12, 0.0) for _ in range(2)]
        for answer in answers:
            with pytest.raises(KafkaTimeout):
                await answer

    def never_answers(stream: Stream) -> None:
        stream.open()
        while stream.receive() is not None:
            pass

    with FakeBroker(never_answers) as broker:
        uvloop.run(main(broker.port))
