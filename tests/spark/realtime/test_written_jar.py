"""The JAR that users write to a file and submit, on a cluster to which programs add no JARs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.conftest import SOURCE, Topic
from tests.spark.test_standalone import standalone

from ottla.testing.broker import BrokerProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]
PATIENCE_S = 600
PROGRAM = """
import sys, time, ottla.spark
from ottla.streams.query_failures import is_transient
master, jar, bootstrap, source, target, home = sys.argv[1:]
spark = ottla.spark.session(master, **{
    "spark.jars": jar, "spark.executor.cores": 1, "spark.cores.max": 2,
    "spark.executor.memory": "512m",
})
given = {"kafka.bootstrap.servers": bootstrap}
rows = spark.readStream.format("ottla").options(**given, subscribe=source)
rows = rows.option("startingOffsets", "earliest").load()
writer = rows.select("value").writeStream.format("ottla").options(**given, topic=target)
writer = writer.option("checkpointLocation", home).outputMode("update")
writer = writer.trigger(realTime="5 seconds")
query, rows_read = writer.start(), 0
while rows_read < 20:
    if query.exception() is not None:  # on a busy machine, Python starts too slowly for Spark
        assert is_transient(str(query.exception())), query.exception()
        query = writer.start()
    rows_read = sum(each.numInputRows for each in query.recentProgress)
    time.sleep(0.1)
query.stop()
spark.stop()
"""


def test_a_real_time_query_runs_with_the_jar_that_was_written_to_a_file(tmp_path: Path) -> None:
    jar, cache = tmp_path / "ottla-spark.jar", tmp_path / "cache"
    run(tmp_path / "first-cache", "-m", "ottla.spark.realtime", str(jar))
    with BrokerProcess() as broker, standalone(tmp_path) as master:
        source, target = Topic(broker, "source", 2), Topic(broker, "target", 1)
        for partition in range(2):
            source.fill([f"p{partition}v{n}" for n in range(10)], partition=partition)
        arguments = (master, str(jar), broker.bootstrap, source.name, target.name)
        run(cache, "-c", PROGRAM, *arguments, str(tmp_path / "checkpoint"))
        assert sorted(set(target.values())) == source.values()
    assert list(cache.rglob("*.jar")) == [], "the program has not compiled one"


def run(cache: Path, *arguments: str) -> None:
    result = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": SOURCE, "SPARK_LOCAL_IP": "127.0.0.1",
             "XDG_CACHE_HOME": str(cache), "OTTLA_JAVA_CACHE": "off"},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
