"""Long runs of the classic group state machine (tests/unit/core/group/test_group_machine.py)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.unit.core.group.test_group_machine import Groups

LONG = settings(max_examples=2_000, stateful_step_count=100, deadline=None)


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
def test_any_order_of_events_for_long() -> None:
    run_state_machine_as_test(Groups, settings=LONG)
