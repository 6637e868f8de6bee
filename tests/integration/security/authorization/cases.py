"""The cases of all APIs."""

from __future__ import annotations

from tests.integration.security.authorization import (
    cluster,
    groups,
    records,
    topics,
    transactions,
)

CASES = [*records.CASES, *topics.CASES, *groups.CASES, *transactions.CASES, *cluster.CASES]
