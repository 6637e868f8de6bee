"""The Spark engine without Spark: settings, the control channel, reports, and what is pickled."""

from __future__ import annotations

import logging
import pickle
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.connect import session
from ottla.connect.config import ConnectorConfig
from ottla.connect.engine import RunReports, ThreadEngine
from ottla.connect.offset_storage import TopicOffsetStorage
from ottla.connect.source_task import SourceRun
from ottla.connect.spark_engine import control_channel
from ottla.connect.spark_engine.control_channel import ChannelClosed, ControlChannel, Message
from ottla.connect.spark_engine.control_server import ControlServer
from ottla.connect.spark_engine.outbox import MAX_LOG_RECORDS, Outbox
from ottla.connect.spark_engine.plugin_files import write_archive
from ottla.connect.spark_engine.settings import TASK_SLOTS, session_settings
from ottla.connect.spark_engine.task_spec import ControlAddress, TaskSpec
from ottla.connect.states import TaskId
from ottla.connect.stop_signal import StopSignal
from ottla.connect.task_context import TaskContext
from ottla.connect.worker import make_engine
from ottla.connect.worker_config import DISTRIBUTED, STANDALONE, WorkerConfig

PATIENCE_S = 10.0
COMMON = {"key.converter": "StringConverter", "value.converter": "StringConverter"}
ALONE = {**COMMON, "offset.storage.file.filename": "offsets"}
GROUP = {
    **COMMON, "group.id": "g", "config.storage.topic": "c", "offset.storage.topic": "o",
    "status.storage.topic": "s",
}  # fmt: skip


# --------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("given", "definition", "engine"),
    [
        (ALONE, STANDALONE, "threads"),
        ({**ALONE, "spark.master": "local[*]"}, STANDALONE, "spark"),
        ({**ALONE, "spark.master": "local[*]", "task.engine": "threads"}, STANDALONE, "threads"),
        ({**ALONE, "task.engine": "spark"}, STANDALONE, "spark"),
        (GROUP, DISTRIBUTED, "spark"),
        ({**GROUP, "task.engine": "threads"}, DISTRIBUTED, "threads"),
    ],
)
def test_the_engine_depends_on_the_kind_of_worker_and_its_master(
    given: dict[str, str], definition: Any, engine: str
) -> None:
    assert WorkerConfig.of(given, definition).engine == engine


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UserError, match=r"task\.engine"):
        WorkerConfig.of({**ALONE, "task.engine": "flink"})


def test_threads_need_no_spark() -> None:
    engine = make_engine(WorkerConfig.of(ALONE))
    assert isinstance(engine, ThreadEngine)


def test_the_spark_engine_without_pyspark_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.connect.spark_engine.engine.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"(?s)requires Spark.*install.*task\.engine=threads"):
        make_engine(WorkerConfig.of(GROUP, DISTRIBUTED))


@pytest.mark.parametrize(
    ("master", "cores", "attempts"), [("local[3]", 3, 4), ("local", 1, 4), ("local[2,7]", 2, 7)]
)
def test_a_local_master_gets_a_slot_for_every_task(master: str, cores: int, attempts: int) -> None:
    settings = session_settings({"spark.master": master})
    assert settings["spark.master"] == f"local[{cores + TASK_SLOTS},{attempts}]"
    assert settings["spark.default.parallelism"] == str(cores)
    assert settings["spark.sql.shuffle.partitions"] == str(cores)


def test_the_master_of_a_cluster_is_kept() -> None:
    given = {"spark.master": "spark://host:7077", "spark.cores.max": "4"}
    assert session_settings(given) == given


def test_speculation_is_refused() -> None:
    with pytest.raises(UserError, match=r"spark\.speculation"):
        session_settings({"spark.speculation": "true"})


def test_a_task_in_a_process_of_its_own_has_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_is_forbidden", True)
    with pytest.raises(UserError, match="uses_spark_session"):
        session.spark_session()


# ------------------------------------------------------------------------------ what is sent


def test_a_task_is_sent_as_properties_and_made_again(tmp_path: Path) -> None:
    properties = {
        "name": "c", "connector.class": "FileStreamSource", "file": "in.txt", "topic": "t",
    }  # fmt: skip
    worker = WorkerConfig.of(GROUP, DISTRIBUTED)
    config = ConnectorConfig.of(properties, worker.given)
    context = TaskContext(
        TaskId("c", 0), config, config.connector.settings, worker, TopicOffsetStorage("o"), "c",
        "g-c-0", tmp_path, task_count=3, first_offsets=[({"filename": "in.txt"}, {"position": 1})],
    )  # fmt: skip
    spec = TaskSpec.of(context, ControlAddress("h", 1, "r", b"key"), {"": 20}, ())
    topics: list[str] = []
    made = pickle.loads(pickle.dumps(spec)).context(
        "name", on_offsets=print, on_topic=topics.append, on_retry=print
    )
    assert made.worker.definition is DISTRIBUTED
    assert made.worker_name == "name"
    assert made.transactional_id == context.transactional_id
    assert made.config.given == properties
    assert made.first_offsets == context.first_offsets
    made.on_topic("t")
    assert topics == ["t"]


def test_threads_run_sources_in_the_calling_thread(tmp_path: Path) -> None:
    properties = {
        "name": "c", "connector.class": "FileStreamSource", "file": "in.txt", "topic": "t",
    }  # fmt: skip
    worker = WorkerConfig.of(ALONE)
    config = ConnectorConfig.of(properties, worker.given)
    context = TaskContext(
        TaskId("c", 0), config, config.connector.settings, worker, TopicOffsetStorage("o"), "c",
        "g-c-0", tmp_path,
    )  # fmt: skip
    reports = RunReports(lambda: True, print)
    assert isinstance(ThreadEngine().make_run(context, reports), SourceRun)


def test_only_python_packages_of_the_plugin_path_are_sent(tmp_path: Path) -> None:
    folder, archive = tmp_path / "plugins", tmp_path / "plugins.zip"
    (folder / "package").mkdir(parents=True)
    (folder / "java.jar").write_bytes(b"jar")
    assert not write_archive(folder, archive)
    (folder / "package" / "__init__.py").write_text("")
    assert write_archive(folder, archive)
    assert zipfile.ZipFile(archive).namelist() == ["package/__init__.py"]


# -------------------------------------------------------------------------------- the outbox


def test_reports_are_combined_until_they_are_sent() -> None:
    outbox = Outbox()
    for position in range(3):
        outbox.offsets([({"file": "a"}, {"position": position})])
        outbox.topic("t")
    outbox.retry("first")
    outbox.retry("second")
    outbox.started()
    assert outbox.take(0) == {
        "offsets": [({"file": "a"}, {"position": 2})],
        "topics": ["t"],
        "states": [{"retry": "second"}, {"started": True}],
    }
    assert outbox.take(0) == {}
    outbox.topic("u")
    outbox.finish()
    assert outbox.take(0) == {"topics": ["u"]}
    assert outbox.take(0) is None


def test_a_flood_of_log_messages_is_bounded_and_counted() -> None:
    outbox = Outbox()
    for number in range(MAX_LOG_RECORDS + 5):
        outbox.handle(logging.makeLogRecord({"name": "x", "msg": str(number), "levelno": 20}))
    taken = outbox.take(0)
    assert taken is not None
    assert len(taken["log"]) == MAX_LOG_RECORDS + 1
    assert "5 log messages" in taken["log"][-1][2]


def test_a_stop_is_noticed_before_and_after_the_listener_is_there() -> None:
    stopping, heard = StopSignal(), []
    stopping.when_set(lambda: heard.append("early"))
    stopping.set()
    stopping.when_set(lambda: heard.append("late"))
    assert heard == ["early", "late"]


# ------------------------------------------------------------------------ the control channel


class Run:
    """A run that records what the server tells it."""

    def __init__(self) -> None:
        self.hello: Message = {}
        self.reports: list[Message] = []
        self.closed = threading.Event()
        self.was_silent: bool | None = None

    def on_connected(self, channel: ControlChannel, hello: Message) -> Message:
        self.hello, self.channel = hello, channel
        return {"name": "process"}

    def on_report(self, report: Message) -> None:
        self.reports.append(report)

    def on_closed(self, channel: ControlChannel, *, is_silent: bool) -> None:
        self.was_silent = is_silent
        self.closed.set()


@pytest.fixture
def server() -> Iterator[ControlServer]:
    made = ControlServer("127.0.0.1")
    yield made
    made.close()


def connected(server: ControlServer, run: str, key: bytes) -> ControlChannel:
    channel = ControlChannel.connect("127.0.0.1", server.port, run, key)
    channel.send({"attempt": 2})
    return channel


def test_a_process_reports_to_its_run_and_is_answered(server: ControlServer) -> None:
    run = Run()
    channel = connected(server, *server.register(run))
    assert channel.receive() == {"name": "process"}
    channel.send({"topics": ["t"]})
    assert channel.receive() == {}, "the driver is alive"
    run.channel.send({"stop": True})
    assert channel.receive() == {"stop": True}
    channel.close()
    assert run.closed.wait(PATIENCE_S)
    assert run.hello == {"attempt": 2}
    assert run.reports == [{"topics": ["t"]}]
    assert run.was_silent is False


def test_a_process_without_the_key_is_refused(server: ControlServer) -> None:
    run = Run()
    id, _ = server.register(run)
    channel = connected(server, id, b"another key")
    with pytest.raises(ChannelClosed):
        channel.receive()
    assert run.hello == {}


def test_a_process_of_an_ended_run_is_refused(server: ControlServer) -> None:
    run = Run()
    id, key = server.register(run)
    server.forget(id)
    with pytest.raises(ChannelClosed):
        connected(server, id, key).receive()
    assert run.hello == {}


def test_the_end_of_a_run_closes_its_channels(server: ControlServer) -> None:
    run = Run()
    id, key = server.register(run)
    channel = connected(server, id, key)
    channel.receive()
    server.forget(id)
    with pytest.raises(ChannelClosed):
        channel.receive()
    assert run.closed.wait(PATIENCE_S)


def test_a_forged_message_closes_the_channel(server: ControlServer) -> None:
    run = Run()
    channel = connected(server, *server.register(run))
    channel.receive()
    payload = b'{"topics":["forged"]}'
    channel._socket.sendall(len(payload).to_bytes(4, "big") + bytes(32) + payload)
    assert run.closed.wait(PATIENCE_S)
    assert run.reports == []


def test_a_silent_process_is_noticed(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_channel, "SILENCE_S", 0.1)
    run = Run()
    channel = connected(server, *server.register(run))
    channel.receive()
    assert run.closed.wait(PATIENCE_S)
    assert run.was_silent is True


def test_strangers_are_disconnected_without_disturbing_others(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_channel, "HANDSHAKE_S", 0.2)
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 10_000)
    run = Run()
    channel = connected(server, *server.register(run))
    assert channel.receive() == {"name": "process"}
    for stranger in strangers:
        stranger.settimeout(PATIENCE_S)
        began = time.monotonic()
        while _receives(stranger):
            assert time.monotonic() - began < PATIENCE_S
        stranger.close()


def _receives(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(65536))
    except ConnectionError:
        return False
