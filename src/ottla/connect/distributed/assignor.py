"""Which worker runs what. Pure: who is there, what there is and what time it is, in; shares, out.

One round is one rebalance of the group. Nobody is asked to stop what he keeps:

1. What a worker has stays with it, unless it is configured no more, or another has it too.
2. What nobody has goes to whoever has least. But what a worker had that is gone waits for
   `scheduled.rebalance.max.delay.ms`, as it may come back; a newcomer gets it at once.
3. Then whoever has more than his share gives some of it back. He stops it, joins again, and in that
   round it is given to others.

Connectors (task -1) and tasks are shared out apart, so that each is even."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.connect.distributed.protocol import CONNECTOR
from ottla.connect.states import TaskId

Units = frozenset[TaskId]


@dataclass(frozen=True)
class Memory:
    """What the leader remembers from one round to the next. A new leader remembers nothing, and
    waits for nobody."""

    placed: Mapping[TaskId, str] = field(default_factory=dict)
    """Unit -> member."""
    members: frozenset[str] = frozenset()
    due_ms: int | None = None
    """When the wait for a worker that is gone is over."""


@dataclass(frozen=True)
class Shares:
    given: Mapping[str, Units]
    """What is new for each member."""
    revoked: Mapping[str, Units]
    delay_ms: int
    """When all shall join again; 0: no need."""
    memory: Memory


def share_out(
    members: Mapping[str, Units], configured: Units, memory: Memory, now_ms: int, max_delay_ms: int
) -> Shares:
    kept, revoked = _keep(members, configured)
    free = configured - frozenset().union(*kept.values())
    lost = frozenset(unit for unit in free if memory.placed.get(unit, "") not in ("", *members))
    newcomers = members.keys() - memory.members
    due_ms = _due_ms(lost, memory, now_ms, max_delay_ms, has_newcomers=bool(newcomers))
    withheld = lost if due_ms is not None else frozenset()
    given: dict[str, set[TaskId]] = {member: set() for member in members}
    for unit in sorted(free - withheld):
        member = min(sorted(members), key=lambda each: _load(kept[each] | given[each], unit))
        given[member].add(unit)
    if not withheld:
        for member, units in _surplus(kept, given).items():
            revoked[member] |= units
            kept[member] -= units
    placed = {unit: member for member in members for unit in kept[member] | given[member]}
    placed |= {unit: memory.placed[unit] for unit in withheld}
    return Shares(
        {member: frozenset(units) for member, units in given.items()},
        {member: frozenset(units) for member, units in revoked.items()},
        0 if due_ms is None else max(due_ms - now_ms, 1),
        Memory(placed, frozenset(members), due_ms),
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
    lost: Units, memory: Memory, now_ms: int, max_delay_ms: int, *, has_newcomers: bool
) -> int | None:
    if not lost or not max_delay_ms or has_newcomers:
        return None
    due_ms = now_ms + max_delay_ms if memory.due_ms is None else memory.due_ms
    return due_ms if now_ms < due_ms else None


def _load(units: set[TaskId], like: TaskId) -> tuple[int, int]:
    """So many of the same kind, so many in all."""
    return sum(_kind(each) == _kind(like) for each in units), len(units)


def _kind(unit: TaskId) -> bool:
    return unit.task == CONNECTOR


def _surplus(
    kept: Mapping[str, set[TaskId]], given: Mapping[str, set[TaskId]]
) -> dict[str, set[TaskId]]:
    """What those with more than their share give back, until nobody has two more than another."""
    surplus: dict[str, set[TaskId]] = {member: set() for member in kept}
    for kind in (True, False):
        own = {
            member: sorted(unit for unit in units if _kind(unit) is kind)
            for member, units in kept.items()
        }
        counts = {
            member: len(own[member]) + sum(_kind(unit) is kind for unit in given[member])
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
