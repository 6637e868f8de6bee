"""Implementation of `kafka-console-consumer`.

Only printed records are committed. If Ctrl-C arrives before a polled record is printed, the next
run of the group prints that record."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from ottla.base.config.properties import load_properties
from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.cli import colour
from ottla.cli.connection_options import CALL_TIMEOUT_MS, ClusterOptions
from ottla.cli.interruption import (
    INTERRUPTED,
    TERMINATED,
    OutputWatch,
    Terminated,
    termination_as_exit,
)
from ottla.cli.message_formatters import Formatter, JsonFormatter, find_formatter
from ottla.cli.property_options import client_properties, key_values
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.record import Record

POLL_S = 0.1
"""Maximum duration of a poll, and thus the time to detect a closed pipe."""
MAX_POLL_RECORDS = 500
_GROUPS = 100_000


@dataclass(frozen=True)
class StartPosition:
    """Topics or partition to read, and the position to start at."""

    topic: str | None
    include: str | None
    partition: int | None
    offset: int | str
    """Offset to start at, or "earliest" or "latest"."""


def consume_to_output(
    cluster: ClusterOptions,
    *,
    topic: str | None,
    include: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str | None,
    client_texts: tuple[str, ...],
    skip_message_on_error: bool,
    enable_systest_events: bool,
    **formatting: Any,
) -> int:
    """Run the consumer with the options of the command line, and return the exit code."""
    where = _parse_start_position(topic, include, partition, offset, from_beginning)
    formatter = _formatter(**formatting)
    properties = client_properties(
        cluster,
        client_texts,
        {"isolation.level": isolation_level},
        {"client.id": "console-consumer", "default.api.timeout.ms": CALL_TIMEOUT_MS},
    )
    _set_group(properties, group, where)
    _set_reset(properties, from_beginning)
    printer = _Printer(formatter, skips_errors=skip_message_on_error)
    code = 0
    try:
        with termination_as_exit():
            _consume(cluster, properties, where, printer, max_messages, timeout_ms)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Terminated:
        code = TERMINATED
    finally:
        if printer.has_begun:
            click.echo(f"Processed a total of {printer.count} messages", err=True)
    if enable_systest_events:
        click.echo("shutdown_complete")
    return code


def _consume(
    cluster: ClusterOptions,
    properties: Mapping[str, str],
    where: StartPosition,
    printer: _Printer,
    max_messages: int | None,
    timeout_ms: int | None,
) -> None:
    with Consumer(cluster.bootstrap, profile=properties) as consumer:
        printer.has_begun = True
        _start(consumer, where)
        watch = OutputWatch()
        last = time.monotonic()
        while True:
            watch.check()
            left = _max_poll_records(max_messages, printer.count)
            if left <= 0:
                return
            records = _poll(consumer, left, timeout_ms, last)
            if records:
                printer.print(records)
                last = time.monotonic()
            elif timeout_ms is not None and time.monotonic() - last > timeout_ms / 1000:
                return


def _max_poll_records(max_messages: int | None, count: int) -> int:
    """Return the maximum number of records to poll.

    Polling more records than are printed would commit offsets of unprinted records."""
    if max_messages is None or max_messages < 0:
        return MAX_POLL_RECORDS
    return min(max_messages - count, MAX_POLL_RECORDS)


def _poll(consumer: Consumer, left: int, timeout_ms: int | None, last: float) -> list[Record]:
    wait_s = POLL_S
    if timeout_ms is not None:
        wait_s = max(0.0, min(wait_s, last + timeout_ms / 1000 - time.monotonic()))
    try:
        return consumer.poll(wait_s, max_records=left)
    except (KeyboardInterrupt, Terminated):
        # All polled records have been printed, so closing may commit their offsets.
        consumer.close()
        raise


def _start(consumer: Consumer, where: StartPosition) -> None:
    if where.partition is None:
        consumer.subscribe(where.topic or re.compile(where.include or ""))
        return
    assert where.topic is not None
    tp = TopicPartition(where.topic, where.partition)
    consumer.assign([tp])
    if where.offset == "earliest":
        consumer.seek_to_beginning(tp)
    elif where.offset == "latest":
        consumer.seek_to_end(tp)
    else:
        consumer.seek(tp, int(where.offset))


class _Printer:
    def __init__(self, formatter: Formatter, *, skips_errors: bool) -> None:
        self._format = formatter
        self._skips_errors = skips_errors
        self._out = sys.stdout.buffer
        self.has_begun = False
        self.count = 0

    def print(self, records: list[Record]) -> None:
        shown: list[bytes] = []
        try:
            # If a record cannot be formatted, the list holds the records before it.
            shown.extend(self._shown(record) for record in records)
        finally:
            self._out.write(b"".join(shown))
            self._out.flush()
            self.count += len(shown)

    def _shown(self, record: Record) -> bytes:
        try:
            return self._format(record)
        except ValueError as error:
            place = f"offset {record.offset} of {record.topic}-{record.partition}"
            if not self._skips_errors:
                raise UserError(
                    f"Cannot format the record at {place}: {error}. Skip such records with "
                    "--skip-message-on-error."
                ) from None
            colour.echo(f"Skipped the record at {place}: {error}.", "red")
            return b""


# ------------------------------------------------------------------------------------- options


def _parse_start_position(
    topic: str | None,
    include: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
) -> StartPosition:
    if (topic is None) == (include is None):
        raise click.UsageError("Exactly one of --topic and --include is required.")
    if include is not None:
        try:
            re.compile(include)
        except re.error as error:
            raise click.UsageError(
                f"--include is not a valid regular expression: {error}."
            ) from None
    if partition is None:
        if offset is not None:
            raise click.UsageError("The partition is required when offset is specified.")
    elif topic is None:
        raise click.UsageError("The topic is required when partition is specified.")
    elif from_beginning and offset is not None:
        raise click.UsageError("Options from-beginning and offset cannot be specified together.")
    default = "earliest" if from_beginning else "latest"
    return StartPosition(topic, include, partition, _parse_offset(offset or default))


def _parse_offset(text: str) -> int | str:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.isdecimal():
        return int(text)
    raise click.UsageError(
        f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', "
        f"or a non-negative long."
    )


def _formatter(
    *,
    formatter: str,
    formatter_properties: tuple[str, ...],
    formatter_config: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    as_json: bool,
) -> Formatter:
    if as_json:
        return JsonFormatter()
    properties = load_properties(formatter_config) if formatter_config is not None else {}
    for name, value in (
        ("key.deserializer", key_deserializer),
        ("value.deserializer", value_deserializer),
    ):
        if value is not None:
            properties[name] = value
    properties.update(key_values(formatter_properties, "--formatter-property"))
    return find_formatter(formatter, properties)


def _set_group(properties: dict[str, str], group: str | None, where: StartPosition) -> None:
    """Set `group.id`. Without a group in the options or properties, use a random one.

    A random group does not commit offsets."""
    named = properties.get("group.id")
    if group is not None and named not in (None, group):
        raise UserError(
            f"The group ids provided in different places do not match: '{group}', '{named}'."
        )
    group = group or named
    if where.partition is not None:
        if group is not None:
            raise click.UsageError("Options group and partition cannot be specified together.")
        properties["enable.auto.commit"] = "false"
        return
    if group is None:
        group = f"console-consumer-{random.randrange(_GROUPS)}"
        properties.setdefault("enable.auto.commit", "false")
    properties["group.id"] = group


def _set_reset(properties: dict[str, str], from_beginning: bool) -> None:
    wanted = properties.get("auto.offset.reset")
    if from_beginning and wanted not in (None, "earliest"):
        raise UserError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={wanted}', "
            f"please remove one option."
        )
    properties["auto.offset.reset"] = wanted or ("earliest" if from_beginning else "latest")
