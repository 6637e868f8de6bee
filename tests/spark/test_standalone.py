"""A real Spark cluster from the pip package: a master and two worker processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark.conftest import SOURCE, Topic

from ottla.base.java import find_java
from ottla.testing.broker import BrokerProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]
START_TIMEOUT_S = 180.0
PROGRAM = """
import sys, ottla.spark
master, bootstrap, source, target = sys.argv[1:]
spark = ottla.spark.session(master, **{
    "spark.executor.cores": 1, "spark.cores.max": 2, "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": 4,
})
spark.sparkContext.setLogLevel("ERROR")
given = {"kafka.bootstrap.servers": bootstrap}
rows = spark.read.format("ottla").options(**given, subscribe=source, minPartitions=6).load()
counted = rows.groupBy("key").count().selectExpr("key", "cast(count as string) value")
counted.write.format("ottla").mode("append").options(**given, topic=target).save()
print("executors:", spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
spark.stop()
"""


class Daemon:
    """One process of the cluster, which is ready when its log says so."""

    def __init__(self, home: Path, name: str, *arguments: str) -> None:
        import pyspark

        spark_home = Path(pyspark.__file__).parent
        self.log = home / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home),
            "SPARK_SCALA_VERSION": "2.13",
            "PYTHONPATH": SOURCE,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(home / name),
        }
        command = [
            str(find_java()), "-cp", f"{spark_home}/jars/*", "-Xmx512m",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            *arguments,
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def said(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            found = re.search(pattern, self.log.read_text())
            if found is not None:
                return found
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def standalone(home: Path) -> Iterator[str]:
    """Start a cluster and yield its URL."""
    package = "org.apache.spark.deploy"
    daemons = [
        Daemon(
            home, "master", f"{package}.master.Master", "--host", "127.0.0.1", "--port", "0",
            "--webui-port", "0",
        )
    ]  # fmt: skip
    try:
        url = daemons[0].said(r"Starting Spark master at (spark://\S+)")[1]
        for number in range(2):
            worker = [
                f"{package}.worker.Worker", "--cores", "1", "--memory", "1g",
                "--webui-port", "0", "--host", "127.0.0.1", url,
            ]  # fmt: skip
            daemons += [Daemon(home, f"worker-{number}", *worker)]
        for daemon in daemons[1:]:
            daemon.said("Successfully registered with master")
        yield url
    finally:
        for daemon in reversed(daemons):
            daemon.stop()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with standalone(tmp_path) as url:
        yield url


def test_a_standalone_cluster_reads_and_writes(master: str, tmp_path: Path) -> None:
    with BrokerProcess() as broker:
        source, target = Topic(broker, "spread", 3), Topic(broker, "counted", 2)
        for partition in range(3):
            for key in (b"a", b"b"):
                source.fill(["v"] * 500, partition=partition, key=key)
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, master, broker.bootstrap, source.name, target.name],
            env={**os.environ, "PYTHONPATH": SOURCE, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
        assert "executors: 2" in result.stdout
        assert sorted(target.records()) == [(b"a", b"1500"), (b"b", b"1500")]
