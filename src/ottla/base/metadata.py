"""The `MetadataStore` port, which holds the state on which the brokers of a cluster agree.

A store is a flat map from paths (`/topics/<id>/0`) to nodes. A node has a value and a version,
which is 0 at its creation and increases by one with each `Replace`. Every committed transaction has
a revision, and revisions only increase.

A store has three operations, for which every implementation guarantees:

* `txn(checks, ops)` commits either all of its ops or none. All checks are evaluated against the
  state to which the ops are applied. When it returns, the change is as durable as the store
  promises.
* `watch(prefix, callback)` calls back after each commit, in commit order, on the event loop, with
  the changed paths that have the prefix. After an interruption, an implementation may deliver the
  commits that it missed as one.
* `load(prefix)` returns the nodes and their revision. To miss nothing, watch first, then load, then
  skip commits up to the loaded revision.

Paths below `ACCESS` decide who may use the cluster: users, tokens, ACLs and quotas. A change of
them must not wait for anything else, so a store delivers it independently of the other paths: `/`
does not include them when watching or loading. Watch and load them by their own prefix.

An *ephemeral* node exists as long as the session that created it. `session_id` changes when the
session was lost; its ephemeral nodes are gone by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

ACCESS = "/access/"


class Node(NamedTuple):
    """The value and the version at a path.

    Values may contain credentials, so the representations of nodes and operations show their sizes
    only: they could end up in a log.
    """

    value: bytes
    version: int

    def __repr__(self) -> str:
        return f"Node({len(self.value)} bytes, version {self.version})"


Change: TypeAlias = tuple[str, Node | None]
"""A path and its new node, or None if it was deleted."""

WatchCallback: TypeAlias = Callable[[int, Sequence[Change]], None]
"""Called with the revision of a commit and its changes below the watched prefix."""


class Check(NamedTuple):
    """A condition that a path has this version or, if it is None, does not exist."""

    path: str
    version: int | None


class Create(NamedTuple):
    """Creation of a node. Fails if the path exists."""

    path: str
    value: bytes
    ephemeral: bool = False

    def __repr__(self) -> str:
        kind = ", ephemeral" if self.ephemeral else ""
        return f"Create({self.path!r}, {len(self.value)} bytes{kind})"


class Replace(NamedTuple):
    """Replacement of a node's value. Fails if the path does not exist."""

    path: str
    value: bytes

    def __repr__(self) -> str:
        return f"Replace({self.path!r}, {len(self.value)} bytes)"


class Delete(NamedTuple):
    """Deletion of a node. Fails if the path does not exist. Delete children before parents."""

    path: str


Op: TypeAlias = Create | Replace | Delete


def covers(prefix: str, path: str) -> bool:
    """Return whether a watch or a load of the prefix includes the path."""
    return path.startswith(prefix) and path.startswith(ACCESS) == prefix.startswith(ACCESS)


class TxnConflict(Exception):
    """A check or an op did not match the state. Nothing was changed."""

    def __init__(self, path: str, expected: int | None, found: int | None) -> None:
        super().__init__(f"{path}: expected {_version(expected)}, found {_version(found)}")
        self.path = path
        self.expected = expected
        self.found = found


ANY_VERSION = -1
"""Version in a `TxnConflict` that expected the path to exist at any version."""


def _version(version: int | None) -> str:
    if version is None:
        return "nothing"
    return "a node" if version == ANY_VERSION else f"version {version}"


class MetadataStore(Protocol):
    """A transactional store for the metadata of a cluster."""

    @property
    def session_id(self) -> int: ...

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the event loop when the session and its ephemeral nodes are gone."""

    async def load(self, prefix: str) -> tuple[dict[str, Node], int]:
        """Return every node whose path starts with the prefix, and their revision."""

    def watch(self, prefix: str, callback: WatchCallback) -> Callable[[], None]:
        """Watch a prefix. Return a function that ends the watch."""

    async def txn(self, checks: Sequence[Check], ops: Sequence[Op]) -> int:
        """Commit a transaction and return its revision.

        Raises:
            TxnConflict: A check or an op did not match the state. Nothing was changed.
            KafkaError: The store cannot write now. Nothing was changed.
        """

    async def close(self) -> None: ...
