"""Emptying a broker: every replica on it goes to another broker that is alive.

Topics that are created meanwhile may be placed on it; so it is looked again until there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.cli.kafka_reassign_partitions import present_assignment
from ottla.cli.replica_plan import without

if TYPE_CHECKING:
    from ottla.client.admin import Admin

POLL_S = 0.25
NOTE_EVERY_S = 2.0


def decommission(
    admin: Admin, broker: int, timeout_s: float | None, note: Callable[[str], None]
) -> int:
    """Returns how many replicas were moved."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    known = admin.describe_cluster(include_fenced=True).nodes
    if broker not in known:
        there = ", ".join(map(str, known))
        raise UserError(f"There is no broker {broker} in the cluster, which has {there}.")
    moved: set[TopicPartition] = set()
    while plan := _plan(admin, broker):
        admin.alter_partition_reassignments(plan)
        moved |= plan.keys()
        _wait(admin, broker, set(plan), deadline, note)
    return len(moved)


def _plan(admin: Admin, broker: int) -> dict[TopicPartition, tuple[int, ...]]:
    """What is still to be moved, and whereto."""
    names = sorted(admin.list_topics(include_internal=True))
    present = present_assignment(admin, names, return_errors=True) if names else {}
    moving = admin.list_partition_reassignments()
    wanted = {key: moving[key].target if key in moving else each for key, each in present.items()}
    nodes = admin.describe_cluster().nodes
    knows_racks = all(node.rack for node in nodes.values())
    racks = {id: node.rack if knows_racks else None for id, node in nodes.items()}
    return without(broker, wanted, racks)


def _wait(
    admin: Admin,
    broker: int,
    keys: set[TopicPartition],
    deadline: float | None,
    note: Callable[[str], None],
) -> None:
    noted_at = time.monotonic()
    while left := keys & admin.list_partition_reassignments().keys():
        now = time.monotonic()
        if deadline is not None and now > deadline:
            raise UserError(
                f"{len(left)} partitions are still being moved away from broker {broker}; it goes "
                "on, and the same command waits again."
            )
        if now - noted_at > NOTE_EVERY_S:
            noted_at = now
            note(f"{len(left)} of {len(keys)} partitions are still being moved.")
        time.sleep(POLL_S)
