"""Tests of logger levels under Kafka's logger names."""

from __future__ import annotations

import logging

from ottla.connect import log_levels


def test_a_level_counts_for_all_below_also_for_those_that_had_one() -> None:
    own, plain = logging.getLogger("level.test.own"), logging.getLogger("level.test.plain")
    own.setLevel(logging.DEBUG)
    assert log_levels.set_level("level.test", "ERROR") == [
        "level.test", "level.test.own", "level.test.plain",
    ]  # fmt: skip
    assert own.getEffectiveLevel() == plain.getEffectiveLevel() == logging.ERROR
    shown = log_levels.levels()
    assert shown["level.test.own"]["level"] == "ERROR"
    assert isinstance(shown["level.test.own"]["last_modified"], int)
    assert "level.test.plain" not in shown
    assert log_levels.level_of("level.test.plain") == {"level": "ERROR", "last_modified": None}


def test_a_name_is_no_prefix_of_another_word() -> None:
    logging.getLogger("level.tester").setLevel(logging.INFO)
    assert "level.tester" not in log_levels.set_level("level.test", "OFF")
    assert log_levels.level_of("level.tester")["level"] == "INFO"
