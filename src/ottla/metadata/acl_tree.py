"""ACLs in the metadata tree: which nodes contain them, and the operations that change them.

    /access/acls/<number>           {"acls": [[resource type, pattern type, name, principal, host,
                                    operation, permission], …]}, with Kafka's codes
    /access/acls/<number>-removed   {"removed": [index, …]}: the ACLs of that node that were deleted

A node contains up to `MAX_IN_CHUNK` ACLs, a chunk. Clusters have up to hundreds of thousands of
ACLs, and ZooKeeper is read node by node: one node for each of 100,000 ACLs would take a broker ten
seconds to load, and deleting the ACLs of a user a read for each. The list of a chunk only grows, so
that indexes stay valid, and new ACLs are appended to the chunk with the highest number. A deletion
writes indexes, not the remaining ACLs. All deletions that one request can ask for therefore fit
into one transaction of ZooKeeper.

A chunk without remaining ACLs is deleted. If only a few remain, they are moved to the last chunk.
The operations of a transaction are ordered so that a broker that sees them one by one never misses
an ACL: a moved ACL exists twice for a moment, which changes no decision.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.acl import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.metadata import ACCESS, Change, Check, Create, Delete, Node, Op, Replace

logger = logging.getLogger(__name__)

ACLS = f"{ACCESS}acls/"
MAX_IN_CHUNK = 128
MAX_CHUNK_BYTES = 32 * 1024
"""Size above which no ACL is appended to a chunk. A single ACL may be larger."""
FEW = MAX_IN_CHUNK // 8
"""Number of remaining ACLs with which a chunk is dissolved."""
MAX_MOVED = 512
"""Number of ACLs that one request may move, which bounds the size of its transaction."""

_REMOVED = "-removed"
_dumps = json.JSONEncoder(separators=(",", ":")).encode
_RESOURCE_TYPES = {each.value: each for each in AclResourceType if each > AclResourceType.ANY}
_PATTERN_TYPES = {each.value: each for each in (PatternType.LITERAL, PatternType.PREFIXED)}
_OPERATIONS = {each.value: each for each in AclOperation if each > AclOperation.ANY}
_PERMISSIONS = {each.value: each for each in (AclPermission.DENY, AclPermission.ALLOW)}


class AclChanges(NamedTuple):
    """The difference between two states of the ACLs."""

    added: list[AclBinding]
    removed: list[AclBinding]


@dataclass(slots=True)
class _Chunk:
    node: Node | None = None
    bindings: list[AclBinding | None] = field(default_factory=list)
    """None in place of an ACL that this version cannot read."""
    removed_node: Node | None = None
    removed: frozenset[int] = frozenset()

    def remaining(self) -> Iterator[tuple[int, AclBinding]]:
        removed = self.removed
        for index, binding in enumerate(self.bindings):
            if binding is not None and index not in removed:
                yield index, binding

    @property
    def can_grow(self) -> bool:
        return (
            self.node is not None
            and 0 < len(self.bindings) < MAX_IN_CHUNK
            and len(self.node.value) < MAX_CHUNK_BYTES
        )


class AclTree:
    """The ACLs of a cluster, and the nodes that contain them."""

    def __init__(self) -> None:
        self._chunks: dict[int, _Chunk] = {}
        self._places: dict[AclBinding, tuple[int, ...]] = {}
        """The chunks that contain each ACL: one, or two for a moment while it is moved."""

    @property
    def bindings(self) -> Mapping[AclBinding, object]:
        """All ACLs, as the keys of a mapping."""
        return self._places

    # ----------------------------------------------------------------------------- applying changes

    def apply(self, changes: Iterable[Change]) -> AclChanges:
        """Apply changes of nodes below `/access/acls/`.

        Returns:
            The ACLs that exist since then, and those that do not exist any more.
        """
        touched: dict[int, list[AclBinding]] = {}
        for path, node in changes:
            name = path[len(ACLS) :]
            number_text = name.removesuffix(_REMOVED)
            if not number_text.isdecimal():
                logger.error("The node %s is not one of this version; it is ignored", path)
                continue
            number = int(number_text)
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = _Chunk()
            if number not in touched:
                touched[number] = [binding for _, binding in chunk.remaining()]
            try:
                if name == number_text:
                    _apply_chunk(chunk, path, node)
                else:
                    chunk.removed = frozenset() if node is None else _decode_removed(node)
                    chunk.removed_node = node
            except (ValueError, LookupError, TypeError, AttributeError):
                logger.error("The node %s is malformed; its previous ACLs stay in effect", path)
        return self._recount(touched)

    def _recount(self, touched: Mapping[int, list[AclBinding]]) -> AclChanges:
        places = self._places
        before: dict[AclBinding, bool] = {}
        for number, bindings in touched.items():
            for binding in bindings:
                before[binding] = True
                left = tuple(each for each in places.get(binding, ()) if each != number)
                if left:
                    places[binding] = left
                else:
                    places.pop(binding, None)
        for number in touched:
            chunk = self._chunks[number]
            if chunk.node is None and chunk.removed_node is None:
                del self._chunks[number]
                continue
            for _, binding in chunk.remaining():
                known = places.get(binding)
                if known is None:
                    places[binding] = (number,)
                    before.setdefault(binding, False)
                elif number not in known:
                    places[binding] = (*known, number)
        return AclChanges(
            [each for each, existed in before.items() if not existed],
            [each for each, existed in before.items() if existed and each not in places],
        )

    # ------------------------------------------------------------------------------ making changes

    def ops_to_add(self, bindings: Iterable[AclBinding]) -> tuple[list[Op], list[Check]]:
        """Return the operations and checks of a transaction that adds ACLs.

        Args:
            bindings: ACLs that do not exist, each once.
        """
        return self._append(list(bindings), self._last())

    def ops_to_remove(self, bindings: Iterable[AclBinding]) -> tuple[list[Op], list[Check]]:
        """Return the operations and checks of a transaction that removes ACLs.

        Args:
            bindings: ACLs that exist, each once.
        """
        gone = set(bindings)
        numbers = sorted({number for each in gone for number in self._places[each]})
        last = self._last()
        moved: list[AclBinding] = []
        ops: list[Op] = []
        checks: list[Check] = []
        for number in numbers:
            chunk = self._chunks[number]
            kept = [each for _, each in chunk.remaining() if each not in gone]
            may_move = 0 < len(kept) <= FEW and number != last and None not in chunk.bindings
            is_dissolved = may_move and len(moved) + len(kept) <= MAX_MOVED
            if is_dissolved:
                moved += kept
            if is_dissolved or not (kept or None in chunk.bindings):
                checks += _unchanged(number, chunk)
                ops.append(Delete(_path(number)))
                if chunk.removed_node is not None:
                    ops.append(Delete(_removed_path(number)))
                last = None if number == last else last
                continue
            indexes = {index for index, each in chunk.remaining() if each in gone}
            value = _dumps({"removed": sorted(chunk.removed | indexes)}).encode()
            path = _removed_path(number)
            checks += _unchanged(number, chunk)
            ops.append((Create if chunk.removed_node is None else Replace)(path, value))
        appending, unchanged = self._append(moved, last)
        return [*appending, *ops], [*checks, *(each for each in unchanged if each not in checks)]

    def _append(
        self, bindings: Sequence[AclBinding], last: int | None
    ) -> tuple[list[Op], list[Check]]:
        """Return how to append ACLs to the last chunk, if there is one, and then to new ones."""
        ops: list[Op] = []
        checks: list[Check] = []
        rows = [list(each) for each in bindings]
        if rows and last is not None and self._chunks[last].can_grow:
            chunk = self._chunks[last]
            assert chunk.node is not None, "it can grow"
            present: list[object] = json.loads(chunk.node.value)["acls"]
            fitting = _fitting(rows, MAX_IN_CHUNK - len(present), len(chunk.node.value))
            if fitting:
                ops.append(Replace(_path(last), _encode([*present, *rows[:fitting]])))
                checks.append(Check(_path(last), chunk.node.version))
                rows = rows[fitting:]
        number = max(self._chunks, default=-1) + 1
        while rows:
            fitting = max(1, _fitting(rows, MAX_IN_CHUNK, 0))
            ops.append(Create(_path(number), _encode(rows[:fitting])))
            rows, number = rows[fitting:], number + 1
        return ops, checks

    def _last(self) -> int | None:
        """Return the chunk that new ACLs are appended to, or None if there is none."""
        last = max(self._chunks, default=None)
        return last if last is not None and self._chunks[last].can_grow else None


def _apply_chunk(chunk: _Chunk, path: str, node: Node | None) -> None:
    if node is None:
        chunk.node, chunk.bindings = None, []
        return
    bindings = [_decode_binding(row) for row in json.loads(node.value)["acls"]]
    if None in bindings:
        logger.error("%s has ACLs that this version does not know; they have no effect", path)
    chunk.node, chunk.bindings = node, bindings


def _decode_binding(row: Sequence[int | str]) -> AclBinding | None:
    kind, pattern, name, principal, host, operation, permission = row
    try:
        return AclBinding(
            _RESOURCE_TYPES[int(kind)],
            _PATTERN_TYPES[int(pattern)],
            str(name),
            str(principal),
            str(host),
            _OPERATIONS[int(operation)],
            _PERMISSIONS[int(permission)],
        )
    except KeyError:
        return None


def _decode_removed(node: Node) -> frozenset[int]:
    return frozenset(map(int, json.loads(node.value)["removed"]))


def _encode(rows: Sequence[object]) -> bytes:
    return _dumps({"acls": rows}).encode()


def _fitting(rows: Sequence[object], max_count: int, size: int) -> int:
    """Return how many rows still fit into a chunk of a size."""
    count = 0
    for row in rows[:max_count]:
        size += len(_dumps(row)) + 1
        if size > MAX_CHUNK_BYTES:
            break
        count += 1
    return count


def _unchanged(number: int, chunk: _Chunk) -> list[Check]:
    checks: list[Check] = []
    if chunk.node is not None:
        checks.append(Check(_path(number), chunk.node.version))
    if chunk.removed_node is not None:
        checks.append(Check(_removed_path(number), chunk.removed_node.version))
    return checks


def _path(number: int) -> str:
    return f"{ACLS}{number:010d}"


def _removed_path(number: int) -> str:
    return _path(number) + _REMOVED
