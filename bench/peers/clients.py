"""Our client compared to other Python clients, all of them on Apache Kafka's broker.

The programs are those of `bench.client_produce` and `bench.client_consume`: values of 100 bytes,
acks=all, batches of 16 KB and 5 ms; record by record, and for ours also as Arrow tables.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from types import ModuleType
from typing import Any

from bench import client_consume, client_produce
from bench.load import in_processes
from bench.peers import topics
from bench.peers.brokers import Peer, both
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale

PEERS = {"confluent": "confluent-kafka", "kafka_python": "kafka-python", "aiokafka": "aiokafka"}
OURS = {
    "produce": {"ours": "record by record", "ours_table": "as Arrow tables"},
    "consume": {"ours": "record by record", "ours_as_tables": "as Arrow tables"},
}


def run(scale: Scale) -> list[Row]:
    rows = Rows("clients")
    client_produce.RECORDS = scale.client_records
    client_consume.RECORDS = scale.consumed_records
    client_produce.TABLE_RECORDS = scale.table_records
    with both(start=False) as (_, kafka):
        kafka.start()
        topics.create(kafka.bootstrap, client_produce.TOPIC, client_produce.PARTITIONS)
        topics.create(kafka.bootstrap, client_consume.TOPIC, client_consume.PARTITIONS)
        in_processes(1, partial(client_consume.fill, kafka.bootstrap))
        for verb, module in (("produce", client_produce), ("consume", client_consume)):
            for number in range(scale.rounds + 1):
                rates = _round(module, verb, kafka)
                if number:
                    _add(rows, verb, rates)
    return rows.whole()


def _round(module: ModuleType, verb: str, kafka: Peer) -> dict[str, Any]:
    names = [*OURS[verb], *PEERS]
    return {
        name: in_processes(1, partial(getattr(module, name), kafka.bootstrap))[0] for name in names
    }


def _add(rows: Rows, verb: str, rates: dict[str, Any]) -> None:
    for ours, how in OURS[verb].items():
        for peer, package in PEERS.items():
            name = f"{package} {version(package)}"
            what = f"{verb}, 100 B, {how}"
            for rate, is_ours in ((rates[ours], True), (rates[peer], False)):
                thousands = rate.records_per_s / 1_000
                rows.add(what, "thousand/s", thousands, is_ours=is_ours, peer=name)
                rows.add(
                    f"{what}: client's CPU",
                    "µs/record",
                    rate.cpu_us,
                    is_ours=is_ours,
                    higher_is_better=False,
                    peer=name,
                )
