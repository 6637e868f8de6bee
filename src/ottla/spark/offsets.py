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

    of_all_ms: int | None
    by_partition_ms: Offsets


Bound = Earliest | Latest | AtOffsets | AtTimestamps


@dataclass(frozen=True)
class Questions:
    """Offsets of a bound: those that are known, and those to look up."""

    known: Offsets
    asked: Offsets
    """Timestamps for ListOffsets: -2, -1 or a time."""


def questions(name: str, bound: Bound, partitions: Iterable[TopicPartition]) -> Questions:
    """Return what to look up; raise InvalidConfig if the bound does not match the partitions."""
    wanted = sorted(partitions)
    if isinstance(bound, Earliest):
        return Questions({}, dict.fromkeys(wanted, EARLIEST))
    if isinstance(bound, Latest):
        return Questions({}, dict.fromkeys(wanted, LATEST))
    if isinstance(bound, AtTimestamps):
        if bound.of_all_ms is not None:
            return Questions({}, dict.fromkeys(wanted, bound.of_all_ms))
        _check_complete(name, bound.by_partition_ms, wanted)
        return Questions({}, dict(bound.by_partition_ms))
    _check_complete(name, bound.offsets, wanted)
    known = {tp: offset for tp, offset in bound.offsets.items() if offset >= 0}
    asked = {tp: offset for tp, offset in bound.offsets.items() if offset < 0}
    return Questions(known, asked)


def _check_complete(name: str, given: Offsets, wanted: list[TopicPartition]) -> None:
    missing = [str(tp) for tp in wanted if tp not in given]
    if missing:
        raise InvalidConfig(
            f"{name} must name every partition (-2 is earliest, -1 latest): "
            f"{', '.join(missing)} missing."
        )
    unknown = [str(tp) for tp in sorted(given) if tp not in set(wanted)]
    if unknown:
        raise InvalidConfig(f"{name} names what is not read: {', '.join(unknown)}.")


def parse_by_partition(name: str, text: str, *, least: int = EARLIEST) -> Offsets:
    try:
        read = json.loads(text)
        found = {
            TopicPartition(topic, int(partition)): _whole(number)
            for topic, numbers in read.items()
            for partition, number in numbers.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise InvalidConfig(
            f'{name} must look like {{"topicA": {{"0": 23, "1": 42}}}}, not {text!r}.'
        ) from None
    for tp, number in found.items():
        if number < least or tp.partition < 0:
            raise InvalidConfig(f"{name} has {number} for {tp}, which is impossible.")
    return found


def _whole(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError
    return number


# ------------------------------------------------------------------------------------ checkpoints

MOVED = "\N{LEFTWARDS ARROW}"
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
        if topic != MOVED
        for partition, offset in numbers.items()
    }


def with_moved(
    end: Mapping[TopicPartition, int], moved: Mapping[TopicPartition, int]
) -> dict[str, Any]:
    made = to_json(end)
    if moved:
        made[MOVED] = to_json(moved)
    return made


def moved_in(read: Mapping[str, Any]) -> Offsets:
    return from_json(read.get(MOVED, {}))
