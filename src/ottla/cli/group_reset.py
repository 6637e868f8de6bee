"""Plans for `kafka-consumer-groups --reset-offsets`: the new offset of each partition.

A plan is computed from the requested `Target`, the committed offsets of the group, and the log
start and end offsets of the partitions. Offsets out of range are moved to the nearest valid offset.

A plan file has a line `topic,partition,offset` for each partition of one group, or
`group,topic,partition,offset` for several groups."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin

Plan = dict[TopicPartition, int]
Note = Callable[[str], None]

_DURATION = re.compile(
    r"([+-])?P(?:([+-]?\d+)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Target:
    """Requested position of the offsets. Exactly one field is set."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_datetime: str | None = None
    by_duration: str | None = None
    from_file: str | None = None

    def timestamp_ms(self, now_ms: int) -> int | None:
        """Return the timestamp of `to_datetime` or `by_duration`, or None for other targets."""
        if self.to_datetime is not None:
            return parse_datetime_ms(self.to_datetime)
        if self.by_duration is not None:
            return now_ms - parse_duration_ms(self.by_duration)
        return None


def parse_datetime_ms(text: str) -> int:
    """Parse `YYYY-MM-DDTHH:mm:SS.sss`, in UTC unless the text ends with a UTC offset.

    Raises:
        UserError: The text is malformed.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            f"{text!r} is not a valid date and time. It must look like 2026-01-31T12:00:00.000, "
            "with or without a UTC offset such as +01:00."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration, `PnDTnHnMnS`.

    Raises:
        UserError: The text is malformed.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()[1:]) or text.strip().upper().endswith("T"):
        raise UserError(f"{text!r} is not a valid duration. It must look like P1DT2H30M or PT15M.")
    sign, days, hours, minutes, seconds = found.groups()
    total_s = (
        int(days or 0) * 86_400
        + int(hours or 0) * 3_600
        + int(minutes or 0) * 60
        + float(seconds or 0)
    )
    return round(total_s * 1000) * (-1 if sign == "-" else 1)


def parse_plans(text: str, groups: Iterable[str], name: str) -> dict[str, Plan]:
    """Return the plans of a file by group.

    Args:
        text: Content of the file.
        groups: The requested groups. A file without group names applies to a single group.
        name: Name of the file, for error messages.

    Raises:
        UserError: A line is malformed.
    """
    wanted = list(groups)
    plans: dict[str, Plan] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        group = wanted[0] if len(cells) == 3 and len(wanted) == 1 else cells[0]
        try:
            if len(cells) not in (3, 4) or (len(cells) == 3 and len(wanted) != 1):
                raise ValueError
            topic, partition, offset = cells[-3], int(cells[-2]), int(cells[-1])
        except ValueError:
            raise UserError(
                f"Line {number} of {name} must be topic,partition,offset for one group, or "
                "group,topic,partition,offset."
            ) from None
        plans.setdefault(group, {})[TopicPartition(topic, partition)] = offset
    return plans


def export(plans: Mapping[str, Plan], *, with_group: bool) -> list[str]:
    """Return plans as lines of CSV that `parse_plans` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, plan in plans.items():
        for (topic, partition), offset in plan.items():
            row = (topic, partition, offset)
            writer.writerow((group, *row) if with_group else row)
    return text.getvalue().splitlines()


def make_plan(
    admin: Admin, group: str, partitions: list[TopicPartition], target: Target, note: Note
) -> Plan:
    """Return the new offsets of the given partitions.

    Args:
        admin: A client that is connected to the cluster.
        group: The group.
        partitions: The partitions to reset.
        target: The requested position.
        note: Called with one sentence for each offset that is out of range.

    Raises:
        UserError: A partition has no committed offset to shift.
    """
    from ottla.client.admin import OffsetSpec

    if target.to_earliest:
        return _list_offsets(admin, partitions, OffsetSpec.EARLIEST)
    if target.to_latest:
        return _list_offsets(admin, partitions, OffsetSpec.LATEST)
    if target.to_offset is not None:
        return clamp_to_log(admin, dict.fromkeys(partitions, target.to_offset), note)
    timestamp_ms = target.timestamp_ms(int(time.time() * 1000))
    if timestamp_ms is not None:
        return _list_offsets(admin, partitions, max(timestamp_ms, 0))
    committed = admin.list_group_offsets(group)[group]
    missing = [partition for partition in partitions if partition not in committed]
    if target.to_current:
        plan = {
            partition: committed[partition].offset
            for partition in partitions
            if partition in committed
        }
        return plan | _list_offsets(admin, missing, OffsetSpec.LATEST)
    assert target.shift_by is not None, "exactly one target is set"
    if missing:
        raise UserError(
            f"Group {group} has no committed offset for {missing[0]}, so --shift-by cannot be used."
        )
    shifted = {partition: committed[partition].offset + target.shift_by for partition in partitions}
    return clamp_to_log(admin, shifted, note)


def _list_offsets(admin: Admin, partitions: Iterable[TopicPartition], spec: int) -> Plan:
    """Return offsets by position or time; the log end offset if no record is recent enough."""
    from ottla.client.admin import OffsetSpec

    wanted = list(partitions)
    found = admin.list_offsets(dict.fromkeys(wanted, spec))
    late = [partition for partition, each in found.items() if each.offset is None]
    ends = admin.list_offsets(dict.fromkeys(late, OffsetSpec.LATEST)) if late else {}
    plan: Plan = {}
    for partition in wanted:
        offset = (found if partition not in ends else ends)[partition].offset
        plan[partition] = offset if offset is not None else 0
    return plan


def clamp_to_log(admin: Admin, wanted: Plan, note: Note) -> Plan:
    """Move each offset that is out of range to the nearest valid offset of its partition."""
    from ottla.client.admin import OffsetSpec

    starts = _list_offsets(admin, wanted, OffsetSpec.EARLIEST)
    ends = _list_offsets(admin, wanted, OffsetSpec.LATEST)
    plan: Plan = {}
    for partition, offset in wanted.items():
        plan[partition] = nearest = min(max(offset, starts[partition]), ends[partition])
        if nearest != offset:
            note(
                f"Offset {offset} is out of range for {partition}, which has offsets "
                f"{starts[partition]} to {ends[partition]}. Using {nearest}."
            )
    return plan


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """Parse `topic` or `topic:0,1,2` into a name and partitions; None stands for all."""
    topic, colon, numbers = text.rpartition(":")
    if not colon:
        return text, None
    try:
        return topic, [int(number) for number in numbers.split(",")]
    except ValueError:
        raise UserError(f"--topic {text!r} must look like topic or topic:0,1,2.") from None


def partitions_of(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions of topics that are given as `topic` or `topic:0,1`."""
    parsed = [parse_topic(text) for text in topics]
    whole = [topic for topic, numbers in parsed if numbers is None]
    described = admin.describe_topics(*whole) if whole else {}
    found: list[TopicPartition] = []
    for topic, numbers in parsed:
        if numbers is None:
            numbers = [each.partition for each in described[topic].partitions]
        found += [TopicPartition(topic, number) for number in numbers]
    return list(dict.fromkeys(found))


def read_plans(path: str, groups: Iterable[str]) -> dict[str, Plan]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"Cannot read {path}: {reason.lower()}.") from error
    return parse_plans(text, groups, path)
