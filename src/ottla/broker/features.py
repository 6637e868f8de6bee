"""The features of a cluster that clients look for (KIP-584), and their levels.

`group.version` 1: groups may use the consumer protocol (KIP-848).
`transaction.version` 2: every end of a transaction bumps the producer's epoch, and partitions join
a transaction when they are written to (KIP-890)."""

from __future__ import annotations

from ottla.broker.handlers.api_versions import Features

FEATURES = Features(
    supported={"group.version": (0, 1), "transaction.version": (0, 2)},
    finalized={"group.version": 1, "transaction.version": 2},
    epoch=0,
)
