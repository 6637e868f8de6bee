"""Tests that Produce requests of a known shape skip decoding, except with acks=0."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from ottla.broker import connection
from ottla.core.controller.create_topics import NewTopic
from ottla.testing.broker import EmbeddedBroker
from ottla.wire import codec
from ottla.wire.records.builder import build_batch


@pytest.mark.parametrize(("acks", "decoded"), [(1, 1), (-1, 1), (0, 3)])
def test_a_request_of_a_known_shape_is_not_decoded_again(
    monkeypatch: pytest.MonkeyPatch, acks: int, decoded: int
) -> None:
    calls = 0
    decode = connection.decode

    def counting(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return decode(*arguments)

    monkeypatch.setattr(connection, "decode", counting)

    async def run() -> int:
        async with EmbeddedBroker() as embedded:
            await embedded.broker.controller.create_topics([NewTopic("t")])
            reader, writer = await asyncio.open_connection("127.0.0.1", embedded.port)
            for number in range(3):
                data = {"index": 0, "records": build_batch([(None, b"v", (), 0)])}
                topics = [{"name": "t", "partition_data": [data]}]
                body = {"acks": acks, "timeout_ms": 1_000, "topic_data": topics}
                writer.write(b"".join(codec.encode_request(0, 9, number, "c", body)))
                if acks:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    answer = memoryview(await reader.readexactly(size))
                    correlation_id, response = codec.decode_response(0, 9, answer)
                    (partition_response,) = response.responses[0].partition_responses
                    assert (
                        correlation_id,
                        partition_response.error_code,
                        partition_response.base_offset,
                    ) == (
                        number,
                        0,
                        number,
                    )
            partition = embedded.broker.partitions["t", 0]
            while partition.log.log_end_offset < 3:  # noqa: ASYNC110  (acks=0 has no response)
                await asyncio.sleep(0)
            writer.close()
            return calls

    assert asyncio.run(run()) == decoded
