"""Implementation of `kafka-console-producer`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from ottla.base.config.properties import load_properties
from ottla.base.errors import UserError
from ottla.cli import colour
from ottla.cli.connection_options import CALL_TIMEOUT_MS, ClusterOptions
from ottla.cli.failure import sentence
from ottla.cli.interruption import INTERRUPTED
from ottla.cli.line_reader import LineReader, LineRecord
from ottla.cli.property_options import client_properties, key_values
from ottla.client.errors import ClientError, RecordTooLarge
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.producer import Producer

PROMPT = ">"
DEFAULTS = {"client.id": "console-producer", "max.block.ms": CALL_TIMEOUT_MS}
LINE_READERS = (
    "org.apache.kafka.tools.LineMessageReader",
    "kafka.tools.ConsoleProducer$LineMessageReader",
)


def produce_lines(
    cluster: ClusterOptions,
    topic: str,
    *,
    sync: bool,
    reader_properties: tuple[str, ...],
    reader_config: str | None,
    client_texts: tuple[str, ...],
    line_reader: str | None,
    **options: Any,
) -> int:
    """Run the producer with the options of the command line, and return the exit code."""
    if line_reader is not None and line_reader not in LINE_READERS:
        raise UserError(
            f"Unknown --line-reader {line_reader}: Ottla cannot load Java classes. Leave the "
            f"option out to use {LINE_READERS[0]}."
        )
    from_file = load_properties(reader_config) if reader_config is not None else {}
    reader = LineReader({**from_file, **key_values(reader_properties, "--reader-property")})
    properties = _properties(cluster, client_texts, **options)
    # --bootstrap-server overrides bootstrap.servers in the file.
    with Producer(cluster.bootstrap, profile=properties) as producer:
        return _Sender(producer, topic, is_sync=sync).send_all(reader)


def _properties(
    cluster: ClusterOptions,
    client_texts: tuple[str, ...],
    *,
    compression_codec: str | None,
    request_required_acks: str | None,
    batch_size: int | None,
    max_partition_memory_bytes: int | None,
    timeout: int | None,
    request_timeout_ms: int | None,
    message_send_max_retries: int | None,
    retry_backoff_ms: int | None,
    max_block_ms: int | None,
    max_memory_bytes: int | None,
    metadata_expiry_ms: int | None,
    socket_buffer_size: int | None,
) -> dict[str, str]:
    options = {
        "compression.type": compression_codec,
        "acks": request_required_acks,
        "batch.size": batch_size
        if max_partition_memory_bytes is None
        else max_partition_memory_bytes,
        "linger.ms": timeout,
        "request.timeout.ms": request_timeout_ms,
        "retries": message_send_max_retries,
        "retry.backoff.ms": retry_backoff_ms,
        "max.block.ms": max_block_ms,
        "buffer.memory": max_memory_bytes,
        "metadata.max.age.ms": metadata_expiry_ms,
    }
    return client_properties(cluster, client_texts, options, DEFAULTS)


class _Sender:
    def __init__(self, producer: Producer, topic: str, *, is_sync: bool) -> None:
        self._producer = producer
        self._topic = topic
        self._is_sync = is_sync
        self._has_failed = False

    def send_all(self, reader: LineReader) -> int:
        try:
            for record in reader.records(_lines()):
                self._send(record)
            self._producer.flush()
        except KeyboardInterrupt:
            # Closing the producer sends the records read so far.
            return INTERRUPTED
        return 1 if self._has_failed else 0

    def _send(self, record: LineRecord) -> None:
        try:
            future = self._producer.send(
                self._topic, record.value, key=record.key, headers=record.headers
            )
        except RecordTooLarge as error:
            self._failed(record, error)
            return
        if self._is_sync:
            self._completed(record, future)
        else:
            future.add_done_callback(lambda done: self._completed(record, done))

    def _completed(self, record: LineRecord, future: RecordFuture) -> None:
        error = future.exception()
        if error is not None:
            self._failed(record, error)

    def _failed(self, record: LineRecord, error: BaseException) -> None:
        if not isinstance(error, ClientError):
            raise error
        self._has_failed = True
        colour.echo(
            f"Error when sending message to topic {self._topic} with key: {_size(record.key)}, "
            f"value: {_size(record.value)} with error: {sentence(error)}",
            "red",
        )


def _lines() -> Iterator[bytes]:
    """Yield lines of standard input as they arrive, with a prompt if it is a terminal."""
    is_prompting = sys.stdin.isatty() and sys.stdout.isatty()
    read_line = sys.stdin.buffer.readline
    while True:
        if is_prompting:
            click.echo(PROMPT, nl=False)
        line = read_line()
        if not line:
            return
        yield line


def _size(field: bytes | None) -> str:
    return "null" if field is None else f"{len(field)} bytes"
