"""Very many partitions: creation, memory, clean restart, and produce latency."""

from __future__ import annotations

import time

from bench.load import latencies_ms
from bench.peers import topics
from bench.peers.brokers import Peer, both
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale
from bench.peers.startup import memory, start_to_first_ack

TOPICS = 10
SENT = 1_000


def run(scale: Scale) -> list[Row]:
    rows = Rows("partitions")
    many = f"{scale.partitions:,} partitions"
    with both() as peers:
        for peer in peers:
            start = time.perf_counter()
            for number in range(TOPICS):
                topics.create(peer.bootstrap, f"many-{number}", scale.partitions // TOPICS)
            _add_lower_is_better(rows, peer, f"creating {many}", "s", time.perf_counter() - start)
            taken = latencies_ms(peer.bootstrap, "many-0", scale.partitions // TOPICS, SENT)
            _add_lower_is_better(rows, peer, f"produce with {many}, p50", "ms", taken[SENT // 2])
            _add_lower_is_better(
                rows, peer, f"produce with {many}, p99", "ms", taken[int(SENT * 0.99)]
            )
            memory(rows, peer, f"memory with {many}")
            start = time.perf_counter()
            peer.stop()
            _add_lower_is_better(
                rows, peer, f"clean stop with {many}", "s", time.perf_counter() - start
            )
            seconds = start_to_first_ack(peer, "many-0", create=False)
            _add_lower_is_better(
                rows, peer, f"start with {many}, to the first acknowledged record", "s", seconds
            )
            peer.kill()
    return rows.whole()


def _add_lower_is_better(rows: Rows, peer: Peer, what: str, unit: str, value: float) -> None:
    rows.add(what, unit, value, is_ours=peer.is_ours, higher_is_better=False)
