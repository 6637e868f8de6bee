"""The MetadataStore port: where a cluster keeps what its brokers must agree on.

A store is a flat map from paths (`/topics/<id>/0`) to nodes. A node has a value and a version: 0
when it is created, one more with each `Replace`. Every committed transaction has a revision, and
revisions only grow.

Three verbs, and the rules that every implementation keeps:

* `txn(checks, ops)` commits all of its ops or none. Every check is made against the state the ops
  are applied to. When it returns, the change survives whatever the store promises to survive.
* `watch(prefix, callback)` calls back after each commit that touches the prefix, in commit order,
  on the event loop. An implementation that was cut off may deliver what it missed as one commit.
* `load(prefix)` returns the nodes and the revision they are at. Nothing is missed by watching
  first, then loading, then skipping commits up to the loaded revision.

An *ephemeral* node lives as long as the session that created it. `session_id` changes when a
session was lost; its ephemeral nodes are gone by then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias


class Node(NamedTuple):
    value: bytes
    version: int


Change: TypeAlias = tuple[str, Node | None]
"""A path and what it holds now; None if it was deleted."""

WatchCallback: TypeAlias = Callable[[int, Sequence[Change]], None]
"""Called with the revision of the commit and the changes below the watched prefix."""


class Check(NamedTuple):
    """The path must be at this version; None: it must not exist."""

    path: str
    version: int | None


class Create(NamedTuple):
    """Fails if the path exists."""

    path: str
    value: bytes
    ephemeral: bool = False


class Replace(NamedTuple):
    """Fails if the path does not exist."""

    path: str
    value: bytes


class Delete(NamedTuple):
    """Fails if the path does not exist. Children are deleted before their parent."""

    path: str


Op: TypeAlias = Create | Replace | Delete


class TxnConflict(Exception):
    """A check or an op did not fit the state; nothing was changed."""

    def __init__(self, path: str, expected: int | None, found: int | None) -> None:
        super().__init__(f"{path}: expected {_version(expected)}, found {_version(found)}")
        self.path = path
        self.expected = expected
        self.found = found


ANY_VERSION = -1
"""In a TxnConflict: the path was expected to exist, at whatever version."""


def _version(version: int | None) -> str:
    if version is None:
        return "nothing"
    return "a node" if version == ANY_VERSION else f"version {version}"


class MetadataStore(Protocol):
    @property
    def session_id(self) -> int: ...

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Called on the event loop when the session, and every ephemeral node in it, is gone."""

    async def load(self, prefix: str) -> tuple[dict[str, Node], int]:
        """Every node whose path starts with the prefix, and the revision they are at."""

    def watch(self, prefix: str, callback: WatchCallback) -> Callable[[], None]:
        """Returns the function that ends the watch."""

    async def txn(self, checks: Sequence[Check], ops: Sequence[Op]) -> int:
        """Returns the revision of the commit. Raises TxnConflict if a check or op did not fit,
        and KafkaError if the store cannot write now; both mean that nothing was changed."""

    async def close(self) -> None: ...
