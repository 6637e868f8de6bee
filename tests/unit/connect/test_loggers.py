"""Tests of logger levels under Kafka's logger names."""

from __future__ import annotations

import logging

from ottla.connect import loggers


def test_a_level_counts_for_all_below_also_for_those_that_had_one() -> None:
    own, plain = logging.getLogger("level.test.own"), logging.getLogger("level.test.plain")
    own.setLevel(logging.DEBUG)
    assert loggers.set_level("level.test", "ERROR") == [
        "level.test", "level.test.own", "level.test.plain",
    ]  # fmt: skip
    assert own.getEffectiveLevel() == plain.getEffectiveLevel() == logging.ERROR
    shown = loggers.levels()
    assert shown["level.test.own"]["level"] == "ERROR"
    assert isinstance(shown["level.test.own"]["last_modified"], int)
    assert "level.test.plain" not in shown
    assert loggers.level_of("level.test.plain") == {"level": "ERROR", "last_modified": None}


def test_a_name_is_no_prefix_of_another_word() -> None:
    logging.getLogger("level.tester").setLevel(logging.INFO)
    assert "level.tester" not in loggers.set_level("level.test", "OFF")
    assert loggers.level_of("level.tester")["level"] == "INFO"
