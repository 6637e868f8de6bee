"""`ottla cluster status` with brokers that list dead brokers, and with older ones that do not."""

from __future__ import annotations

from typing import Any

from tests.integration.cli.running import Ran, running_on
from tests.integration.client.fake_broker import KNOWN, NODE_ID, FakeBroker, Stream

from ottla.wire.api import Api

TOPIC_ID = bytes(range(16))
KAFKA_4 = {key: value for key, value in KNOWN.items() if key != Api.DESCRIBE_TOPIC_PARTITIONS}
KAFKA_3 = {**KAFKA_4, int(Api.DESCRIBE_CLUSTER): (0, 1)}
"""Kafka before 4.0 lists live brokers only."""


def partition(index: int, leader: int, replicas: list[int], isr: list[int]) -> dict[str, Any]:
    return {
        "error_code": 0,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": 0,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": [each for each in replicas if each != NODE_ID],
    }


def node(id: int, host: str, port: int, rack: str) -> dict[str, Any]:
    return {"broker_id": id, "host": host, "port": port, "rack": rack}


def status(versions: dict[int, tuple[int, int]], fenced: int | None, *arguments: str) -> Ran:
    """Run the command against one live broker, with replicas on broker 8, and `fenced` listed."""

    def script(stream: Stream) -> None:
        broker = stream.broker
        nodes = [node(NODE_ID, broker.host, broker.port, "a")]
        if fenced is not None:
            nodes.append({**node(fenced, "gone", 9092, "b"), "is_fenced": True})
        topic = {
            "error_code": 0,
            "name": "t",
            "topic_id": TOPIC_ID,
            "is_internal": False,
            "partitions": [
                partition(0, NODE_ID, [NODE_ID, 8], [NODE_ID]),
                partition(1, -1, [8], [8]),
            ],
        }
        while (asked := stream.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                stream.answer_versions(asked, versions)
            elif asked.api == Api.METADATA:
                stream.answer(asked, **{**broker.metadata(), "topics": [topic]})
            elif asked.api == Api.DESCRIBE_CLUSTER:
                described = {"error_code": 0, "cluster_id": "fake", "controller_id": NODE_ID}
                stream.answer(asked, **described, endpoint_type=1, brokers=nodes)
            elif asked.api == Api.DESCRIBE_LOG_DIRS:
                stream.answer(asked, error_code=0, results=[])
            else:
                raise AssertionError(f"unexpected request {asked}")

    with FakeBroker(script) as broker:
        return running_on(broker.bootstrap)("cluster status", *arguments)


def test_a_broker_that_hosts_replicas_and_is_not_listed_is_down() -> None:
    ran = status(KAFKA_3, None)
    assert ran.code == 0, ran.err
    assert [line.split()[0::3] for line in ran.lines[2:4]] == [["7", "up"], ["8", "down"]]
    assert ran.lines[3].split() == ["8", "-", "-", "down", "0", "2"]
    assert "Offline partitions: 1" in ran.lines


def test_a_fenced_broker_is_down_and_keeps_its_endpoint() -> None:
    brokers = status(KAFKA_4, 8, "--json").json["brokers"]
    assert [(each["id"], each["state"], each["replicas"]) for each in brokers] == [
        (7, "up", 1),
        (8, "down", 2),
    ]
    assert brokers[1]["endpoint"] == "gone:9092"
    assert brokers[1]["rack"] == "b"


def test_a_fenced_broker_without_replicas_is_listed_too() -> None:
    brokers = status(KAFKA_4, 9, "--json").json["brokers"]
    assert [(each["id"], each["endpoint"], each["replicas"]) for each in brokers[1:]] == [
        (8, None, 2),
        (9, "gone:9092", 0),
    ]
    assert {each["state"] for each in brokers[1:]} == {"down"}
