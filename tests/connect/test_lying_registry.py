"""Connectors whose schema registry hangs or returns wrong data.

The task fails with the reason, unless errors are tolerated, and the worker continues."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.connect.own_connectors import PLACE, Noted
from tests.connect.workers import Standalone, read, send, wait_for
from tests.unit.connect.lying_registry import LyingRegistry, http

from ottla.connect.states import State

NUMBERS, NOTED = f"{PLACE}:Numbers", f"{PLACE}:Noted"
FRAMED = b"\x00\x00\x00\x00\x07"
TOLERANT = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.replication.factor": 1,
}


@pytest.fixture
def registry() -> Iterator[LyingRegistry]:
    made = LyingRegistry()
    yield made
    made.close()


def converter(registry: LyingRegistry) -> dict[str, str]:
    value = "value.converter"
    return {
        value: "JsonSchemaConverter", f"{value}.schema.registry.url": registry.url,
        f"{value}.request.timeout.ms": "300", f"{value}.max.retries": "1",
        f"{value}.retries.wait.ms": "1",
    }  # fmt: skip


def test_a_registry_that_hangs_fails_its_tasks_in_time_and_delays_no_others(
    worker: Standalone, registry: LyingRegistry
) -> None:
    registry.response, registry.drips = b"HTTP/1.1 200 OK\r\nX: ", True
    send(worker.bootstrap, "hangs", FRAMED + b'"x"')
    worker.put("to", NOTED, topics="hangs", list="hangs", **converter(registry), **TOLERANT)
    worker.put("from", NUMBERS, topic="hangs-too", count=1, **converter(registry))
    worker.put("other", NUMBERS, topic="goes-on", count=1)
    for name in ("to", "from"):
        trace = worker.wait_for_state(name, State.FAILED)
        assert trace == (f"no schema registry responded; {registry.url}: no response within 300 ms")
    wait_for(lambda: worker.herder.topics("other") == ["goes-on"], "the other connector")
    began = time.monotonic()
    for name in ("to", "from"):
        worker.herder.delete(name)
    assert time.monotonic() - began < 15
    assert Noted.values("hangs") == []


def test_a_registry_that_comes_to_its_senses_is_believed(
    worker: Standalone, registry: LyingRegistry
) -> None:
    registry.response = http(200, b"<html>busy</html>")
    send(worker.bootstrap, "senses", FRAMED + b'"x"')
    worker.put("to", NOTED, topics="senses", list="senses", **converter(registry))
    assert "the response is not valid JSON" in worker.wait_for_state("to", State.FAILED)
    registry.response = http(200, {"schema": '{"type": "string"}', "schemaType": "JSON"})
    wait_for(lambda: Noted.values("senses") == ["x"], "the record")


def test_an_id_that_means_no_schema_or_a_wrong_one_is_tolerated_if_so_asked(
    worker: Standalone, registry: LyingRegistry
) -> None:
    for name, response, stage in (
        ("unknown", http(404, {"error_code": 40403, "message": "Schema 7 not found"}), b"404"),
        ("wrong", http(200, {"schema": '{"type": "integer"}', "schemaType": "JSON"}), b""),
    ):
        registry.response = response
        send(worker.bootstrap, name, FRAMED + b'"x"')
        worker.put(f"strict-{name}", NOTED, topics=name, list=name, **converter(registry))
        trace = worker.wait_for_state(f"strict-{name}", State.FAILED)
        assert f"{name}-0@0 failed at VALUE_CONVERTER in JsonSchemaConverter" in trace
        assert "\n" not in trace
        worker.herder.delete(f"strict-{name}")
        queue = {"errors.deadletterqueue.topic.name": f"{name}-dead",
                 "errors.deadletterqueue.context.headers.enable": "true"}  # fmt: skip
        worker.put(f"to-{name}", NOTED, topics=name, list=name, **converter(registry),
                   **TOLERANT, **queue)  # fmt: skip
        wait_for(lambda name=name: f"{name}-dead" in topics(worker), "the dead letter's topic")
        (letter,) = wait_for(lambda name=name: read(worker.bootstrap, f"{name}-dead"), "letter")
        assert letter.value == FRAMED + b'"x"'
        assert stage in dict(letter.headers)["__connect.errors.exception.message"]
        assert worker.state(f"to-{name}") is State.RUNNING


def topics(worker: Standalone) -> list[str]:
    from ottla.client.admin import Admin

    with Admin(worker.bootstrap) as admin:
        return list(admin.list_topics())
