"""Restart of a broker that was killed with much data: time until it accepts a record."""

from __future__ import annotations

from bench.peers import topics, wire_load
from bench.peers.brokers import both
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale
from bench.peers.startup import memory, start_to_first_ack

PARTITIONS = 8
SIZE_BYTES = 1_000
BATCH_BYTES = 65_536


def run(scale: Scale) -> list[Row]:
    rows = Rows("restart")
    batch, records = wire_load.batch_of(SIZE_BYTES, BATCH_BYTES, "none")
    batches = scale.restart_bytes // (records * SIZE_BYTES * PARTITIONS)
    size = f"{scale.restart_bytes / 1e9:g} GB"
    with both() as peers:
        for peer in peers:
            leaders = topics.create(peer.bootstrap, "much", PARTITIONS)
            wire_load.produce(leaders, "much", batch, batches)
            for _ in range(scale.restarts):
                peer.kill()
                seconds = start_to_first_ack(peer, "much", create=False)
                rows.add(
                    f"restart after kill -9 with {size} of logs, to the first acknowledged record",
                    "s",
                    seconds,
                    is_ours=peer.is_ours,
                    higher_is_better=False,
                )
            memory(rows, peer, f"memory after restart with {size} of logs")
            peer.stop()
    return rows.whole()
