"""A standalone worker: the connectors of one process, on one Spark session.

Threads: the one that runs the worker looks after connectors; REST's threads ask and change. All of
it is done under one lock, so a connector sees one at a time. Nothing that a connector does ends the
worker: it fails, says why, and is started again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.config import ConnectorConfig, validate
from ottla.connect.offsets import OffsetStore
from ottla.connect.running import RunningConnector, State
from ottla.connect.worker_config import WorkerConfig

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
SPARK_SETTINGS = {
    # An idle sink asks brokers so often; the source's own waiting is in `source_query`.
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.stopTimeout": "30s",
    # A busy machine takes its time to start a Python.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
}


class NoSuchConnector(UserError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Connector {name} not found")


class Worker:
    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.store = OffsetStore(config.settings["offset.storage.file.filename"])
        self.lock = threading.RLock()
        self._connectors: dict[str, RunningConnector] = {}
        self._spark: Any = None
        self._stopping = threading.Event()

    # ------------------------------------------------------------------------------ its life

    def start(self) -> None:
        """Raises UserError if it cannot be a worker."""
        for notice in self.config.notices():
            logger.warning("%s", notice)
        self.store.open()
        from ottla.spark import session

        settings = dict(SPARK_SETTINGS) | self.config.spark
        master = settings.pop("spark.master", None)
        self._spark = session(master, app_name="ottla-connect", **settings)
        # What went wrong is in a connector's status, and in our own log.
        self._spark.sparkContext.setLogLevel("OFF")

    def run(self) -> None:
        """Until `request_stop`."""
        interval_s = self.config.settings["offset.flush.interval.ms"] / 1000
        flush_at = time.monotonic() + interval_s
        while not self._stopping.wait(LOOK_EVERY_S):
            with self.lock:
                for each in list(self._connectors.values()):
                    self._look_after(each)
            if time.monotonic() >= flush_at:
                self._flush()
                flush_at = time.monotonic() + interval_s

    def _look_after(self, connector: RunningConnector) -> None:
        try:
            connector.look_after(self._spark)
        except Exception as error:
            # Whatever a connector does, the others go on.
            logger.exception("connector %s: %s", connector.name, error)

    def _flush(self) -> None:
        try:
            self.store.flush()
        except UserError as error:
            # The checkpoints are what counts; the next flush may do.
            logger.error("%s", error)

    def request_stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        with self.lock:
            for each in self._connectors.values():
                each.end_query()
            self.store.close()
            if self._spark is not None:
                self._spark.stop()

    # ---------------------------------------------------------------------------- connectors

    def names(self) -> list[str]:
        with self.lock:
            return sorted(self._connectors)

    def connector(self, name: str) -> RunningConnector:
        with self.lock:
            found = self._connectors.get(name)
            if found is None:
                raise NoSuchConnector(name)
            return found

    def check(self, given: Mapping[str, str]) -> ConnectorConfig:
        """Raises InvalidConnector with all that is wrong; warns of what nothing reads."""
        config = ConnectorConfig.of(given, self.config.given)
        for sentence in validate(given, self.config.given).unknown():
            logger.warning("connector %s: %s", config.name, sentence)
        return config

    def put(self, given: Mapping[str, str], state: State = State.RUNNING) -> bool:
        """Make a connector, or give it another configuration; whether it is new."""
        config = self.check(given)
        with self.lock:
            old = self._connectors.get(config.name)
            if old is not None:
                old.end_query()
                state = old.state if old.state in (State.PAUSED, State.STOPPED) else state
            made = RunningConnector(config, self.config, self.store)
            self._connectors[config.name] = made
            self._bring(made, state)
            return old is None

    def delete(self, name: str) -> None:
        with self.lock:
            self.connector(name).end_query()
            del self._connectors[name]

    def bring(self, name: str, state: State) -> None:
        """Into the state that was asked for."""
        with self.lock:
            self._bring(self.connector(name), state)

    def restart(self, name: str) -> None:
        with self.lock:
            found = self.connector(name)
            if found.state not in (State.PAUSED, State.STOPPED):
                found.start(self._spark)

    def _bring(self, connector: RunningConnector, state: State) -> None:
        if state is State.PAUSED:
            connector.pause()
        elif state is State.STOPPED:
            connector.stop()
        elif connector.state is not State.RUNNING:
            connector.start(self._spark)
