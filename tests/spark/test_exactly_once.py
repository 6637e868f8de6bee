"""The exactly-once protocol at every point where a driver or a task can die, without Spark.

The tests make Spark's calls in Spark's order; a crash is a call that is not made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.conftest import Topic

from ottla import Admin
from ottla.spark import exactly_once, shared_client, sink
from ottla.spark.exactly_once import BatchUndecidable
from ottla.testing.broker_thread import BrokerThread

QUERY = "a-query"


class Query:
    """A streaming query that writes to the sink, driven as by Spark."""

    def __init__(self, topic: Topic, patch: pytest.MonkeyPatch, **options: str) -> None:
        from pyspark.sql.types import BinaryType, StructField, StructType

        self._patch = patch
        self._schema = StructType([StructField("value", BinaryType())])
        self._options = {
            "kafka.bootstrap.servers": topic.broker.bootstrap,
            "kafka.transactional.id": f"q-{topic.name}",
            "topic": topic.name,
            **options,
        }

    def writer(self) -> Any:
        """Return a new writer without shared state, as Spark uses a new process for each phase."""
        exactly_once._logs.clear()
        for client in shared_client._clients.values():
            client.close()
        shared_client._clients.clear()
        return sink.stream_writer(self._options, self._schema, False)

    def plan(self) -> Any:
        """Return a writer as the driver sends it to the tasks."""
        writer = self.writer()
        writer.prepare()
        return writer

    def task(
        self, writer: Any, batch: int, task: int, rows: list[str], attempt: int = 0,
        query: str = QUERY,
    ) -> Any:  # fmt: skip
        properties = {sink.BATCH_ID: str(batch), sink.QUERY_ID: query}
        self._patch.setattr(sink, "_task", lambda: (task, attempt, properties))
        return writer.write(_arrow(rows))

    def tasks(self, writer: Any, batch: int, *rows: list[str]) -> list[Any]:
        return [self.task(writer, batch, task, each) for task, each in enumerate(rows)]

    def run(self, batch: int, *rows: list[str]) -> None:
        self.writer().commit(self.tasks(self.plan(), batch, *rows), batch)


def _arrow(rows: list[str]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array([row.encode() for row in rows], pa.binary())], ["value"])


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    return make_topic(3)


@pytest.fixture
def query(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(topic, monkeypatch)


def open_transactions(topic: Topic) -> list[str]:
    with Admin(topic.broker.bootstrap) as admin:
        listed = admin.list_transactions(states=["Ongoing"])
    return [name for name in listed if topic.name in name]


class Crash(Exception):
    pass


def crash_before(patch: pytest.MonkeyPatch, name: str, calls: int = 0) -> None:
    """Make a function of the protocol raise Crash after `calls` successful calls."""
    real, left = getattr(exactly_once, name), [calls]

    def call(*arguments: Any, **named: Any) -> Any:
        if not left[0]:
            raise Crash
        left[0] -= 1
        return real(*arguments, **named)

    patch.setattr(exactly_once, name, call)


def test_batches_are_seen_when_they_are_committed(query: Query, topic: Topic) -> None:
    writer = query.plan()
    messages = query.tasks(writer, 0, ["a", "b"], ["c"], [])
    assert topic.values() == []
    query.writer().commit(messages, 0)
    assert topic.values() == ["a", "b", "c"]
    query.run(1, ["d"], ["e"])
    assert topic.values() == ["a", "b", "c", "d", "e"]
    assert open_transactions(topic) == []


def test_an_undecided_batch_is_written_anew(query: Query, topic: Topic) -> None:
    query.tasks(query.plan(), 0, ["a"], ["b"])  # the driver dies before the commit
    query.run(0, ["a"], ["b"])
    assert topic.values() == ["a", "b"]
    assert open_transactions(topic) == []


def test_a_decided_batch_is_finished_and_not_written_again(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = query.tasks(query.plan(), 0, ["a"], ["b"], ["c"])
    with monkeypatch.context() as patch:
        crash_before(patch, "commit_all")
        with pytest.raises(Crash):
            query.writer().commit(messages, 0)
    assert topic.values() == []
    query.run(0, ["a"], ["b"], ["c"])
    assert topic.values() == ["a", "b", "c"]
    # The driver died before Spark recorded the commit, so Spark runs the batch again.
    query.run(0, ["a"], ["b"], ["c"])
    assert topic.values() == ["a", "b", "c"]
    query.run(1, ["d"])
    assert topic.values() == ["a", "b", "c", "d"]


def test_a_decided_batch_is_finished_though_it_has_fewer_tasks_now(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = query.tasks(query.plan(), 0, ["a"], ["b"])
    with monkeypatch.context() as patch:
        crash_before(patch, "commit_all")
        with pytest.raises(Crash):
            query.writer().commit(messages, 0)
    query.run(0, ["a", "b"])
    assert topic.values() == ["a", "b"]


def test_a_batch_whose_decision_was_not_committed_is_written_anew(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = query.tasks(query.plan(), 0, ["a"])
    with monkeypatch.context() as patch:
        crash_before(patch, "end_transaction")
        with pytest.raises(Crash):
            query.writer().commit(messages, 0)
    query.run(0, ["a"])
    assert topic.values() == ["a"]


def test_a_driver_that_was_replaced_cannot_commit(query: Query, topic: Topic) -> None:
    stale = query.tasks(query.plan(), 0, ["a"])
    query.run(0, ["a"])
    with pytest.raises(Exception, match=r"has taken over|fenced"):
        query.writer().commit(stale, 0)
    assert topic.values() == ["a"]
    query.run(0, ["a"])
    assert topic.values() == ["a"]


def test_attempts_that_lost_are_aborted(query: Query, topic: Topic) -> None:
    writer = query.plan()
    query.task(writer, 0, 0, ["a"], attempt=0)  # the executor of this attempt dies
    message = query.task(writer, 0, 0, ["a"], attempt=1)
    query.writer().commit([message], 0)
    assert topic.values() == ["a"]
    assert open_transactions(topic) == []


def test_a_failed_batch_is_aborted(query: Query, topic: Topic) -> None:
    message = query.task(query.plan(), 0, 0, ["a"])
    query.writer().abort([message, None], 0)
    assert open_transactions(topic) == []
    assert topic.values() == []


def lose(topic: Topic, task: int) -> None:
    """Abort a task's open transaction and bump its epoch, as the broker does after a timeout."""
    with Admin(topic.broker.bootstrap) as admin:
        admin.fence_producers(f"q-{topic.name}/{task}/0")


def test_a_decided_transaction_that_timed_out_is_written_again(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = query.tasks(query.plan(), 0, ["a"], ["b"])
    with monkeypatch.context() as patch:
        crash_before(patch, "commit_all")
        with pytest.raises(Crash):
            query.writer().commit(messages, 0)
    lose(topic, 1)
    messages = query.tasks(query.plan(), 0, ["a"], ["b"])
    assert topic.values() == ["a"]
    query.writer().commit(messages, 0)
    assert topic.values() == ["a", "b"]
    query.run(0, ["a"], ["b"])
    assert topic.values() == ["a", "b"]


def test_other_rows_for_a_transaction_that_timed_out_end_the_query(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = query.tasks(query.plan(), 0, ["a"], ["b"])
    with monkeypatch.context() as patch:
        crash_before(patch, "commit_all")
        with pytest.raises(Crash):
            query.writer().commit(messages, 0)
    lose(topic, 1)
    with pytest.raises(BatchUndecidable, match="Batch 0 is only partly committed"):
        query.tasks(query.plan(), 0, ["a"], ["x"])
    fewer = query.tasks(query.plan(), 0, ["a", "b"])
    with pytest.raises(BatchUndecidable, match="no longer has this task"):
        query.writer().commit(fewer, 0)
    assert topic.values() == ["a"]
    assert open_transactions(topic) == []


def test_a_commit_that_comes_too_late_fails_and_the_restart_completes_it(
    query: Query, topic: Topic
) -> None:
    messages = query.tasks(query.plan(), 0, ["a"], ["b"])
    lose(topic, 0)
    with pytest.raises(Exception, match="were aborted before the commit"):
        query.writer().commit(messages, 0)
    query.run(0, ["a"], ["b"])
    assert topic.values() == ["a", "b"]


def test_a_checkpoint_that_is_older_than_the_output_is_refused(query: Query) -> None:
    query.run(5, ["a"])
    with pytest.raises(BatchUndecidable, match="batch 5 of this query is already committed"):
        query.task(query.plan(), 4, 0, ["b"])


def test_a_new_checkpoint_begins_anew_under_the_same_name(query: Query, topic: Topic) -> None:
    query.run(0, ["a"])
    message = query.task(query.plan(), 0, 0, ["b"], query="another")
    query.writer().commit([message], 0)
    assert topic.values() == ["a", "b"]


def test_what_another_query_of_that_name_decided_is_finished(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = query.tasks(query.plan(), 3, ["a"], ["b"])
    with monkeypatch.context() as patch:
        crash_before(patch, "commit_all")
        with pytest.raises(Crash):
            query.writer().commit(messages, 3)
    message = query.task(query.plan(), 0, 1, ["c"], query="another")
    query.writer().commit([message], 0)
    assert topic.values() == ["a", "b", "c"]
    assert open_transactions(topic) == []


def test_a_broker_restart_between_the_phases_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with BrokerThread() as broker:
        topic = Topic(broker, "restarted", 2)
        query = Query(topic, monkeypatch)
        messages = query.tasks(query.plan(), 0, ["a"], ["b"])
        broker.restart()
        query.writer().commit(messages, 0)
        broker.restart()
        query.run(1, ["c"])
        assert topic.values() == ["a", "b", "c"]


def test_decisions_are_kept_in_the_topic_that_is_named(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f"kept-for-{topic.name}"
    query = Query(topic, monkeypatch, commitTopic=elsewhere)
    query.run(0, ["a"])
    kept = Topic.__new__(Topic)
    kept.broker, kept.name = topic.broker, elsewhere
    ((key, value),) = kept.records()
    assert key == f"q-{topic.name}".encode()
    assert b'"batch":0' in value
