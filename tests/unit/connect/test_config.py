"""Tests of worker and connector properties: known names, and errors that list every problem."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.base.config.properties import load_properties
from ottla.base.errors import UserError
from ottla.connect.config import ConnectorConfig, InvalidConnector, validate
from ottla.connect.connectors.file_stream import FileStreamSink, FileStreamSource
from ottla.connect.converters import StringConverter
from ottla.connect.data import ConnectRecord
from ottla.connect.json_converter import JsonConverter
from ottla.connect.plugins import (
    UnknownPlugin,
    connector_class,
    connector_plugins,
    transform_class,
)
from ottla.connect.worker_config import WorkerConfig

EXAMPLES = Path(__file__).parents[3] / "examples" / "connect"
JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {
    "bootstrap.servers": "a:1,b:2",
    "key.converter": JSON,
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
    "offset.storage.file.filename": "/nowhere/offsets",
}
SOURCE = {"name": "s", "connector.class": "FileStreamSource", "file": "f", "topic": "t"}
SINK = {"name": "k", "connector.class": "FileStreamSink", "file": "f", "topics": "t"}


@pytest.mark.parametrize(
    "name",
    [
        "FileStreamSource",
        "FileStreamSourceConnector",
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "ottla.connect.connectors.file_stream.FileStreamSource",
        "ottla.connect.connectors.file_stream:FileStreamSource",
    ],
)
def test_a_connector_has_many_names(name: str) -> None:
    assert connector_class(name) is FileStreamSource


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("FileStreamSauce", "did you mean FileStreamSource?"),
        ("org.apache.kafka.connect.file.FileStreamSinkkConnector", "did you mean FileStreamSink?"),
        ("Zzzzzz", "use one of"),
        ("ottla.connect.data.ConnectRecord", "is not a connector"),
    ],
)
def test_an_unknown_connector_is_reported_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UnknownPlugin) as error:
        connector_class(name)
    assert message in str(error.value)


def test_a_transform_of_a_part_must_name_it() -> None:
    with pytest.raises(UnknownPlugin, match=r"InsertField\$Key or"):
        transform_class("InsertField")
    with pytest.raises(UnknownPlugin, match="has no class Value"):
        transform_class("RegexRouter$Value")


def test_converters_are_the_workers_unless_named() -> None:
    made = ConnectorConfig.of(SOURCE, WORKER)
    assert isinstance(made.conversion.value, JsonConverter)
    assert made.conversion.to_row(ConnectRecord("t", {"a": 1})).value == b'{"a":1}'
    own = ConnectorConfig.of({**SOURCE, "value.converter": "StringConverter"}, WORKER)
    assert isinstance(own.conversion.value, StringConverter)


def test_the_connectors_own_converter_does_not_take_the_workers_options() -> None:
    made = ConnectorConfig.of({**SOURCE, "value.converter": JSON}, WORKER)
    row = made.conversion.to_row(ConnectRecord("t", {"a": 1}))
    assert row.value == b'{"schema":null,"payload":{"a":1}}'


def test_transforms_and_predicates_are_chained_in_their_order() -> None:
    made = ConnectorConfig.of(
        {
            **SINK,
            "transforms": "hoist, mark, drop",
            "transforms.hoist.type": "HoistField$Value",
            "transforms.hoist.field": "line",
            "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.mark.static.field": "by",
            "transforms.mark.static.value": "us",
            "transforms.mark.predicate": "ours",
            "transforms.mark.negate": "true",
            "transforms.drop.type": "Filter",
            "transforms.drop.predicate": "ours",
            "predicates": "ours",
            "predicates.ours.type": "TopicNameMatches",
            "predicates.ours.pattern": "our-.*",
        },
        WORKER,
    )
    done = made.chain.apply(ConnectRecord("their-1", "x"))
    assert done is not None
    assert done.value == {"line": "x", "by": "us"}
    assert made.chain.apply(ConnectRecord("our-1", "x")) is None


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({"connector.class": "FileStreamSource"}, {"name", "file", "topic"}),
        ({"name": "x"}, {"connector.class"}),
        ({**SOURCE, "tasks.max": "0"}, {"tasks.max"}),
        ({**SOURCE, "tasks.max": "many", "errors.tolerance": "some"},
         {"tasks.max", "errors.tolerance"}),
        ({**SINK, "topics.regex": "t.*"}, {"topics", "topics.regex"}),
        ({**SINK, "topics": ""}, {"topics", "topics.regex"}),
        ({**SINK, "errors.deadletterqueue.topic.name": "t"},
         {"errors.deadletterqueue.topic.name"}),
        ({**SOURCE, "value.converter": "JsonConvertor"}, {"value.converter"}),
        ({**SOURCE, "value.converter": JSON, "value.converter.schemas.enable": "maybe"},
         {"value.converter.schemas.enable"}),
        ({**SOURCE, "transforms": "a"}, {"transforms.a.type"}),
        ({**SOURCE, "transforms": "a,b", "transforms.a.type": "Cast$Value",
          "transforms.b.type": "Cast$Value", "transforms.b.spec": "x:int7"},
         {"transforms.a.spec", "transforms.b.type"}),
        ({**SOURCE, "transforms": "a", "transforms.a.type": "Filter",
          "transforms.a.predicate": "p"}, {"transforms.a.predicate"}),
        ({**SOURCE, "predicates": "p", "predicates.p.type": "TopicNameMatches",
          "predicates.p.pattern": "("}, {"predicates.p.type"}),
    ],
)  # fmt: skip
def test_all_errors_are_reported_at_once(given: Any, errors: set[str]) -> None:
    assert set(validate(given, WORKER).errors) == errors
    with pytest.raises(InvalidConnector):
        ConnectorConfig.of(given, WORKER)


def test_properties_that_nothing_reads_are_reported_with_the_nearest() -> None:
    given = {**SOURCE, "topicc": "t", "producer.override.linger.ms": "1"}
    assert validate(given, WORKER).unknown() == [
        "Property topicc does not exist; did you mean topic?"
    ]


def test_a_sink_reads_topics_by_name_or_by_pattern() -> None:
    assert ConnectorConfig.of(SINK, WORKER).settings["topics"] == ["t"]
    assert isinstance(ConnectorConfig.of(SINK, WORKER).connector, FileStreamSink)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "key.converter"),
        ({**WORKER, "listeners": "https://x:1"}, "http://host:port"),
        ({**WORKER, "offset.flush.interval.ms": "soon"}, "offset.flush.interval.ms"),
    ],
)
def test_an_invalid_worker_configuration_is_explained(given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        WorkerConfig.of(given)
    assert message in str(error.value)


def test_a_workers_clients_share_what_every_client_knows() -> None:
    made = WorkerConfig.of(
        {**WORKER, "security.protocol": "SSL", "producer.linger.ms": "5", "spark.master": "local"}
    )
    assert made.client("producer") == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SSL",
        "linger.ms": "5",
    }
    assert made.spark == {"spark.master": "local"}
    assert made.notices() == []


def test_a_workers_unknown_properties_are_reported() -> None:
    made = WorkerConfig.of({**WORKER, "offset.flush.intervall.ms": "1", "plugin.discovery": "x"})
    first, second = made.notices()
    assert "did you mean offset.flush.interval.ms?" in first
    assert "plugin.discovery has no effect" in second


def test_a_connector_without_its_package_is_reported_and_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in list(sys.modules):
        if name.startswith("ottla.connect.connectors.postgres"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UnknownPlugin, match="needs the package psycopg"):
        connector_class("io.debezium.connector.postgresql.PostgresConnector")
    listed = {each.name for each in connector_plugins()}
    assert "FileStreamSource" in listed
    assert "PostgresSource" not in listed


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("connect-*-*.properties")), ids=lambda p: p.stem
)
def test_the_examples_are_right(path: Path) -> None:
    given = load_properties(str(path))
    config = ConnectorConfig.of(given, WORKER)
    assert config.name
    assert validate(given, WORKER).unknown() == []
