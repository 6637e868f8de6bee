"""Tasks in a worker of this process, on a real broker: delivery, failures and retries."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.connect.own_connectors import PLACE, Noted, Unmade, away, once
from tests.connect.workers import Standalone, lag, read, send, values, wait_for

from ottla.base.errors import UserError
from ottla.client.admin import Admin, NewTopic
from ottla.client.errors import ProducerFenced
from ottla.connect.source_task import SourceRun
from ottla.connect.states import State
from ottla.testing.broker_thread import BrokerThread

NUMBERS, NOTED, UNMADE = f"{PLACE}:Numbers", f"{PLACE}:Noted", f"{PLACE}:Unmade"


def numbers(count: int) -> list[str]:
    return [str(n) for n in range(count)]


def test_records_move_from_a_source_through_a_topic_to_a_sink(worker: Standalone) -> None:
    worker.put("from", NUMBERS, topic="moves", count=500)
    worker.put("to", NOTED, topics="moves", list="moves")
    wait_for(lambda: Noted.values("moves") == numbers(500))
    wait_for(lambda: lag(worker.bootstrap, "connect-to", "moves") == 0, "lag")
    assert worker.herder.offsets("from") == [{"partition": {"table": 0}, "offset": {"next": 500}}]
    assert worker.herder.topics("from") == worker.herder.topics("to") == ["moves"]


def test_a_task_that_fails_is_started_again_and_doubles_nothing(worker: Standalone) -> None:
    worker.put("from", NUMBERS, topic="fails", count=60, **{"fail.at": 20})
    wait_for(lambda: len(values(worker.bootstrap, "fails")) >= 60)
    assert [each.decode() for each in values(worker.bootstrap, "fails")] == numbers(60)
    worker.wait_for_state("from", State.RUNNING)


def test_an_interrupted_batch_comes_again_with_its_number_and_its_records(
    worker: Standalone,
) -> None:
    Noted.trouble["again"] = once(ValueError("boom"))
    send(worker.bootstrap, "again", b"a", b"b")
    worker.put("to", NOTED, topics="again", list="again")
    wait_for(lambda: Noted.done.get("again"))
    assert Noted.given["again"][0] == Noted.given["again"][1]
    send(worker.bootstrap, "again", b"c")
    wait_for(lambda: len(Noted.done["again"]) >= 2)
    assert Noted.values("again") == ["a", "b", "c"]


def test_a_batch_is_interrupted_by_the_end_of_its_worker_too(
    broker: BrokerThread, tmp_path: Path
) -> None:
    first = Standalone(broker.bootstrap, tmp_path, task_restart_max_attempts="0")
    Noted.trouble["ended"] = once(ValueError("boom"))
    send(broker.bootstrap, "ended", b"a")
    first.put("to", NOTED, topics="ended", list="ended")
    assert first.wait_for_state("to", State.FAILED) == "ValueError: boom"
    first.close()
    send(broker.bootstrap, "ended", b"b")
    second = Standalone(broker.bootstrap, tmp_path)
    second.put("to", NOTED, topics="ended", list="ended")
    wait_for(lambda: len(Noted.done.get("ended", [])) >= 2)
    second.close()
    assert Noted.given["ended"] == [(0, ["a"]), (0, ["a"]), (1, ["b"])]


def test_offsets_of_the_group_that_somebody_reset_count(worker: Standalone) -> None:
    send(worker.bootstrap, "reset", b"a", b"b")
    worker.put("resets", NOTED, topics="reset", list="reset")
    wait_for(lambda: Noted.values("reset") == ["a", "b"])
    worker.herder.set_target_state("resets", State.STOPPED)
    one = {
        "partition": {"kafka_topic": "reset", "kafka_partition": 0},
        "offset": {"kafka_offset": 1},
    }
    worker.herder.alter_offsets("resets", [one])
    assert worker.herder.offsets("resets") == [one]
    worker.herder.set_target_state("resets", State.RUNNING)
    wait_for(lambda: Noted.values("reset") == ["a", "b", "b"])


def test_what_may_pass_is_tried_again_without_a_failure(worker: Standalone) -> None:
    Noted.trouble["passes"] = away(2)
    send(worker.bootstrap, "passes", b"a")
    worker.put("to", NOTED, topics="passes", list="passes", **{"errors.retry.timeout": 60_000})
    wait_for(lambda: Noted.done.get("passes"))
    assert Noted.done["passes"] == [0]


def test_transforms_are_applied_and_what_they_drop_counts_as_done(worker: Standalone) -> None:
    worker.put(
        "from", NUMBERS, topic="plain", count=20, transforms="route,drop", predicates="all",
        **{"transforms.route.type": "RegexRouter", "transforms.route.regex": "(.*)",
           "transforms.route.replacement": "$1-x", "transforms.drop.type": "Filter",
           "transforms.drop.predicate": "all", "predicates.all.type": "TopicNameMatches",
           "predicates.all.pattern": "plain-x"},
    )  # fmt: skip
    wait_for(lambda: worker.herder.offsets("from"))
    wait_for(lambda: worker.herder.offsets("from")[0]["offset"] == {"next": 20})
    with Admin(worker.bootstrap) as admin:
        assert not {"plain", "plain-x"} & set(admin.list_topics())


def test_a_poison_record_fails_the_task_and_the_status_has_the_reason(worker: Standalone) -> None:
    json_values = {"value.converter": "JsonConverter"}
    send(worker.bootstrap, "poison", b"{")
    worker.put("to", NOTED, topics="poison", list="poison", **json_values)
    trace = worker.wait_for_state("to", State.FAILED)
    assert "poison-0@0 failed at VALUE_CONVERTER in JsonConverter" in trace
    assert "errors.tolerance=all" in trace


def test_a_tolerated_poison_record_goes_to_the_dead_letters(worker: Standalone) -> None:
    send(worker.bootstrap, "letters", b'"1"', b"{", b'"3"')
    worker.put(
        "to", NOTED, topics="letters", list="letters",
        **{"value.converter": "JsonConverter", "value.converter.schemas.enable": "false",
           "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead",
           "errors.deadletterqueue.topic.replication.factor": 1,
           "errors.deadletterqueue.context.headers.enable": "true"},
    )  # fmt: skip
    wait_for(lambda: Noted.values("letters") == ["1", "3"])
    (letter,) = read(worker.bootstrap, "dead")
    stored = dict(letter.headers)
    assert letter.value == b"{"
    assert stored["__connect.errors.topic"] == b"letters"
    assert stored["__connect.errors.offset"] == b"1"
    assert stored["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert stored["__connect.errors.connector.name"] == b"to"


def test_a_source_that_is_taken_over_fences_the_previous_task(
    worker: Standalone, caplog: pytest.LogCaptureFixture
) -> None:
    file = worker.folder / "in.txt"
    file.write_text("a\n")
    worker.put("from", "FileStreamSource", file=file, topic="zombies")
    wait_for(lambda: worker.herder.offsets("from"))
    herder = worker.herder
    (context,) = herder._contexts(herder._found("from"))
    # Start the task a second time, as another worker would that believes this one is dead.
    stopping = threading.Event()
    SourceRun(context).run(stopping, stopping.set)
    file.write_text("a\nb\n")
    wait_for(lambda: len(values(worker.bootstrap, "zombies")) == 2)
    assert "task from-0 failed" in caplog.text
    worker.wait_for_state("from", State.RUNNING)
    assert values(worker.bootstrap, "zombies") == [b"a", b"b"]


def test_tasks_share_partitions_of_a_source_and_of_a_topic(worker: Standalone) -> None:
    with Admin(worker.bootstrap) as admin:
        admin.create_topics(NewTopic("shared", 3))
    worker.put("from", NUMBERS, topic="shared", count=40, tables=3, **{"tasks.max": 3})
    worker.put("to", NOTED, topics="shared", list="shared", **{"tasks.max": 2})
    assert len(worker.herder.status("from").tasks) == 3
    assert len(worker.herder.status("to").tasks) == 2

    def all_given() -> list[Any]:
        return sorted(value for _, given in Noted.given.get("shared", []) for value in given)

    wait_for(lambda: all_given() == sorted(numbers(40) * 3))
    wait_for(lambda: len(worker.herder.offsets("from")) == 3)


def test_topics_by_a_pattern_include_those_that_come_later(
    worker: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.connect.sink_task.LOOK_FOR_TOPICS_S", 0.2)
    send(worker.bootstrap, "pattern-a", b"a")
    worker.put("to", NOTED, list="pattern", **{"topics.regex": "pattern-.*"})
    wait_for(lambda: Noted.values("pattern") == ["a"])
    send(worker.bootstrap, "pattern-b", b"b")
    wait_for(lambda: Noted.values("pattern") == ["a", "b"])


def test_a_connector_that_cannot_list_its_tasks_is_failed_until_it_can(worker: Standalone) -> None:
    worker.put("from", UNMADE)
    status = worker.herder.status("from")
    assert (status.connector.state, status.connector.trace) == (
        State.FAILED, "the database is away",
    )  # fmt: skip
    Unmade.is_away = False
    wait_for(lambda: worker.herder.status("from").connector.state is State.RUNNING)


def test_ten_connectors_run_in_one_worker(worker: Standalone) -> None:
    for n in range(5):
        worker.put(f"from-{n}", NUMBERS, topic=f"ten-{n}", count=50)
        worker.put(f"to-{n}", NOTED, topics=f"ten-{n}", list=f"ten-{n}")
    for n in range(5):
        wait_for(lambda n=n: Noted.values(f"ten-{n}") == numbers(50), f"{n}")  # type: ignore[misc]


@pytest.mark.timeout(180)
def test_brokers_that_are_away_fail_tasks_with_the_reason_until_they_are_back(
    tmp_path: Path,
) -> None:
    with BrokerThread() as broker:
        short = {"max.block.ms": "1000", "delivery.timeout.ms": "1000", "request.timeout.ms": "500"}
        worker = Standalone(
            broker.bootstrap, tmp_path, default_api_timeout_ms="1000",
            **{f"producer.{name}": value for name, value in short.items()},
        )  # fmt: skip
        source = tmp_path / "in.txt"
        source.write_text("a\n")
        worker.put("from", "FileStreamSource", file=source, topic="lines")
        worker.put("to", NOTED, topics="lines", list="away")
        wait_for(lambda: Noted.values("away") == ["a"])
        broker.stop()
        with open(source, "a") as file:
            file.write("b\n")
        assert worker.wait_for_state("from", State.FAILED)
        broker.start()
        wait_for(lambda: Noted.values("away") == ["a", "b"])
        worker.wait_for_state("from", State.RUNNING)
        worker.close()


def test_the_file_of_offsets_is_readable_and_offsets_outlive_it(worker: Standalone) -> None:
    worker.put("from", NUMBERS, topic="readable", count=30)
    wait_for(lambda: worker.herder.offsets("from"))
    wait_for(lambda: worker.herder.offsets("from")[0]["offset"] == {"next": 30})
    worker.herder.store.flush()
    stored = json.loads((worker.folder / "connect.offsets").read_text())
    assert stored["connectors"]["from"]["offsets"] == worker.herder.offsets("from")


def test_unknown_errors_are_named_and_known_ones_are_sentences() -> None:
    from ottla.connect.task_thread import sentence

    assert sentence(UserError("No such file.")) == "No such file."
    assert sentence(KeyError("x")) == "KeyError: 'x'"
    assert sentence(ProducerFenced("fenced")) == "fenced"
