"""Decommissioning of a broker: move each of its replicas to another live broker.

Topics that are created in the meantime may be placed on the broker, so the search for replicas is
repeated until it finds none."""

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
    """Move all replicas away from a broker and return the number of moved replicas.

    Args:
        admin: A client that is connected to the cluster.
        broker: ID of the broker.
        timeout_s: Seconds to wait, or None to wait until all replicas are moved.
        note: Called with one sentence about the progress every few seconds.

    Raises:
        UserError: The broker does not exist, no other broker can take a replica, or the timeout
            has expired. In the last case the reassignment continues.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    known = admin.describe_cluster(include_fenced=True).nodes
    if broker not in known:
        there = ", ".join(map(str, sorted(known)))
        raise UserError(f"Broker {broker} does not exist. The brokers of the cluster: {there}.")
    moved: set[TopicPartition] = set()
    while plan := _plan(admin, broker):
        admin.alter_partition_reassignments(plan)
        moved |= plan.keys()
        _wait(admin, broker, set(plan), deadline, note)
    return len(moved)


def _plan(admin: Admin, broker: int) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the new replicas of all partitions that still have one on the broker."""
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
                f"{len(left)} partitions are still being moved away from broker {broker}. The "
                "reassignment continues; run the same command again to wait for it."
            )
        if now - noted_at > NOTE_EVERY_S:
            noted_at = now
            note(f"{len(left)} of {len(keys)} partitions are still being moved.")
        time.sleep(POLL_S)
