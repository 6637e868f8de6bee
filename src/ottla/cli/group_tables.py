"""Rows and tables of `kafka-consumer-groups --describe`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.cli.output import table

if TYPE_CHECKING:
    from ottla.client.admin import Admin, GroupDescription, MemberDescription

OFFSETS = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("CONSUMER-ID", "HOST", "CLIENT-ID"),
)
OFFSETS_VERBOSE = (*OFFSETS[:3], "LEADER-EPOCH", *OFFSETS[3:])
STATE = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
STATE_VERBOSE = (*STATE[:4], "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS")
EPOCHS = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")


@dataclass(frozen=True)
class OffsetRow:
    """One partition of a group: its committed offset, its lag and the member that reads it."""

    group: str
    topic: str
    partition: int
    leader_epoch: int | None
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


def offset_rows(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    """Return a row for each partition that is assigned to a member or has a committed offset."""
    from ottla.client.admin import OffsetSpec

    committed = admin.list_group_offsets(group.group_id)[group.group_id]
    readers: dict[TopicPartition, MemberDescription | None] = dict.fromkeys(committed)
    for each in group.members:
        readers |= dict.fromkeys(each.assignment, each)
    ends = admin.list_offsets(dict.fromkeys(readers, OffsetSpec.LATEST), return_errors=True)
    rows = []
    for partition, member in sorted(readers.items(), key=lambda item: item[0]):
        # Committed offsets outlive a deleted topic for a while.
        end = ends[partition].offset if partition in ends else None
        known = committed.get(partition)
        offset = None if known is None else known.offset
        rows.append(
            OffsetRow(
                group.group_id,
                *partition,
                known.leader_epoch if known is not None and known.leader_epoch >= 0 else None,
                offset,
                end,
                None if end is None or offset is None else end - offset,
                None if member is None else member.member_id,
                None if member is None else member.host,
                None if member is None else member.client_id,
            )
        )
    return sorted(rows, key=lambda row: row.consumer_id is None)


def offsets_table(rows: Iterable[OffsetRow], *, verbose: bool) -> list[str]:
    columns = OFFSETS_VERBOSE if verbose else OFFSETS
    return table(
        columns,
        (
            (
                *(row.group, row.topic, row.partition),
                *((row.leader_epoch,) if verbose else ()),
                *(row.current_offset, row.log_end_offset, row.lag),
                *(row.consumer_id, row.host, row.client_id),
            )
            for row in rows
        ),
    )


def members_table(group: GroupDescription, *, verbose: bool) -> list[str]:
    static = any(member.group_instance_id for member in group.members)
    columns = (
        *("GROUP", "CONSUMER-ID"),
        *(("GROUP-INSTANCE-ID",) if static else ()),
        *("HOST", "CLIENT-ID", "#PARTITIONS"),
        *(EPOCHS if verbose else ()),
    )
    return table(
        columns,
        (
            (
                *(group.group_id, member.member_id),
                *((member.group_instance_id,) if static else ()),
                *(member.host, member.client_id, len(member.assignment)),
                *(_epochs(group, member) if verbose else ()),
            )
            for member in group.members
        ),
    )


def _epochs(group: GroupDescription, member: MemberDescription) -> Iterator[object]:
    yield member.member_epoch
    yield short(member.assignment)
    yield group.target_assignment_epoch
    yield None if member.target_assignment is None else short(member.target_assignment)


def short(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions in short form, such as `orders:0,1;prices:2`."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in grouped.items())


def state_table(groups: Iterable[GroupDescription], *, verbose: bool) -> list[str]:
    return table(
        STATE_VERBOSE if verbose else STATE,
        (
            (
                group.group_id,
                None
                if group.coordinator is None
                else f"{group.coordinator} ({group.coordinator.id})",
                *(group.assignor, group.state),
                *((group.group_epoch, group.target_assignment_epoch) if verbose else ()),
                len(group.members),
            )
            for group in groups
        ),
    )


def plans_table(plans: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    return table(
        ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"),
        (
            (group, *partition, offset)
            for group, plan in plans.items()
            for partition, offset in plan.items()
        ),
    )
