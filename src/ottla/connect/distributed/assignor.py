"""Incremental cooperative assignment of connectors and tasks to workers.

A pure function of the members, the configured units and the time. Each call is one rebalance of the
group. Workers do not stop what they keep:

1. A unit stays with its worker, unless it is no longer configured or another worker also has it.
2. An unassigned unit goes to the worker with the fewest. Units of a departed worker wait for
   `scheduled.rebalance.max.delay.ms`, as the worker may return; if a new worker has joined, they
   are assigned at once.
3. Units are revoked from workers that have more than their share. The worker stops them and
   rejoins, and the next rebalance assigns them to others.

Connectors (task -1) and tasks are balanced separately, so that each kind is spread evenly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.connect.distributed.protocol import CONNECTOR
from ottla.connect.states import TaskId

Units = frozenset[TaskId]


@dataclass(frozen=True)
class LeaderState:
    """State that the leader keeps between rebalances.

    A new leader has none, and does not wait for departed workers.
    """

    placed: Mapping[TaskId, str] = field(default_factory=dict)
    """Member that each unit is assigned to."""
    members: frozenset[str] = frozenset()
    due_ms: int | None = None
    """Time at which the wait for a departed worker ends."""


@dataclass(frozen=True)
class Assignments:
    assigned: Mapping[str, Units]
    """Newly assigned units of each member."""
    revoked: Mapping[str, Units]
    delay_ms: int
    """Delay after which all members rejoin; 0 if they need not."""
    state: LeaderState


def assign(
    members: Mapping[str, Units],
    configured: Units,
    state: LeaderState,
    now_ms: int,
    max_delay_ms: int,
) -> Assignments:
    kept, revoked = _keep(members, configured)
    free = configured - frozenset().union(*kept.values())
    lost = frozenset(unit for unit in free if state.placed.get(unit, "") not in ("", *members))
    newcomers = members.keys() - state.members
    due_ms = _due_ms(lost, state, now_ms, max_delay_ms, has_newcomers=bool(newcomers))
    withheld = lost if due_ms is not None else frozenset()
    properties: dict[str, set[TaskId]] = {member: set() for member in members}
    for unit in sorted(free - withheld):
        member = min(sorted(members), key=lambda each: _load(kept[each] | properties[each], unit))
        properties[member].add(unit)
    if not withheld:
        for member, units in _surplus(kept, properties).items():
            revoked[member] |= units
            kept[member] -= units
    placed = {unit: member for member in members for unit in kept[member] | properties[member]}
    placed |= {unit: state.placed[unit] for unit in withheld}
    return Assignments(
        {member: frozenset(units) for member, units in properties.items()},
        {member: frozenset(units) for member, units in revoked.items()},
        0 if due_ms is None else max(due_ms - now_ms, 1),
        LeaderState(placed, frozenset(members), due_ms),
    )


def _keep(
    members: Mapping[str, Units], configured: Units
) -> tuple[dict[str, set[TaskId]], dict[str, set[TaskId]]]:
    kept: dict[str, set[TaskId]] = {}
    revoked: dict[str, set[TaskId]] = {}
    seen: set[TaskId] = set()
    for member in sorted(members):
        kept[member] = set(members[member] & configured) - seen
        revoked[member] = set(members[member]) - kept[member]
        seen |= kept[member]
    return kept, revoked


def _due_ms(
    lost: Units, memory: LeaderState, now_ms: int, max_delay_ms: int, *, has_newcomers: bool
) -> int | None:
    if not lost or not max_delay_ms or has_newcomers:
        return None
    due_ms = now_ms + max_delay_ms if memory.due_ms is None else memory.due_ms
    return due_ms if now_ms < due_ms else None


def _load(units: set[TaskId], like: TaskId) -> tuple[int, int]:
    """Return the number of units of the same kind, and of all units."""
    return sum(_kind(each) == _kind(like) for each in units), len(units)


def _kind(unit: TaskId) -> bool:
    return unit.task == CONNECTOR


def _surplus(
    kept: Mapping[str, set[TaskId]], properties: Mapping[str, set[TaskId]]
) -> dict[str, set[TaskId]]:
    """Return the units to revoke so that no two workers differ by more than one."""
    surplus: dict[str, set[TaskId]] = {member: set() for member in kept}
    for kind in (True, False):
        own = {
            member: sorted(unit for unit in units if _kind(unit) is kind)
            for member, units in kept.items()
        }
        counts = {
            member: len(own[member]) + sum(_kind(unit) is kind for unit in properties[member])
            for member in kept
        }
        while counts:
            most = max(sorted(counts), key=lambda each: counts[each] if own[each] else -1)
            least = min(sorted(counts), key=lambda each: counts[each])
            if not own[most] or counts[most] - counts[least] < 2:
                break
            surplus[most].add(own[most].pop())
            counts[most] -= 1
            counts[least] += 1
    return surplus
