"""Amount of work: a full run of less than an hour on two cores, or a quick one."""

from __future__ import annotations

from dataclasses import dataclass

MB, GB = 1_000_000, 1_000_000_000


@dataclass(frozen=True)
class Scale:
    rounds: int
    load_bytes: int
    librdkafka_records: dict[int, int]
    latency_s: float
    requests_s: float
    starts: int
    restart_bytes: int
    restarts: int
    partitions: int
    failovers: int
    transactions: int
    client_records: int
    consumed_records: int
    """More than the largest poll returns."""
    table_records: int
    spark_rows: dict[int, int]
    lone_records: int


FULL = Scale(
    rounds=3,
    load_bytes=500 * MB,
    librdkafka_records={100: 1_000_000, 1_000: 300_000},
    latency_s=10.0,
    requests_s=5.0,
    starts=5,
    restart_bytes=5 * GB,
    restarts=2,
    partitions=10_000,
    failovers=3,
    transactions=500,
    client_records=200_000,
    consumed_records=500_000,
    table_records=2_000_000,
    spark_rows={100: 2_000_000, 1_000: 400_000},
    lone_records=100,
)
QUICK = Scale(
    rounds=1,
    load_bytes=100 * MB,
    librdkafka_records={100: 100_000, 1_000: 50_000},
    latency_s=3.0,
    requests_s=1.0,
    starts=1,
    restart_bytes=500 * MB,
    restarts=1,
    partitions=1_000,
    failovers=1,
    transactions=300,
    client_records=50_000,
    consumed_records=500_000,
    table_records=500_000,
    spark_rows={100: 200_000, 1_000: 50_000},
    lone_records=30,
)
