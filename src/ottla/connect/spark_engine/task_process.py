"""The executor's side of a run: a Spark task that does the work of a connector's task.

The process asks its driver for permission before it begins: Spark may start it again although the
worker has lost the task to another worker. If it loses the driver later, it stops: the worker is
gone, or has given up the task. It exits if the task does not stop in time.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ottla.connect import session
from ottla.connect.engine import run_here
from ottla.connect.log_levels import set_level
from ottla.connect.spark_engine.control_channel import (
    HEARTBEAT_S,
    ChannelClosed,
    ControlChannel,
    Message,
)
from ottla.connect.spark_engine.outbox import Outbox
from ottla.connect.spark_engine.task_spec import TaskSpec
from ottla.connect.stop_signal import StopSignal
from ottla.connect.task_thread import sentence

logger = logging.getLogger(__name__)

SENDER_PATIENCE_S = 5.0


def run_task(spec: TaskSpec, partition: Iterator[Any]) -> Iterator[str]:
    """Run a task within a Spark task, and yield its outcome as JSON.

    The outcome has `error`, the reason why the run failed, or None. `is_lost` says that the process
    lost its driver, and `is_refused` that the driver did not let it begin.
    """
    from pyspark import TaskContext

    for _ in partition:
        pass  # PySpark reuses a process for the next task only if its input was read to the end
    current = TaskContext.get()
    yield json.dumps(TaskProcess(spec).run(0 if current is None else current.attemptNumber()))


class TaskProcess:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._stopping = StopSignal()
        self._outbox = Outbox()
        self._is_lost = self._is_done = False

    def run(self, attempt: int) -> Message:
        control = self._spec.control
        channel = ControlChannel.connect(control.host, control.port, control.run, control.key)
        channel.send({"attempt": attempt, "host": socket.gethostname(), "pid": os.getpid()})
        reply = channel.receive()
        if "name" not in reply:
            channel.close()
            return {"is_refused": True}
        _import_from(self._spec.import_path)
        session.forbid_in_task()
        _log_to(self._outbox, self._spec.log_levels)
        sender = threading.Thread(target=self._send, args=(channel,), daemon=True)
        receiver = threading.Thread(target=self._receive, args=(channel,), daemon=True)
        sender.start()
        receiver.start()
        try:
            error = self._work(str(reply["name"]))
        finally:
            self._is_done = True
            self._outbox.finish()
            sender.join(SENDER_PATIENCE_S)
            _send_end(channel)
            channel.close()
            logging.getLogger().removeHandler(self._outbox)
        return {"error": error, "is_lost": self._is_lost}

    def _work(self, name: str) -> str | None:
        outbox = self._outbox
        try:
            context = self._spec.context(
                name, on_offsets=outbox.offsets, on_topic=outbox.topic, on_retry=outbox.retry
            )
            run_here(context).run(self._stopping, outbox.started)
            return None
        except Exception as error:
            # The driver decides when the task is restarted.
            logger.debug("task %s", self._spec.id, exc_info=error)
            return sentence(error)

    # ------------------------------------------------------------------------------- threads

    def _send(self, channel: ControlChannel) -> None:
        try:
            while (report := self._outbox.take(HEARTBEAT_S)) is not None:
                channel.send(report)
        except ChannelClosed:
            self._lose()

    def _receive(self, channel: ControlChannel) -> None:
        try:
            while True:
                message = channel.receive()
                if message.get("stop"):
                    self._stopping.set()
                if "level" in message:
                    set_level(*message["level"])
        except ChannelClosed:
            if not self._is_done:
                self._lose()

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._stopping.set()
        deadline = threading.Timer(self._spec.shutdown_s, self._exit)
        deadline.daemon = True
        deadline.start()

    def _exit(self) -> None:
        if not self._is_done:
            os._exit(1)


def _send_end(channel: ControlChannel) -> None:
    try:
        channel.send({"ended": True})
    except ChannelClosed:
        return  # the outcome of the Spark task is what counts


def _import_from(path: tuple[str, ...]) -> None:
    known = set(sys.path)
    sys.path.extend(each for each in path if each not in known)


def _log_to(outbox: Outbox, levels: Mapping[str, int]) -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(outbox)
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
