"""Start and end of a read, as users specify them, and offsets as Spark stores them (pure).

Options and checkpoints use the same JSON: {"topic": {"0": 23, "1": -2}}, with -2 for earliest and
-1 for latest. Checkpoints of Spark's own Kafka source have the same form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.errors import InvalidConfig

EARLIEST, LATEST = -2, -1

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class Earliest:
    pass


@dataclass(frozen=True)
class Latest:
    pass


@dataclass(frozen=True)
class AtOffsets:
    offsets: Offsets


@dataclass(frozen=True)
class AtTimestamps:
    """First record at or after a time, which is the same for all partitions or given for each."""

    for_all_ms: int | None
    by_partition_ms: Offsets


Bound = Earliest | Latest | AtOffsets | AtTimestamps


@dataclass(frozen=True)
class OffsetLookup:
    """Offsets of a bound: those that are known, and those to look up."""

    known: Offsets
    timestamps: Offsets
    """Timestamps for ListOffsets: -2, -1 or a time."""


def offset_lookup(name: str, bound: Bound, partitions: Iterable[TopicPartition]) -> OffsetLookup:
    """Return what to look up; raise InvalidConfig if the bound does not match the partitions."""
    wanted = sorted(partitions)
    if isinstance(bound, Earliest):
        return OffsetLookup({}, dict.fromkeys(wanted, EARLIEST))
    if isinstance(bound, Latest):
        return OffsetLookup({}, dict.fromkeys(wanted, LATEST))
    if isinstance(bound, AtTimestamps):
        if bound.for_all_ms is not None:
            return OffsetLookup({}, dict.fromkeys(wanted, bound.for_all_ms))
        _check_complete(name, bound.by_partition_ms, wanted)
        return OffsetLookup({}, dict(bound.by_partition_ms))
    _check_complete(name, bound.offsets, wanted)
    known = {tp: offset for tp, offset in bound.offsets.items() if offset >= 0}
    timestamps = {tp: offset for tp, offset in bound.offsets.items() if offset < 0}
    return OffsetLookup(known, timestamps)


def _check_complete(name: str, offsets: Offsets, wanted: list[TopicPartition]) -> None:
    missing = [str(tp) for tp in wanted if tp not in offsets]
    if missing:
        raise InvalidConfig(
            f"{name} must list every partition (-2 is earliest, -1 is latest). "
            f"Missing: {', '.join(missing)}."
        )
    unknown = [str(tp) for tp in sorted(offsets) if tp not in set(wanted)]
    if unknown:
        raise InvalidConfig(
            f"{name} lists partitions that the query does not read: {', '.join(unknown)}."
        )


def parse_by_partition(name: str, text: str, *, minimum: int = EARLIEST) -> Offsets:
    try:
        parsed = json.loads(text)
        found = {
            TopicPartition(topic, int(partition)): _integer(number)
            for topic, numbers in parsed.items()
            for partition, number in numbers.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise InvalidConfig(
            f'{name} must be JSON such as {{"topicA": {{"0": 23, "1": 42}}}}, not {text!r}.'
        ) from None
    for tp, number in found.items():
        if number < minimum or tp.partition < 0:
            raise InvalidConfig(f"{name} has the invalid value {number} for {tp}.")
    return found


def _integer(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError
    return number


# ------------------------------------------------------------------------------------ checkpoints

START_OVERRIDES = "\N{LEFTWARDS ARROW}"
"""Key for the offsets at which a batch starts, next to the topics of its end offset.

They override the previous end offset, in a query's first batch and for partitions whose group was
moved. No topic can have this name."""


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    return made


def from_json(read: Mapping[str, Any]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, numbers in read.items()
        if topic != START_OVERRIDES
        for partition, offset in numbers.items()
    }


def with_start_overrides(
    end: Mapping[TopicPartition, int], overrides: Mapping[TopicPartition, int]
) -> dict[str, Any]:
    made = to_json(end)
    if overrides:
        made[START_OVERRIDES] = to_json(overrides)
    return made


def start_overrides_in(read: Mapping[str, Any]) -> Offsets:
    return from_json(read.get(START_OVERRIDES, {}))
