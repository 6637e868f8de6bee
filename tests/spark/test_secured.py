"""Spark on a standalone cluster, over each way of authentication, with a profile.

The executors have no access to the files of the profile, and nothing shows its secrets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.client.certificates import needs_openssl
from tests.spark.conftest import SOURCE, Topic
from tests.spark.secured_broker import SECRETS, WAYS, SecuredBroker, secured_broker
from tests.spark.test_standalone import standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_openssl, pytest.mark.timeout(1800)]
ROOT = str(Path(__file__).parents[2])
COPIES = ("batch", "stream", "real-time", "app", "app-real-time")
AT_LEAST_ONCE = ("batch", "real-time", "app-real-time")
RECORDS = 400


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        with secured_broker(tmp_path_factory.mktemp("secured")) as made:
            yield made


@pytest.fixture(scope="module")
def cluster_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def master(secured: SecuredBroker, cluster_home: Path) -> Iterator[str]:
    with standalone(cluster_home) as url:
        yield url


@pytest.mark.chaos
@pytest.mark.parametrize("way", WAYS)
def test_a_standalone_cluster_copies_a_topic_in_every_way_and_shows_no_secret(
    way: str, secured: SecuredBroker, master: str, cluster_home: Path, tmp_path: Path
) -> None:
    source = Topic(secured, way, 2)
    for partition in range(2):
        source.fill([f"p{partition}v{n}" for n in range(RECORDS // 2)], partition=partition)
    copies = {name: Topic(secured, f"{way}-{name}", 2) for name in COPIES}
    driver, home = tmp_path / "driver", tmp_path / "home"
    driver.mkdir()
    home.mkdir()
    secured.profile(way, driver)
    interface = re.search(r"started at (http://\S+)", (cluster_home / "master.log").read_text())
    assert interface is not None
    result = subprocess.run(
        [sys.executable, "-m", "tests.spark.secured_program", master, source.name, str(RECORDS),
         str(home), interface[1]],
        cwd=driver,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}",
             "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    output = result.stdout + result.stderr
    assert result.returncode == 0, output[-10_000:]
    for name, copy in copies.items():
        expected = source.values()
        if name.startswith("app"):
            expected = sorted(value.upper() for value in expected)
        found = copy.values()
        if name in AT_LEAST_ONCE:
            found = sorted(set(found))
        assert found == expected, name

    shown = {"output": output, "broker": secured.broker.log()}
    for folder in (home, cluster_home, driver):
        files = (each for each in folder.rglob("*") if each.is_file())
        files = (each for each in files if SECRETS not in each.parts and each.suffix != ".jar")
        shown |= {str(each): each.read_text(errors="replace") for each in files}
    pages = shown[str(home / "shown" / "pages.txt")]
    for kind in ("/logPage/", "/StreamingQuery/statistics", "/SQL/execution", "/environment/"):
        assert re.search(rf"^=== \S*{kind}", pages, re.MULTILINE), kind
    for part in ("events", "stderr", "stdout", "checkpoint-stream"):
        assert any(f"/{part}" in name for name in shown), part
    leaks = {name: secured.leaks(text)[:5] for name, text in shown.items()}
    assert not {name: lines for name, lines in leaks.items() if lines}
    if way == "oauth":
        assert secured.endpoint.tokens


def test_a_query_reads_and_writes_with_a_profile_of_scram(
    secured: SecuredBroker, spark: SparkSession, tmp_path: Path
) -> None:
    source, target = Topic(secured, "scram-local", 1), Topic(secured, "scram-local-copy", 1)
    source.fill(["a", "b"])
    secured.profile("scram", tmp_path)
    profile = tmp_path / SECRETS / "client.properties"
    # The working directory of this session's JVM is not that of the profile.
    text = profile.read_text().replace(f"/proc/self/cwd/{SECRETS}/", "")
    profile.write_text(text)
    rows = (
        spark.readStream.format("ottla")
        .options(profile=str(profile), subscribe=source.name, startingOffsets="earliest")
        .load()
    )
    query = (
        rows.writeStream.format("ottla")
        .options(profile=str(profile), topic=target.name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert target.values() == ["a", "b"]
