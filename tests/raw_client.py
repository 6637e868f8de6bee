"""A blocking client at the level of single requests: one socket, any API in any version.

Every response is parsed twice, by Ottla's codec and by kio, and both must find its end, unless the
client is created without kio: that does not read a negative timestamp, which Apache Kafka sends. A
call returns the value from Ottla's codec; field names are those of the schema."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

from kio.serial import entity_reader

from ottla.wire import codec, schema
from ottla.wire.api import Api as Api
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.builder import RecordFields, build_batch
from ottla.wire.records.record import BatchRecord, iter_records

TIMEOUT_S = 20.0
POLL_S = 0.01
T = TypeVar("T")


class ConnectionClosed(Exception):
    """The broker closed the connection."""


class RawClient:
    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        client_id: str = "raw",
        *,
        reads_with_kio: bool = True,
    ) -> None:
        self._socket = socket.create_connection((host, port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._next_id = 1
        self._reads_with_kio = reads_with_kio

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------------------- the protocol

    def call(self, api: int, version: int | None = None, **body: Any) -> Any:
        """Send a request, in the newest version by default, and return the response."""
        version = newest(api) if version is None else version
        correlation_id = self.send(api, version, **body)
        return self.receive(api, version, correlation_id)

    def send(self, api: int, version: int, **body: Any) -> int:
        correlation_id, self._next_id = self._next_id, self._next_id + 1
        pieces = codec.encode_request(api, version, correlation_id, self._client_id, body)
        self._socket.sendall(b"".join(pieces))
        return correlation_id

    def receive(self, api: int, version: int, correlation_id: int) -> Any:
        frame = self.receive_frame()
        answered, message = codec.decode_response(api, version, memoryview(frame))
        assert answered == correlation_id
        if self._reads_with_kio:
            assert_kio_reads(api, version, frame)
        return message

    def send_frame(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def assert_is_closed(self) -> None:
        """Assert that the broker closes the connection without sending anything more."""
        assert self._socket.recv(1) == b""

    def assert_is_silent(self) -> None:
        """Assert that no response has arrived and that the connection still serves requests."""
        version = newest(Api.API_VERSIONS)
        software = {"client_software_name": "raw", "client_software_version": "1"}
        self.call(Api.API_VERSIONS, version, **software)

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionClosed
            data += part
        return bytes(data)

    # ------------------------------------------------------------------------ common requests

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic and return its ID. Configs are written with underscores for dots."""
        answer = self.call(
            Api.CREATE_TOPICS,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [
                        {"name": key.replace("_", "."), "value": value}
                        for key, value in configs.items()
                    ],
                }
            ],
            timeout_ms=10_000,
        )
        (topic,) = answer.topics
        assert topic.error_code == 0, topic
        topic_id: bytes = topic.topic_id
        return topic_id

    def delete_topic(self, name: str) -> int:
        answer = self.call(Api.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=10_000)
        code: int = answer.responses[0].error_code
        return code

    def alter_topic(self, name: str, **configs: str) -> None:
        self.alter(2, name, **configs)

    def alter(self, resource_type: int, name: str, **configs: str) -> None:
        """Set configs of a topic (2) or broker (4)."""
        answer = self.call(
            Api.INCREMENTAL_ALTER_CONFIGS,
            resources=[
                {
                    "resource_type": resource_type,
                    "resource_name": name,
                    "configs": [
                        {"name": key.replace("_", "."), "config_operation": 0, "value": value}
                        for key, value in configs.items()
                    ],
                }
            ],
        )
        assert answer.responses[0].error_code == 0, answer

    def produce(
        self,
        topic: str,
        records: bytes | Sequence[RecordFields] | None,
        partition: int = 0,
        acks: int = -1,
        version: int = 12,
        **batch: Any,
    ) -> Any:
        """Produce to one partition and return its part of the response.

        `records` is a whole batch, or the records to build one from."""
        if records is not None and not isinstance(records, bytes | bytearray):
            records = build_batch(records, **batch)
        answer = self.call(
            Api.PRODUCE, version, **produce_body({topic: {partition: records}}, acks)
        )
        return answer.responses[0].partition_responses[0]

    def fetch(
        self,
        topic: str,
        offset: int = 0,
        partition: int = 0,
        *,
        version: int = 12,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 26,
        partition_max_bytes: int = 1 << 26,
        **more: Any,
    ) -> Any:
        """Fetch from one partition, without a session, and return its part of the response."""
        asked = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": partition_max_bytes,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            **more,
        }
        answer = self.call(
            Api.FETCH,
            version,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_epoch=-1,
            topics=[{"topic": topic, "partitions": [asked]}],
        )
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def records(self, topic: str, offset: int = 0, partition: int = 0) -> list[BatchRecord]:
        """Return every record from `offset` to the end."""
        found: list[BatchRecord] = []
        while True:
            answer = self.fetch(topic, offset, partition)
            assert answer.error_code == 0, answer
            batch = read_batches(answer.records)
            if not batch:
                return found
            found += [record for record in batch if record.offset >= offset]
            offset = batch[-1].offset + 1

    def list_offset(self, topic: str, timestamp: int, partition: int = 0, **more: Any) -> Any:
        asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        version = more.pop("version", None)
        answer = self.call(
            Api.LIST_OFFSETS,
            version,
            replica_id=-1,
            topics=[{"name": topic, "partitions": [{**asked, **more}]}],
        )
        return answer.topics[0].partitions[0]

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return the log start offset and the end offset."""
        return (
            self.list_offset(topic, -2, partition).offset,
            self.list_offset(topic, -1, partition).offset,
        )

    def new_producer(self) -> int:
        answer = self.call(Api.INIT_PRODUCER_ID, transactional_id=None, producer_id=-1,
                           producer_epoch=-1)  # fmt: skip
        assert answer.error_code == 0
        producer_id: int = answer.producer_id
        return producer_id


def newest(api: int) -> int:
    return schema.versions(api)[-1]


def produce_body(
    topics: dict[Any, dict[int, bytes | None]], acks: int = -1, timeout_ms: int = 10_000
) -> dict[str, Any]:
    """Return the body of a Produce request. Topics are names, or IDs of 16 bytes."""
    return {
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [
            {
                "topic_id" if isinstance(topic, bytes) else "name": topic,
                "partition_data": [
                    {"index": index, "records": records} for index, records in partitions.items()
                ],
            }
            for topic, partitions in topics.items()
        ],
    }


def read_batches(records: Any) -> list[BatchRecord]:
    data = bytes(records or b"")
    return [record for header in iter_headers(data) for record in iter_records(data, header)]


def values(records: Iterable[BatchRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def assert_kio_reads(api: int, version: int, frame: bytes) -> None:
    start = 5 if schema.header_version(api, version, "response") == 1 else 4
    _, size = _kio_reader(api, version)(frame[start:], 0)
    assert start + size == len(frame)


@cache
def _kio_reader(api: int, version: int) -> Any:
    return entity_reader(schema._message_class(api, version, "response"))


def eventually(
    look: Callable[[], T], holds: Callable[[T], bool] = bool, timeout_s: float = TIMEOUT_S
) -> T:
    """Call `look` until its result holds, and return it; a failure shows the last result."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = look()
        if holds(seen):
            return seen
        assert time.monotonic() < deadline, f"not in {timeout_s} s; last seen: {seen!r}"
        time.sleep(POLL_S)
