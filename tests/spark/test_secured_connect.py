"""Connect over each way of authentication, with tasks in threads and on a standalone cluster.

The executors have no access to the files that the worker's properties name, and nothing shows the
secrets in these properties."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.connect.file_pipeline import FilePipeline
from tests.connect.test_spark_engine_cluster import CORES, Cluster, cluster
from tests.connect.workers import WorkerProcess
from tests.integration.client.certificates import needs_openssl
from tests.spark.secured_broker import WAYS, SecuredBroker, secured_broker
from tests.spark.web_pages import pages

pytestmark = [needs_openssl, pytest.mark.timeout(1800)]
LINES = 200
ADMIN = (
    "/", "/connectors?expand=info&expand=status", "/connector-plugins", "/admin/loggers",
    "/connector-plugins/FileStreamSource/config",
)  # fmt: skip
OF_CONNECTOR = ("", "/config", "/status", "/tasks", "/tasks-config", "/tasks/0/status", "/topics",
                "/offsets")  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        with secured_broker(tmp_path_factory.mktemp("secured")) as made:
            yield made


@pytest.fixture(scope="module")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def spark(secured: SecuredBroker, spark_home: Path) -> Iterator[Cluster]:
    pytest.importorskip("pyspark")
    with cluster(spark_home) as made:
        yield made


@pytest.mark.parametrize(
    "way", [way if way == "scram" else pytest.param(way, marks=pytest.mark.chaos) for way in WAYS]
)
def test_tasks_in_threads_copy_lines_and_show_no_secret(
    way: str, secured: SecuredBroker, tmp_path: Path
) -> None:
    properties = {"task.engine": "threads", **secured.profile(way, tmp_path)}
    worker = WorkerProcess("standalone", tmp_path, secured.bootstrap, properties)
    worker.start()
    try:
        pipeline = FilePipeline(worker, f"threads-{way}")
        pipeline.add(LINES)
        pipeline.wait()
        answers = asked(worker, pipeline)
        assert worker.stop() == 0
    finally:
        worker.kill()
    check(secured, {"log": worker.log.read_text(), "answers": answers})


@pytest.mark.chaos
@pytest.mark.parametrize("way", WAYS)
def test_tasks_on_a_standalone_cluster_copy_lines_and_show_no_secret(
    way: str, secured: SecuredBroker, spark: Cluster, spark_home: Path, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    properties = {
        **secured.profile(way, tmp_path),
        "task.engine": "spark", "spark.master": spark.url, "spark.executor.cores": str(CORES),
        "spark.cores.max": str(2 * CORES), "spark.executor.memory": "512m", "spark.ui.port": "0",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false", "spark.eventLog.dir": events.as_uri(),
        "offset.storage.partitions": "3", "status.storage.partitions": "1",
    }  # fmt: skip
    worker = WorkerProcess("distributed", tmp_path, secured.bootstrap, properties)
    worker.start()
    try:
        status, _ = worker.ask("PUT", "/admin/loggers/ottla", {"level": "DEBUG"})
        assert status == 200
        pipeline = FilePipeline(worker, f"spark-{way}")
        pipeline.add(LINES)
        pipeline.wait()
        source = pipeline.connectors[0]
        before = worker.task_pids(source)
        os.kill(before[-1], signal.SIGKILL)
        worker.wait_for_new_process(source, len(before))
        pipeline.add(LINES)
        pipeline.wait()
        answers = asked(worker, pipeline)
        interface = re.search(r"started at (http://\S+)", (spark_home / "master.log").read_text())
        assert interface is not None
        shown = dict(pages(interface[1]))
        assert worker.stop() == 0
    finally:
        worker.kill()
    for kind in ("/logPage/", "/environment/", "/stages/stage/"):
        assert any(kind in address for address in shown), kind
    files = [*spark_home.rglob("*"), *events.rglob("*"), *tmp_path.glob("*.log")]
    files = [each for each in files if each.is_file() and each.suffix != ".jar"]
    shown |= {str(each): each.read_text(errors="replace") for each in files}
    for part in ("/events/", "/stderr", "/stdout", "/worker.log"):
        assert any(part in name for name in shown), part
    check(secured, {**shown, "answers": answers})
    assert "DEBUG" in worker.log.read_text()


def asked(worker: WorkerProcess, pipeline: FilePipeline) -> str:
    """Return all answers of the REST API about a pipeline, and to a wrong configuration."""
    paths = [
        *ADMIN,
        *(f"/connectors/{n}{end}" for n in pipeline.connectors for end in OF_CONNECTOR),
    ]
    answers: list[Any] = []
    for path in paths:
        status, answer = worker.ask("GET", path)
        assert status in (200, 404), (path, answer)
        answers.append(answer)
    wrong = {"connector.class": "FileStreamSink", "topics": pipeline.name, "tasks.max": "none"}
    status, answer = worker.ask("PUT", "/connectors/wrong/config", wrong)
    assert status == 400
    return repr([*answers, answer])


def check(secured: SecuredBroker, shown: dict[str, str]) -> None:
    texts = {**shown, "broker": secured.broker.log()}
    leaks = {name: secured.leaks(text)[:5] for name, text in texts.items()}
    assert not {name: lines for name, lines in leaks.items() if lines}
