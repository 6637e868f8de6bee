"""Costs of TLS: throughput, CPU time, latency, handshakes and memory, with and without it.

Each broker has a plain-text and a TLS listener, so all figures come from the same processes. The
version is TLS 1.3, with an ECDSA certificate (P-256) and the cipher suite that both sides prefer.
"""

from __future__ import annotations

import shutil
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compat.certificates import Certificates

from bench.measure import touch_memory
from bench.peers import topics, wire_load
from bench.peers.brokers import HOST, Peer, alternating, both, cpu_of, megabytes_of
from bench.peers.latency import add_quantiles, end_to_end_ms
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale
from bench.peers.throughput import BATCH_BYTES, GB, MB, PARTITIONS, READS

SIZE_BYTES = 1_000
RATE = 1_000
HANDSHAKE_THREADS = 4
IDLE_CONNECTIONS = 1_000
NODE = 1


def run(scale: Scale) -> list[Row]:
    rows = Rows("tls")
    with _certificates() as certificates, both(certificates=certificates) as peers:
        context = certificates.client_context()
        for number, peer in alternating(peers, scale.rounds):
            for tls in (None, context):
                _throughput(rows if number else Rows(""), peer, tls, scale.load_bytes)
        for number, peer in alternating(peers, scale.rounds):
            for secured in (False, True):
                found = _latency(peer, scale.latency_s, certificates if secured else None)
                what = f"end to end, 1 KB, {RATE:,}/s, {_transport(secured)}"
                add_quantiles(rows if number else Rows(""), peer, what, found)
        for number, peer in alternating(peers, scale.rounds):
            _handshakes(rows if number else Rows(""), peer, context, scale.requests_s)
        for peer in peers:
            _idle_connections(rows, peer, context)
    return rows.whole()


@contextmanager
def _certificates() -> Iterator[Certificates]:
    directory = Path(tempfile.mkdtemp(prefix="ottla-certificates-"))
    try:
        yield Certificates(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _transport(secured: bool) -> str:
    return "TLS" if secured else "plain text"


def _throughput(rows: Rows, peer: Peer, tls: ssl.SSLContext | None, load_bytes: int) -> None:
    batch, records = wire_load.batch_of(SIZE_BYTES, BATCH_BYTES, "none")
    batches = max(1, load_bytes // (records * SIZE_BYTES * PARTITIONS))
    total_bytes = batches * records * SIZE_BYTES * PARTITIONS
    touch_memory(2 * load_bytes)
    what = f"1000 B, {_transport(tls is not None)}"
    with topics.topic(peer.bootstrap, "tls", PARTITIONS) as (name, leaders):
        if tls is not None:
            leaders = dict.fromkeys(leaders, (HOST, peer.tls_ports[NODE]))
        before = cpu_of(peer)
        seconds = wire_load.produce(leaders, name, batch, batches, tls=tls)
        _add(rows, peer, f"produce, {what}", total_bytes, seconds, cpu_of(peer) - before)
        ends = dict.fromkeys(leaders, batches * records)
        before = cpu_of(peer)
        seconds = sum(wire_load.consume(leaders, name, ends, tls) for _ in range(READS)) / READS
        _add(rows, peer, f"consume, {what}", total_bytes, seconds, (cpu_of(peer) - before) / READS)


def _add(rows: Rows, peer: Peer, what: str, total_bytes: int, seconds: float, cpu_s: float) -> None:
    rows.add(what, "MB/s", total_bytes / MB / seconds, is_ours=peer.is_ours)
    rows.add(
        f"{what}: broker's CPU",
        "CPU s/GB",
        max(cpu_s, 0.01) / (total_bytes / GB),
        is_ours=peer.is_ours,
        higher_is_better=False,
    )


def _latency(peer: Peer, seconds: float, certificates: Certificates | None) -> list[float]:
    with topics.topic(peer.bootstrap, "tls-latency", 1) as (name, _):
        if certificates is None:
            return end_to_end_ms(peer.bootstrap, name, RATE, seconds)
        bootstrap = f"{HOST}:{peer.tls_ports[NODE]}"
        return end_to_end_ms(bootstrap, name, RATE, seconds, certificates.librdkafka_properties())


def _handshakes(rows: Rows, peer: Peer, tls: ssl.SSLContext, seconds: float) -> None:
    """Connect and disconnect in several threads: OpenSSL works outside the interpreter's lock."""
    address = (HOST, peer.tls_ports[NODE])
    counts = [0] * HANDSHAKE_THREADS
    before, end = cpu_of(peer), time.perf_counter() + seconds

    def connect(number: int) -> None:
        while time.perf_counter() < end:
            with wire_load.Connection(address, tls):
                counts[number] += 1

    threads = [threading.Thread(target=connect, args=(each,)) for each in range(HANDSHAKE_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = max(cpu_of(peer) - before, 0.01)
    rows.add("TLS handshakes", "per s", sum(counts) / seconds, is_ours=peer.is_ours)
    rows.add(
        "TLS handshakes: per CPU second", "handshakes", sum(counts) / spent, is_ours=peer.is_ours
    )


def _idle_connections(rows: Rows, peer: Peer, tls: ssl.SSLContext) -> None:
    address = (HOST, peer.tls_ports[NODE])
    before = megabytes_of(peer)
    with ExitStack() as connections:
        for _ in range(IDLE_CONNECTIONS):
            connections.enter_context(wire_load.Connection(address, tls))
        held = megabytes_of(peer)
    what = f"{IDLE_CONNECTIONS:,} idle TLS connections"
    rows.add(f"{what}: broker's memory", "MB", held, is_ours=peer.is_ours, higher_is_better=False)
    rows.add(
        f"{what}: more memory than before",
        "MB",
        max(held - before, 0.1),
        is_ours=peer.is_ours,
        higher_is_better=False,
    )
