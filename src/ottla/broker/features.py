"""The features that this broker advertises (KIP-584), and their finalized levels.

`group.version` 1: groups may use the consumer protocol (KIP-848).
`transaction.version` 2: every end of a transaction bumps the producer epoch, and a partition joins
a transaction when it is first written to (KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Features(NamedTuple):
    """Supported features and their finalized levels."""

    supported: Mapping[str, tuple[int, int]]
    """Name -> lowest and highest level."""
    finalized: Mapping[str, int]
    epoch: int
    """Epoch of the finalized features; -1 if none has been finalized."""


FEATURES = Features(
    supported={"group.version": (0, 1), "transaction.version": (0, 2)},
    finalized={"group.version": 1, "transaction.version": 2},
    epoch=0,
)
