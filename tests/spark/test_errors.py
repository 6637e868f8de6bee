"""Mistakes of a user end in one sentence, without a traceback of Ottla, PySpark or Java."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.spark.conftest import Topic

from ottla.client.errors import InvalidConfig
from ottla.spark import plain_errors

pytestmark = pytest.mark.timeout(600)

NOWHERE = {
    "kafka.bootstrap.servers": "localhost:1",
    "kafka.default.api.timeout.ms": "1500",
    "kafka.request.timeout.ms": "1000",
}
NO_BROKER = r"did not succeed within 1\.5 s: cannot connect to localhost:1"


class Mistakes:
    """Queries on one topic, each of which takes the options and the schema of a mistake."""

    def __init__(self, spark: Any, topic: Topic, checkpoint: str) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._topic = topic.name
        self._bootstrap = topic.broker.bootstrap

    def _options(self, options: Mapping[str, str], **defaults: str) -> dict[str, str]:
        where = {"kafka.bootstrap.servers": self._bootstrap}
        return {**where, **defaults, **options}

    def read(self, options: Mapping[str, str], schema: str | None = None) -> None:
        reader = self._spark.read.format("ottla")
        reader = reader if schema is None else reader.schema(schema)
        reader.options(**self._options(options, subscribe=self._topic)).load().collect()

    def read_stream(self, options: Mapping[str, str], schema: str | None = None) -> None:
        reader = self._spark.readStream.format("ottla")
        reader = reader if schema is None else reader.schema(schema)
        frame = reader.options(**self._options(options, subscribe=self._topic)).load()
        self._run(frame.writeStream.format("noop"))

    def write(self, options: Mapping[str, str], rows: str = "select 'v' value") -> None:
        mode = {"mode": "append", **options}.pop("mode")
        options = {name: text for name, text in options.items() if name != "mode"}
        writer = self._spark.sql(rows).write.format("ottla").mode(mode)
        writer.options(**self._options(options, topic=self._topic)).save()

    def write_stream(self, options: Mapping[str, str], column: str = "value") -> None:
        mode = {"outputMode": "append", **options}.pop("outputMode")
        options = {name: text for name, text in options.items() if name != "outputMode"}
        source = self._options({"subscribe": self._topic, "startingOffsets": "earliest"})
        frame = self._spark.readStream.format("ottla").options(**source).load().selectExpr(column)
        if mode == "complete":
            frame = frame.groupBy("value").count().select("value")
        writer = frame.writeStream.format("ottla").outputMode(mode)
        self._run(writer.options(**self._options(options, topic=self._topic)))

    def _run(self, writer: Any) -> None:
        query = writer.option("checkpointLocation", self._checkpoint).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()


@pytest.fixture
def mistakes(spark: Any, make_topic: Callable[..., Topic], checkpoint: str) -> Mistakes:
    topic = make_topic(1)
    topic.fill(["x"])
    return Mistakes(spark, topic, checkpoint)


@pytest.mark.parametrize(
    ("query", "options", "more", "sentence"),
    [
        ("read", {"subscribbe": "t"}, None, r"Unknown option 'subscribbe'. Did you mean subscribe"),
        ("read", {"subscribe": "missing"}, None, r"topic 'missing' does not exist"),
        ("read", NOWHERE, None, NO_BROKER),
        ("read", {}, "value STRING", r"Column 'value' is binary, not string"),
        ("read", {"startingOffsets": "latest"}, None, r"would read nothing in a batch query"),
        ("read_stream", {"subscribbe": "t"}, None, r"Unknown option 'subscribbe'"),
        ("read_stream", {"subscribbe": "t"}, "value BINARY", r"Unknown option 'subscribbe'"),
        ("read_stream", {"minPartitions": "x"}, None, r"minPartitions must be an integer"),
        ("read_stream", {"endingOffsets": "latest"}, None, r"a stream has no end"),
        ("read_stream", {"subscribe": "missing"}, None, r"topic 'missing' does not exist"),
        ("read_stream", NOWHERE, None, NO_BROKER),
        ("read_stream", {}, "value STRING", r"Column 'value' is binary, not string"),
        ("write", {"topc": "t"}, None, r"Unknown option 'topc'. Did you mean topic"),
        ("write", {}, "select 1 value", r"Column 'value' must be string or binary, not int"),
        ("write", {"mode": "overwrite"}, None, r"A topic cannot be overwritten"),
        ("write", {"topic": "a b"}, None, r"'a b' is not a valid name of a topic"),
        ("write", NOWHERE, None, NO_BROKER),
        ("write_stream", {"topc": "t"}, None, r"Unknown option 'topc'. Did you mean topic"),
        ("write_stream", {}, "1 value", r"Column 'value' must be string or binary, not int"),
        ("write_stream", {"outputMode": "complete"}, None, r"Use outputMode\('update'\) to write"),
        ("write_stream", NOWHERE, None, NO_BROKER),
    ],
)
def test_a_mistake_is_explained_in_one_sentence(
    mistakes: Mistakes, query: str, options: dict[str, str], more: str | None, sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence) as raised:
        getattr(mistakes, query)(options, *([] if more is None else [more]))
    text = str(raised.value)
    for other in ("Traceback", "UnboundLocalError", 'File "', "\tat "):
        assert other not in text


def test_only_processes_of_spark_hide_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plain_errors.HIDE_TRACEBACK, raising=False)
    for variable, error, hidden in (
        ("OTHER", InvalidConfig("x"), None),
        ("PYTHON_WORKER_FACTORY_SECRET", ValueError("a bug"), None),
        ("PYTHON_WORKER_FACTORY_SECRET", InvalidConfig("x"), "1"),
    ):
        monkeypatch.setenv(variable, "1")
        with pytest.raises(type(error)), plain_errors.plain_errors():
            raise error
        assert os.environ.get(plain_errors.HIDE_TRACEBACK) == hidden
    monkeypatch.delenv(plain_errors.HIDE_TRACEBACK)
