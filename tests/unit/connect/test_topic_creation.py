"""Tests of `topic.creation.*`: the settings of a source's new topics, and every kind of error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.connect.config import ConnectorConfig, validate
from ottla.connect.rest.plugins import validated
from ottla.connect.topic_creation import TopicCreation
from ottla.connect.worker_config import WorkerConfig

WORKER = {
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "offset.storage.file.filename": "/nowhere/offsets",
}
SOURCE = {"name": "s", "connector.class": "FileStreamSource", "file": "f", "topic": "t"}
T = "topic.creation."
DEFAULT = {f"{T}default.replication.factor": "2", f"{T}default.partitions": "7"}
GROUPS = {
    **DEFAULT,
    f"{T}groups": "logs, default, tables",
    f"{T}default.retention.ms": "1000",
    f"{T}default.include": "nothing",
    f"{T}logs.include": "log-.*,event",
    f"{T}logs.exclude": "log-old.*",
    f"{T}logs.partitions": "-1",
    f"{T}logs.cleanup.policy": "compact",
    f"{T}logs.min.insync.replicas": "1",
    f"{T}tables.include": ".*",
    f"{T}tables.exclude": "t",
    f"{T}tables.replication.factor": "1",
}


def made(given: dict[str, str], **worker: str) -> TopicCreation:
    named = {key.replace("_", "."): value for key, value in worker.items()}
    return ConnectorConfig.of({**SOURCE, **given}, {**WORKER, **named}).topic_creation


def settings(creation: TopicCreation, topic: str) -> tuple[str, int, int, dict[str, str]]:
    ((group, topics),) = creation.shares([topic])
    assert topics == [topic]
    return group.name, group.replication_factor, group.partitions, dict(group.configs)


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [
        ("log-1", ("logs", 2, -1, {"cleanup.policy": "compact", "min.insync.replicas": "1"})),
        ("event", ("logs", 2, -1, {"cleanup.policy": "compact", "min.insync.replicas": "1"})),
        ("events", ("tables", 1, 7, {})),
        ("log-old-1", ("tables", 1, 7, {})),
        ("t", ("default", 2, 7, {"retention.ms": "1000"})),
    ],
)
def test_the_first_group_that_takes_a_topic_has_it_and_default_the_rest(
    topic: str, wanted: Any
) -> None:
    assert settings(made(GROUPS), topic) == wanted
    assert validate({**SOURCE, **GROUPS}, WORKER).unknown() == []


def test_topics_are_shared_out_by_group() -> None:
    found = made(GROUPS).shares(["t", "log-1", "a", "log-2"])
    assert [(group.name, topics) for group, topics in found] == [
        ("logs", ["log-1", "log-2"]), ("tables", ["a"]), ("default", ["t"]),
    ]  # fmt: skip


def test_a_group_without_include_takes_nothing() -> None:
    creation = made({**DEFAULT, f"{T}groups": "empty", f"{T}empty.partitions": "3"})
    assert settings(creation, "t")[:3] == ("default", 2, 7)


def test_without_properties_topics_are_as_brokers_make_them() -> None:
    assert settings(made({}), "t") == ("default", -1, -1, {})


def test_a_worker_may_make_none_and_then_groups_do_not_count() -> None:
    creation = made({f"{T}groups": "a"}, topic_creation_enable="false")
    assert creation.shares(["t"]) == []
    assert made({}, topic_creation_enable=" False ").shares(["t"]) == []
    with pytest.raises(UserError, match=r"topic\.creation\.enable"):
        WorkerConfig.of({**WORKER, "topic.creation.enable": "perhaps"})


FACTOR = (
    "Replication factor must be positive and not larger than the number of brokers in the Kafka "
    "cluster, or -1 to use the broker's default"
)


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({f"{T}groups": "a"}, {
            f"{T}default.replication.factor": "Missing required configuration "
            f'"{T}default.replication.factor" which has no default value.',
            f"{T}default.partitions": "Missing required configuration "
            f'"{T}default.partitions" which has no default value.'}),
        ({f"{T}default.partitions": "1"}, {
            f"{T}default.replication.factor": "Missing required configuration "
            f'"{T}default.replication.factor" which has no default value.'}),
        ({**DEFAULT, f"{T}default.partitions": "0"}, {
            f"{T}default.partitions": f"Invalid value 0 for configuration {T}default.partitions: "
            "Number of partitions must be positive, or -1 to use the broker's default"}),
        ({**DEFAULT, f"{T}groups": "a", f"{T}a.replication.factor": "-2"}, {
            f"{T}a.replication.factor":
            f"Invalid value -2 for configuration {T}a.replication.factor: {FACTOR}"}),
        ({**DEFAULT, f"{T}groups": "a,b,a"}, {
            f"{T}groups": f"Invalid value [a, b, a] for configuration {T}groups: "
            "Duplicate alias provided."}),
        ({**DEFAULT, f"{T}groups": "a", f"{T}a.include": "x,(", f"{T}a.exclude": "["}, {
            f"{T}a.include": f"Invalid value [x,(] for configuration {T}a.include: "
            "Syntax error in regular expression: ",
            f"{T}a.exclude": f"Invalid value [[] for configuration {T}a.exclude: "
            "Syntax error in regular expression: "}),
        ({**DEFAULT, f"{T}default.partitions": "many"}, {
            f"{T}default.partitions": f"Invalid value many for configuration {T}default.part"}),
    ],
)  # fmt: skip
def test_validate_reports_errors_in_kafkas_words(
    given: dict[str, str], errors: dict[str, str]
) -> None:
    response = json.loads(json.dumps(validated({**SOURCE, **given}, WORKER)))
    found = {
        each["value"]["name"]: each["value"]["errors"]
        for each in response["configs"]
        if each["value"]["errors"]
    }
    assert found.keys() == errors.keys()
    assert response["error_count"] == len(errors)
    for name, message in errors.items():
        assert len(found[name]) == 1
        assert found[name][0].startswith(message)


def test_validate_shows_the_properties_of_each_group_with_the_defaults_that_count() -> None:
    response = validated({**SOURCE, **GROUPS}, WORKER)
    shown = {each["value"]["name"]: each for each in response["configs"]}
    assert response["error_count"] == 0
    assert "Topic Creation: logs" in response["groups"]
    assert shown[f"{T}tables.partitions"]["value"]["value"] == "7"
    assert shown[f"{T}tables.partitions"]["definition"]["type"] == "INT"
    assert shown[f"{T}default.partitions"]["definition"]["required"]


def test_a_group_that_is_not_listed_and_those_of_a_sink_are_warned_of() -> None:
    given = {**SOURCE, **DEFAULT, f"{T}log.partitions": "1"}
    assert validate(given, WORKER).unknown()[0].startswith(f"Property {T}log.partitions does not")
    sink = {"name": "k", "connector.class": "FileStreamSink", "file": "f", "topics": "t", **DEFAULT}
    assert len(validate(sink, WORKER).unknown()) == 2
