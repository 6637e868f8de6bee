"""Tests of what distributed workers write: Connect's group protocol and internal topic records."""

from __future__ import annotations

import json
import struct

import pytest

from ottla.base.types import TopicPartition
from ottla.connect.distributed.config_state import (
    ConfigState,
    Entry,
    LevelRequest,
    RestartRequest,
    connector_entry,
    level_entry,
    restart_entry,
    target_entry,
    task_entries,
)
from ottla.connect.distributed.protocol import (
    Assignment,
    WorkerMetadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
)
from ottla.connect.distributed.status_state import (
    StatusState,
    status_key,
    status_value,
    topic_key,
    topic_value,
)
from ottla.connect.offset_storage import SinkPosition, offset_key, read_key
from ottla.connect.states import State, Status, TaskId


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_an_assignment_has_the_bytes_of_kafkas_protocol() -> None:
    given = Assignment(
        "m1", "http://w1:8083/", 7, frozenset({TaskId("c", -1), TaskId("c", 0)}),
        frozenset({TaskId("d", 1)}), 300,
    )  # fmt: skip
    wanted = (
        struct.pack(">hh", 1, 0)
        + text("m1")
        + text("http://w1:8083/")
        + struct.pack(">q", 7)
        + struct.pack(">i", 1) + text("c") + struct.pack(">iii", 2, -1, 0)
        + struct.pack(">i", 1) + text("d") + struct.pack(">ii", 1, 1)
        + struct.pack(">i", 300)
    )  # fmt: skip
    assert encode_assignment(given, 1) == wanted
    assert decode_assignment(wanted) == given


def test_metadata_carries_what_a_worker_has() -> None:
    given = WorkerMetadata("http://w:1/", 5, frozenset({TaskId("c", 0)}))
    assert decode_metadata(encode_metadata(given, 2)) == given
    empty = WorkerMetadata("http://w:1/", -1)
    data = encode_metadata(empty, 2)
    assert data.endswith(struct.pack(">i", -1)), "nothing is null, as in Kafka"
    assert decode_metadata(data) == empty


@pytest.mark.parametrize("data", [b"", b"\x00\x01\x00", b"\x00\x00\x00\x00", b"\xff\xff"])
def test_bytes_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="worker"):
        decode_metadata(data)


def feed(state: ConfigState, *entries: Entry, at: int = 0) -> RestartRequest | None:
    asked = None
    for offset, (key, value) in enumerate(entries, at):
        data = None if value is None else json.dumps(value).encode()
        asked = state.apply(key.encode(), data, offset) or asked
    return asked


def test_tasks_count_when_they_are_committed() -> None:
    state = ConfigState()
    first, commit = task_entries("c", [{"a": "1"}])
    feed(state, connector_entry("c", {"x": "y"}), first)
    assert state.units() == {TaskId("c", -1)}
    assert state.lacks_tasks("c")
    feed(state, commit, at=2)
    assert state.units() == {TaskId("c", -1), TaskId("c", 0)}
    assert not state.lacks_tasks("c")
    feed(state, connector_entry("c", {"x": "z"}), at=3)
    assert state.lacks_tasks("c"), "those were of the configuration before"


def test_a_stopped_connector_has_no_tasks_and_a_deleted_one_is_gone() -> None:
    state = ConfigState()
    feed(state, connector_entry("c", {}), *task_entries("c", [{}, {}]))
    feed(state, target_entry("c", State.STOPPED), at=5)
    assert state.target("c") is State.STOPPED
    assert state.lacks_tasks("c")
    feed(state, *task_entries("c", []), at=6)
    assert state.units() == {TaskId("c", -1)}
    feed(state, connector_entry("c", None), target_entry("c", None), at=7)
    assert (state.units(), state.target("c")) == (frozenset(), State.RUNNING)


def test_target_states_have_both_of_kafkas_forms() -> None:
    assert target_entry("c", State.STOPPED)[1] == {"state": "PAUSED", "state.v2": "STOPPED"}
    state = ConfigState()
    feed(state, ("target-state-c", {"state": "PAUSED"}))
    assert state.target("c") is State.PAUSED


def test_a_restart_is_asked_for_and_what_is_no_record_of_ours_is_passed_over() -> None:
    state = ConfigState()
    asked = feed(state, restart_entry("c", include_tasks=True, only_failed=False))
    assert asked == RestartRequest("c", include_tasks=True, only_failed=False)
    for key, value in ((None, b"{}"), (b"session-key", b"{}"), (b"connector-c", b"{"),
                       (b"connector-c", b"[]"), (b"commit-c", b'{"tasks": "x"}')):  # fmt: skip
        assert state.apply(key, value, 9) is None
    assert state.units() == frozenset()


def test_levels_have_kafkas_keys_and_unknown_ones_are_skipped() -> None:
    state = ConfigState()
    name, value = level_entry("org.apache", "DEBUG")
    assert name == "logger-cluster-org.apache"
    assert state.apply(name.encode(), json.dumps(value).encode(), 1) == LevelRequest(
        "org.apache", "DEBUG"
    )
    for given in (None, b"", b"[]", b"{}", b'{"level": "LOUD"}', b'{"level": null}', b"{"):
        assert state.apply(name.encode(), given, 2) is None


def test_states_and_topics_are_reported_and_forgotten() -> None:
    state = StatusState()
    task, connector = TaskId("a-b", 0), TaskId("a-b", -1)
    state.apply(status_key(task), status_value(Status(State.FAILED, "w:1", "why"), 3))
    state.apply(status_key(connector), status_value(Status(State.RUNNING, "w:1"), 3))
    assert state.of(task) == Status(State.FAILED, "w:1", "why")
    assert state.of(connector).state is State.RUNNING
    state.apply(topic_key("t", "a-b"), topic_value("t", task, 1))
    assert state.topics["a-b"] == {"t"}
    state.apply(topic_key("t", "a-b"), None)
    state.apply(status_key(task), None)
    assert state.topics["a-b"] == set()
    assert state.of(task).state is State.UNASSIGNED
    for key in (None, b"status-task-x", b"status-task-a-0"):
        state.apply(key, b"{}")


def test_offsets_have_kafkas_keys() -> None:
    assert offset_key("local-file-source", {"filename": "test.txt"}) == (
        b'["local-file-source",{"filename":"test.txt"}]'
    )
    assert read_key(b'["a",{"b":1}]') == ("a", {"b": 1})
    for data in (None, b"", b"x", b"[]", b'["a"]'):
        assert read_key(data) is None


def test_a_batch_comes_again_unless_the_groups_offsets_were_reset() -> None:
    tp = TopicPartition("a-topic", 3)
    position = SinkPosition(7, 2, "w", {tp: 5}, {tp: 9})
    assert SinkPosition.from_json(position.to_json()) == position
    assert position.is_interrupted({tp: 5})
    assert not position.is_interrupted({tp: 0})
    assert not position.is_interrupted({})
    assert not SinkPosition(7, 2, "w").is_interrupted({tp: 5})
