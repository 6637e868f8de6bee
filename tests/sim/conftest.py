from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collect_killed_brokers() -> Iterator[None]:
    """Collect the coroutines of killed brokers before a later test parses source.

    `collect_garbage` explains what would happen."""
    yield
    gc.collect()
