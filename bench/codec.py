"""Records per second of the codecs: into and out of Arrow, single records, and other clients.

All codecs take turns on the same fetch of 1 MB, and the best round of each counts, to exclude the
effect of other load on the machine. librdkafka has no codec that can be called alone, so it reads
the same records from a broker on this machine, which is more work than decoding them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from aiokafka.record import default_records as aiokafka_records
from confluent_kafka import Consumer, TopicPartition
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from kafka.record import default_records as kafka_python_records

from bench import load
from bench.measure import Figure
from ottla.testing.broker import BrokerProcess
from ottla.wire.murmur2 import partition_for_key
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.columnar.columns import RecordColumns
from ottla.wire.records.columnar.decode import decode_fetch
from ottla.wire.records.columnar.encode import encode_batches
from ottla.wire.records.columnar.partition import group_rows, partition_by_key
from ottla.wire.records.record import decode_records

ROUNDS = 40
FETCH_BYTES = 1_000_000
PARTITIONS = 12
CONSUMED_RECORDS = 200_000
COLUMNS = ("offset", "timestamp", "key", "value")
MILLION = 1_000_000
CLIENTS = {"kafka-python": kafka_python_records, "aiokafka (C)": aiokafka_records}


def run() -> Iterator[Figure]:
    yield from _loading()
    for value_bytes, batch_kb, budget in (
        (100, 1, 2),
        (100, 16, 5),
        (100, 128, 10),
        (100, 1024, 10),
        (1000, 128, 2),
    ):
        yield from _decoding(value_bytes, batch_kb, budget)
    yield from _decoding_compressed("lz4")
    yield from _decoding_compressed("zstd")
    for value_bytes, batch_kb, budget in ((100, 16, 5), (100, 128, 10), (1000, 128, 2)):
        yield from _encoding(value_bytes, batch_kb, budget)
    yield from _partitioning()
    yield from _one_by_one()
    yield _librdkafka()


def _loading() -> Iterator[Figure]:
    """Measure loading in separate processes that share a cache, which is empty at first."""
    script = (
        "import time, numba, numpy, pyarrow; before = time.perf_counter();"
        "from ottla.wire.records.columnar.warm_up import warm_up; warm_up();"
        "print(time.perf_counter() - before)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        for name, budget in (("compiled", 30), ("from the cache", 1.5)):
            printed = subprocess.check_output([sys.executable, "-c", script], env=environment)
            yield Figure(f"kernels {name}", float(printed), "s", budget)


def _records(value_bytes: int, count: int) -> pa.Table:
    keys = [b"key-%06d" % (number % 100_000) for number in range(count)]
    values = [b"%0*d" % (value_bytes, number) for number in range(count)]
    times = range(1_700_000_000_000, 1_700_000_000_000 + count)
    return pa.table({"key": keys, "value": values, "timestamp": list(times)})


def _columns(table: pa.Table) -> RecordColumns:
    return RecordColumns(**{name: table.column(name) for name in table.column_names})


def _fetch(value_bytes: int, batch_kb: int, compression: str = "none") -> tuple[bytes, int]:
    """Return about 1 MB of whole batches, as a broker sends them, and the number of records."""
    table = _records(value_bytes, FETCH_BYTES // (value_bytes + 20))
    data, offset = bytearray(), 0
    for batch in encode_batches(
        _columns(table), batch_size=batch_kb * 1024, compression=compression
    ):
        start = len(data)
        data += batch.data
        data[start : start + 8] = offset.to_bytes(8, "big")
        offset += batch.record_count
    return bytes(data), offset


def _best(contestants: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the seconds of the best round of each contestant; they take turns."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, work in contestants.items():
            before = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - before)
    return best


def _rate(name: str, count: int, seconds: float, budget: float | None = None) -> Figure:
    return Figure(name, count / seconds / MILLION, "M records/s", budget, at_least=True)


def _decoding(value_bytes: int, batch_kb: int, budget: float) -> Iterator[Figure]:
    data, count = _fetch(value_bytes, batch_kb)
    contestants: dict[str, Callable[[], object]] = {
        "into Arrow": lambda: list(decode_fetch(data, COLUMNS)),
        "into Arrow, values only": lambda: list(decode_fetch(data, ("value",))),
    }
    for name, best in _best(contestants).items():
        what = f"{name}: {value_bytes} B in {batch_kb} KB batches"
        yield _rate(what, count, best, budget)


def _decoding_compressed(codec: str) -> Iterator[Figure]:
    data, count = _fetch(100, 128, codec)
    best = _best({codec: lambda: list(decode_fetch(data, COLUMNS))})
    yield _rate(f"into Arrow: 100 B in 128 KB batches, {codec}", count, best[codec])


def _encoding(value_bytes: int, batch_kb: int, budget: float) -> Iterator[Figure]:
    table = _records(value_bytes, FETCH_BYTES // (value_bytes + 20))
    columns = _columns(table)
    best = _best({"": lambda: list(encode_batches(columns, batch_size=batch_kb * 1024))})
    what = f"out of Arrow: {value_bytes} B in {batch_kb} KB batches"
    yield _rate(what, table.num_rows, best[""], budget)


def _partitioning() -> Iterator[Figure]:
    table = _records(100, 50_000)
    key, columns = table.column("key"), _columns(table)

    def by_partition() -> object:
        groups = group_rows(partition_by_key(key, PARTITIONS), PARTITIONS)
        return [
            list(encode_batches(columns, groups.rows(partition), batch_size=131_072))
            for partition in groups.partitions
        ]

    keys = key.to_pylist()[:5_000]
    best = _best(
        {
            "hashed": lambda: partition_by_key(key, PARTITIONS),
            "encoded": by_partition,
            "ours": lambda: [partition_for_key(key, PARTITIONS) for key in keys],
            "theirs": lambda: [kafka_python_murmur2(key) for key in keys],
        }
    )
    yield _rate("hashing a column of keys", table.num_rows, best["hashed"], 20)
    yield _rate(
        f"out of Arrow: by key to {PARTITIONS} partitions", table.num_rows, best["encoded"], 5
    )
    yield _rate("hashing one key in Python", len(keys), best["ours"])
    yield _rate("hashing one key with kafka-python", len(keys), best["theirs"])
    yield _faster("hashing one key", best["ours"], best["theirs"])


def _one_by_one() -> Iterator[Figure]:
    data, count = _fetch(100, 128)
    headers = list(iter_headers(data))
    batches = [bytes(data[header.position : header.end]) for header in headers]
    rows = _records(100, count).to_pylist()
    records = [(row["key"], row["value"], row["timestamp"]) for row in rows]
    reading: dict[str, Callable[[], object]] = {
        "ottla": lambda: [decode_records(data, header) for header in headers]
    }
    writing: dict[str, Callable[[], object]] = {"ottla": lambda: _build(records)}
    for name, client in CLIENTS.items():
        reading[name] = lambda client=client: [list(client.DefaultRecordBatch(b)) for b in batches]
        writing[name] = lambda client=client: _build_by(client, records)
    for what, contestants in (("decoded", reading), ("encoded", writing)):
        best = _best(contestants, ROUNDS // 4)
        for name, seconds in best.items():
            yield _rate(f"{what} record by record: {name}", count, seconds)
        yield _faster(f"{what} record by record", best["ottla"], best["kafka-python"])


def _faster(what: str, ours: float, theirs: float) -> Figure:
    return Figure(f"{what}: faster than kafka-python", theirs / ours, "times", 1, at_least=True)


def _build(records: list[tuple[bytes, bytes, int]]) -> object:
    builder = BatchBuilder(2 * FETCH_BYTES)
    for key, value, timestamp in records:
        builder.append(key, value, timestamp)
    return builder.build()


def _build_by(client: Any, records: list[tuple[bytes, bytes, int]]) -> object:
    builder = client.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2 * FETCH_BYTES,
    )
    for number, (key, value, timestamp) in enumerate(records):
        builder.append(number, timestamp, key, value, [])
    return builder.build()


def _librdkafka() -> Figure:
    with BrokerProcess() as broker:
        load.create_topic(broker.bootstrap, "consumed", 1)
        load.produce_batches(broker.bootstrap, "consumed", 1, CONSUMED_RECORDS, 131_072, bytes(100))
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "codec"})
        try:
            consumer.assign([TopicPartition("consumed", 0, 0)])
            consumer.consume(1, load.TIMEOUT_S)
            before, left = time.perf_counter(), CONSUMED_RECORDS - 1
            while left:
                left -= len(consumer.consume(min(left, 10_000), 1))
            taken = time.perf_counter() - before
        finally:
            consumer.close()
    return _rate(
        "consumed record by record: confluent-kafka, from a broker", CONSUMED_RECORDS, taken
    )
