"""Connectors in a worker on a real broker, from their source to their target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.connect.workers import Standalone, read, send, values, wait_for
from tests.unit.connect.registry import FakeRegistry
from tests.unit.connect.test_http_sink import Server

from ottla.client.admin import Admin
from ottla.connect.states import State
from ottla.testing.broker_thread import BrokerThread

JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}


def letters(bootstrap: str, topic: str) -> list[Any]:
    """Return the records of the dead letter topic, which the first failed record creates."""
    with Admin(bootstrap) as admin:
        if topic not in admin.list_topics():
            return []
    return read(bootstrap, topic)


def test_rows_of_a_folder_go_through_a_topic_into_files(worker: Standalone, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,name\n1,x\nnot a row\n2,y\n")
    worker.put("rows", "FileSource", directory=folder, format="csv", topic="rows",
               **JSON, **{"errors.tolerance": "all"})  # fmt: skip
    out = tmp_path / "out"
    worker.put("lines", "FileSink", directory=out, format="json", topics="rows", **JSON)
    (folder / "b.csv").write_text("id,name\n3,z\n")
    wanted = [{"id": "1", "name": "x"}, {"id": "2", "name": "y"}, {"id": "3", "name": "z"}]

    def written() -> list[Any]:
        text = "".join(each.read_text() for each in sorted(out.glob("rows-*.jsonl")))
        return sorted((json.loads(line) for line in text.splitlines()), key=lambda row: row["id"])

    wait_for(lambda: written() == wanted)


def test_a_row_that_cannot_be_read_is_reported(worker: Standalone, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1\n")
    worker.put(
        "poison", "FileSource", file=tmp_path / "a.csv", format="csv", topic="poison", **JSON
    )
    message = worker.wait_for_state("poison", State.FAILED)
    assert "failed at TASK_POLL in FileSource" in message
    assert "a.csv: a row has 1 cells, but there are 2 fields" in message


def test_what_a_server_refuses_is_a_dead_letter(worker: Standalone) -> None:
    server = Server()
    server.response = lambda body: (422 if b"bad" in body else 200, {})
    send(worker.bootstrap, "to-http", b"1", b"bad", b"3")
    worker.put(
        "http", "HttpSink", topics="to-http",
        **{"http.url": server.url, "batching.enabled": "true", "errors.tolerance": "all",
           "value.converter": "StringConverter",
           "errors.deadletterqueue.topic.name": "refused",
           "errors.deadletterqueue.topic.replication.factor": "1",
           "errors.deadletterqueue.context.headers.enable": "true"},
    )  # fmt: skip
    (letter,) = wait_for(lambda: letters(worker.bootstrap, "refused"))
    headers = dict(letter.headers)
    assert letter.value == b"bad"
    assert headers["__connect.errors.stage"] == b"TASK_PUT"
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.class.name"] == b"HttpSink"
    assert b"responded with 422" in headers["__connect.errors.exception.message"]
    wait_for(lambda: [b for _, _, b in server.requests if b"bad" not in b] == [b"[1]", b"[3]"])
    server.close()


def test_made_up_records_are_a_lake_of_parquet(worker: Standalone, tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    dataset = pytest.importorskip("pyarrow.dataset")
    registry = FakeRegistry()
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": registry.url,
    }
    worker.put("made", "Datagen", quickstart="orders", topic="made-orders", iterations=600,
               **avro, **{"max.interval": "0"})  # fmt: skip
    lake = tmp_path / "lake"
    worker.put("lake", "ParquetSink", topics="made-orders", path=lake, **avro,
               **{"flush.size": "100", "partitioner.class": "FieldPartitioner",
                  "partition.field.name": "city", "rotate.interval.ms": "500"})  # fmt: skip

    def rows() -> list[Any]:
        if not (lake / "made-orders").exists():
            return []
        table = dataset.dataset(lake, format="parquet", partitioning="hive").to_table()
        return sorted(table.to_pylist(), key=lambda row: row["orderid"])

    wait_for(lambda: len(rows()) >= 600)
    found = rows()
    assert [row["orderid"] for row in found] == list(range(600))
    assert {row["city"] for row in found} == {"Prague", "Vienna", "Oslo", "Rome", "Cork"}
    assert registry.subjects.keys() == {"made-orders-value"}
    registry.close()


def test_another_cluster_is_mirrored(worker: Standalone) -> None:
    with BrokerThread() as other:
        send(other.bootstrap, "there", b"a", b"b")
        worker.put(
            "mirror", "org.apache.kafka.connect.mirror.MirrorSourceConnector", topics="there",
            **{"source.cluster.alias": "other", "target.cluster.alias": "here",
               "source.cluster.bootstrap.servers": other.bootstrap,
               "target.cluster.bootstrap.servers": worker.bootstrap, "tasks.max": "2"},
        )  # fmt: skip
        wait_for(lambda: worker.herder.offsets("mirror"))
        assert values(worker.bootstrap, "other.there") == [b"a", b"b"]
        send(other.bootstrap, "there", b"c")
        wait_for(lambda: values(worker.bootstrap, "other.there") == [b"a", b"b", b"c"])
        assert worker.herder.offsets("mirror") == [
            {"partition": {"cluster": "other", "topic": "there", "partition": 0},
             "offset": {"offset": 2}},
        ]  # fmt: skip
        worker.herder.set_target_state("mirror", State.STOPPED)
