"""`kafka-delete-records`, `-get-offsets`, `-log-dirs`, `-cluster`, `-features` and
`-broker-api-versions` against a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.running import Fail, Run
from tests.raw_client import RawClient

from ottla.client.admin import Admin, NewTopic
from ottla.testing.broker import BrokerProcess

START_MS = 1_600_000_000_000


@pytest.fixture
def filled(broker: BrokerProcess, client: RawClient, topic: str) -> Iterator[str]:
    """Create a topic with two partitions; the first has ten records, one second apart."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topics(NewTopic(topic, 2, configs={"retention.ms": "-1"}))
        records = [(None, b"v", (), START_MS + 1000 * number) for number in range(10)]
        assert client.produce(topic, records).error_code == 0
        yield topic
        admin.delete_topics(topic)


# ------------------------------------------------------------------------------ get-offsets


@pytest.mark.parametrize(
    ("time", "lines"),
    [
        ([], ["0:10", "1:0"]),
        (["--time", "-1"], ["0:10", "1:0"]),
        (["--time", "earliest"], ["0:0", "1:0"]),
        (["--time", "-3"], ["0:9"]),
        (["--time", str(START_MS + 2001)], ["0:3"]),
        (["--time", str(START_MS * 2)], []),
    ],
)
def test_offsets_by_position_and_by_time(
    succeed: Run, filled: str, time: list[str], lines: list[str]
) -> None:
    found = succeed("get-offsets", "--topic", filled, *time).lines
    assert found == [f"{filled}:{line}" for line in lines]


@pytest.mark.parametrize(
    ("partitions", "numbers"), [("0", [0]), ("1-", [1]), ("-1", [0]), ("0-2", [0, 1]), ("", [0, 1])]
)
def test_partitions_are_chosen(
    succeed: Run, filled: str, partitions: str, numbers: list[int]
) -> None:
    found = succeed("get-offsets", "--topic-partitions", f"{filled}:{partitions}", "--json").json
    assert [each["partition"] for each in found["offsets"]] == numbers


def test_offsets_of_nothing(fail: Fail, filled: str) -> None:
    assert "Could not match" in fail("get-offsets", "--topic", "missing")
    assert "Could not match" in fail("get-offsets", "--topic", filled, "--partitions", "7")
    assert "neither" in fail("get-offsets", "--time", "now")
    assert "cannot be combined with --topic" in fail(
        "get-offsets", "--topic-partitions", "a", "--topic", "b"
    )
    assert "must look like" in fail("get-offsets", "--topic-partitions", "a:b")


# --------------------------------------------------------------------------- delete-records


def test_records_are_deleted_up_to_the_offsets_of_a_file(
    run: Run, succeed: Run, filled: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.json"
    partitions = [
        {"topic": filled, "partition": 0, "offset": 4},
        {"topic": filled, "partition": 1, "offset": 5},
    ]
    file.write_text(json.dumps({"partitions": partitions, "version": 1}))
    ran = run("delete-records", "--offset-json-file", str(file))
    assert ran.code == 1
    assert ran.lines[:3] == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {filled}-0\tlow_watermark: 4",
    ]
    assert ran.lines[3].startswith(f"partition: {filled}-1\terror: ")
    assert f"{filled}-1" in ran.err
    earliest = succeed("get-offsets", "--topic", filled, "--time", "earliest").lines
    assert earliest == [f"{filled}:0:4", f"{filled}:1:0"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "is not valid JSON"),
        ("[]", "must look like"),
        ('{"partitions": [{"topic": "t"}]}', "must look like"),
        ('{"partitions": [], "version": 2}', "version 2"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 1},'
            ' {"topic": "t", "partition": 0, "offset": 2}]}',
            "t-0 twice",
        ),
    ],
)
def test_an_empty_file_deletes_nothing(
    fail: Fail, tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    assert message in fail("delete-records", "--offset-json-file", str(file))
    assert "Cannot read" in fail("delete-records", "--offset-json-file", f"{file}.none")


# -------------------------------------------------------------------------------- log-dirs


def test_log_directories_are_kafkas_json(succeed: Run, fail: Fail, filled: str) -> None:
    lines = succeed("log-dirs", "--describe", "--topic-list", filled).lines
    assert lines[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 1",
    ]
    found = json.loads(lines[2])
    as_json = succeed("log-dirs", "--describe", "--topic-list", filled, "--json").json
    for shown in (found, as_json):
        ((directory,),) = (broker["logDirs"] for broker in shown["brokers"])
        # Other programs may write to the disk between the two calls.
        assert 0 < directory.pop("usableBytes") < directory["totalBytes"]
    assert found == as_json
    assert directory["error"] is None
    first, second = directory["partitions"]
    assert (first["partition"], second["partition"]) == (f"{filled}-0", f"{filled}-1")
    assert first["size"] > second["size"] == 0
    assert "Broker 9 does not exist" in fail("log-dirs", "--describe", "--broker-list", "9")
    assert "must look like" in fail("log-dirs", "--describe", "--broker-list", "a")
    assert "missing" in fail("log-dirs", "--describe", "--topic-list", "missing")
    assert "--describe" in fail("log-dirs")


# --------------------------------------------------------------------------------- cluster


def test_the_cluster_and_its_brokers(succeed: Run, broker: BrokerProcess) -> None:
    cluster_id = succeed("cluster cluster-id", "--json").json["cluster_id"]
    assert succeed("cluster cluster-id").out == f"Cluster ID: {cluster_id}\n"
    header, row = (line.split() for line in succeed("cluster list-endpoints").lines)
    assert header == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    assert row == ["1", "127.0.0.1", str(broker.port), "null", "unfenced", "broker"]


def test_features_and_api_versions(succeed: Run) -> None:
    features = succeed("features describe", "--json").json
    lines = succeed("features describe").lines
    assert len(lines) == len({*features["supported"], *features["finalized"]})
    text = succeed("broker-api-versions").out
    assert "(id: 1 rack: null isFenced: false) -> (\n\tProduce(0): " in text
    assert "\tMetadata(3): 0 to 13 [usable: 13],\n" in text
    versions = succeed("broker-api-versions", "--json").json["brokers"]["1"]
    metadata = versions["Metadata"]
    assert [metadata[name] for name in ("api_key", "minimum", "maximum", "usable")] == [
        3,
        0,
        13,
        13,
    ]
