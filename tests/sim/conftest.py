from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collect_killed_brokers() -> Iterator[None]:
    """Collect the coroutines of killed brokers here, where it does no harm.

    Python 3.11 fails with a SystemError ("AST constructor recursion depth mismatch") if it collects
    them while it parses the source of a later test, as Hypothesis and pytest's reports do."""
    yield
    gc.collect()
