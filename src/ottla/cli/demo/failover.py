"""Forced failover: the leader of a partition is killed while the partition is written to.

A thread waits for the new leader, so that the demo can continue to write lines."""

from __future__ import annotations

import threading
import time

from ottla.base.errors import KafkaError, UserError
from ottla.cli.demo.application import LINES
from ottla.cli.demo.pipeline import Pipeline

TIMEOUT_S = 60.0
POLL_S = 0.05


class Failover:
    """The failover of partition 0 of the topic `lines`. Creating it kills the leader."""

    def __init__(self, pipeline: Pipeline) -> None:
        from ottla import Admin

        self._bootstrap = pipeline.bootstrap
        with Admin(self._bootstrap) as admin:
            leader = admin.describe_topics(LINES)[LINES].partitions[0].leader
        assert leader is not None, "the partition has a leader before the failover"
        self._old, self._new = leader, -1
        self._taken_s = 0.0
        self._brokers = pipeline.brokers
        self._brokers.is_left_alone = True
        self._brokers.kill(leader)
        self._killed_at = time.monotonic()
        self._watch = threading.Thread(target=self._find_leader, daemon=True)
        self._watch.start()

    @property
    def victim(self) -> str:
        return f"broker {self._old}, the leader of {LINES}-0,"

    def outcome(self) -> str:
        """Return a sentence about the new leader.

        Raises:
            UserError: No broker became leader in time.
        """
        self._watch.join(TIMEOUT_S)
        if self._new < 0:
            raise UserError(
                f"No broker became leader of {LINES}-0 within {TIMEOUT_S:g} s after broker "
                f"{self._old} was killed."
            )
        return (
            f"broker {self._old} was killed; "
            f"broker {self._new} became leader of {LINES}-0 {self._taken_s:.1f} s later"
        )

    def _find_leader(self) -> None:
        from ottla import Admin

        while time.monotonic() - self._killed_at < TIMEOUT_S:
            try:
                with Admin(self._bootstrap) as admin:
                    leader = admin.describe_topics(LINES)[LINES].partitions[0].leader
            except KafkaError:
                leader = None
            if leader is not None and leader != self._old:
                self._taken_s = time.monotonic() - self._killed_at
                self._new = leader
                break
            time.sleep(POLL_S)
        self._brokers.is_left_alone = False
