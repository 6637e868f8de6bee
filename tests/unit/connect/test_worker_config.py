"""Tests of distributed workers' properties; `test_config` covers the other properties."""

from __future__ import annotations

import pytest

from ottla.base.errors import UserError
from ottla.connect.worker_config import DISTRIBUTED, WorkerConfig

GIVEN = {
    "group.id": "g",
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
    "listeners": "http://:8083",
}


def test_all_missing_properties_are_reported_at_once() -> None:
    with pytest.raises(UserError) as raised:
        WorkerConfig.of({"heartbeat.interval.ms": "x"}, DISTRIBUTED)
    for name in ("group.id", "config.storage.topic", "offset.storage.topic",
                 "status.storage.topic", "key.converter", "heartbeat.interval.ms"):  # fmt: skip
        assert name in str(raised.value)


def test_a_worker_must_be_heard_of_within_its_session() -> None:
    with pytest.raises(UserError, match="less than"):
        WorkerConfig.of({**GIVEN, "session.timeout.ms": "1000"}, DISTRIBUTED)


def test_workers_are_known_by_the_address_they_advertise() -> None:
    advertised = {"rest.advertised.host.name": "w1", "rest.advertised.port": "99"}
    assert WorkerConfig.of({**GIVEN, **advertised}, DISTRIBUTED).worker_id == "w1:99"
    here = WorkerConfig.of({**GIVEN, "listeners": "http://127.0.0.1:8084"}, DISTRIBUTED)
    assert here.worker_id == "127.0.0.1:8084"


def test_properties_without_effect_are_reported() -> None:
    (notice,) = WorkerConfig.of({**GIVEN, "connect.protocol": "eager"}, DISTRIBUTED).notices()
    assert "connect.protocol has no effect" in notice
