"""Brokers that are killed under a worker: it waits or fails, recovers, and the files stay equal."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.connect.workers import Standalone, wait_for

from ottla.testing.broker import HOST, BrokerProcess

SHORT = {"max.block.ms": "2000", "delivery.timeout.ms": "2000", "request.timeout.ms": "1000"}


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_the_sink_is_the_source_after_kills_of_the_broker(tmp_path: Path) -> None:
    chance = random.Random(11)
    with BrokerProcess(tmp_path / "broker") as broker:
        worker = Standalone(
            f"{HOST}:{broker.port}", tmp_path, default_api_timeout_ms="5000",
            **{f"producer.{name}": value for name, value in SHORT.items()},
        )  # fmt: skip
        source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
        source.write_text("")
        worker.put("from", "FileStreamSource", file=source, topic="lines")
        worker.put("to", "FileStreamSink", file=sink, topics="lines")
        for turn in range(10):
            until = time.monotonic() + chance.uniform(0.3, 4)
            while time.monotonic() < until:
                with open(source, "a") as file:
                    file.write("".join(f"{turn} {chance.random()}\n" for _ in range(20)))
                time.sleep(0.02)
            broker.kill()
            time.sleep(chance.uniform(0, 4))
            broker.start()
        wait_for(lambda: sink.exists() and sink.read_bytes() == source.read_bytes(), "equal")
        worker.close()
