"""Kills of a worker that writes to a lake: no record is lost or duplicated, whenever it dies."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.connect.workers import worker_properties

from ottla.testing.broker_thread import BrokerThread

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[2]
COMMAND = "from ottla.cli.connect_standalone import main; main()"
JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
PATIENCE_S = 120.0


def start(folder: Path, *files: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *files],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write(folder: Path, name: str, given: dict[str, Any]) -> str:
    text = "".join(f"{key}={value}\n" for key, value in given.items())
    (folder / name).write_text(text)
    return name


def ids(lake: Path) -> list[int]:
    import pyarrow.dataset as ds

    if not (lake / "killed").exists():
        return []
    found = ds.dataset(lake, format="parquet", partitioning="hive").to_table().to_pydict()
    return sorted(found["n"])


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_lake_has_every_record_once_after_kills_at_any_moment(tmp_path: Path) -> None:
    chance, lake, turns = random.Random(17), tmp_path / "lake", 15
    with BrokerThread() as broker:
        files = [
            write(tmp_path, "worker.properties", worker_properties(broker.bootstrap, tmp_path)),
            write(tmp_path, "made.properties", {
                "name": "made", "connector.class": "Datagen", "topic": "killed", "rate": "4000",
                "fields": "n:sequence,city:choice(a|b|c)", **JSON,
            }),
            write(tmp_path, "lake.properties", {
                "name": "lake", "connector.class": "ParquetSink", "topics": "killed",
                "path": lake, "flush.size": "1500", "rotate.interval.ms": "700",
                "partitioner.class": "FieldPartitioner", "partition.field.name": "city", **JSON,
            }),
        ]  # fmt: skip
        for _ in range(turns):
            process = start(tmp_path, *files)
            time.sleep(chance.uniform(2, 6))
            kill(process)
            found = ids(lake)
            assert found == sorted(set(found)), "a record is there twice"
        process = start(tmp_path, *files)
        seen, until = len(ids(lake)), time.monotonic() + PATIENCE_S
        while len(ids(lake)) < seen + 5_000:
            assert time.monotonic() < until, "nothing more comes"
            time.sleep(0.2)
        process.terminate()
        process.wait(timeout=60)
    found = ids(lake)
    # The source may be ahead of the stopped sink, but the sink's records have no gap.
    assert found == list(range(len(found)))
    print(f"{turns} kills, {len(found)} records")
