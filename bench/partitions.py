"""Ten thousand partitions: time of a clean restart, and produce latency compared to ten."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import load
from bench.measure import Figure, resident_bytes
from ottla.testing.broker import BrokerProcess

FEW = 10
MANY = 10_000
SENT = 2_000


def run() -> Iterator[Figure]:
    with BrokerProcess() as broker:
        load.create_topic(broker.bootstrap, "few", FEW)
        few = _p99(broker, "few", FEW)
        yield Figure(f"produce p99 with {FEW} partitions", few, "ms")
        start = time.monotonic()
        for part in range(10):
            load.create_topic(broker.bootstrap, f"many-{part}", MANY // 10)
        yield Figure(f"creating {MANY} partitions", time.monotonic() - start, "s")
        for part in range(10):
            load.latencies_ms(broker.bootstrap, f"many-{part}", MANY // 10, MANY // 10)
        many = max(_p99(broker, "many-0", MANY // 10), _p99(broker, "few", FEW))
        yield Figure(f"produce p99 with {MANY} partitions", many, "ms")
        yield Figure("… as a multiple of that with few", many / few, "×", budget=2.0)
        broker.stop(60)
        start = time.monotonic()
        broker.start()
        yield Figure(f"clean restart with {MANY} partitions", time.monotonic() - start, "s", 8.0)
        yield Figure("… resident", resident_bytes(broker.pid) / 1_000_000, "MB")


def _p99(broker: BrokerProcess, topic: str, partitions: int) -> float:
    return load.latencies_ms(broker.bootstrap, topic, partitions, SENT)[int(SENT * 0.99)]
