"""Replication slot: the WAL that it retains, and the policy for it.

A slot makes PostgreSQL retain all WAL after the confirmed position; a connector that is stopped, or
slower than the database, can fill its disk. A separate thread checks the retained size every
`slot.lag.check.interval.ms`, because the task itself may be busy, or waiting for a broker that is
unavailable.

    slot.lag.warn.bytes    above it: log a warning, and again whenever the size has doubled
    slot.lag.max.bytes     above it: apply `slot.lag.policy`
        warn               only log the warning
        pause              the connector stops and its status reports why; the slot remains
        drop               drop the slot: WAL is freed, changes until a new snapshot are lost

While no worker runs, the size is not checked. PostgreSQL's `max_slot_wal_keep_size` limits it then.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from enum import Enum

from ottla.base.errors import UserError
from ottla.connect.connectors.postgres.catalog import Catalog, ReplicationSlot
from ottla.connect.connectors.postgres.pgoutput import format_lsn

logger = logging.getLogger(__name__)


class Verdict(Enum):
    FINE = "fine"
    WARN = "warn"
    PAUSE = "pause"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class LagPolicy:
    warn_bytes: int
    max_bytes: int
    """Maximum size; 0 means unlimited."""
    policy: str

    def verdict_for(self, kept_bytes: int) -> Verdict:
        if 0 < self.max_bytes < kept_bytes and self.policy != "warn":
            return Verdict(self.policy)
        is_much = 0 < self.warn_bytes < kept_bytes or 0 < self.max_bytes < kept_bytes
        return Verdict.WARN if is_much else Verdict.FINE


def loss_reason(slot: ReplicationSlot | None, lsn: int) -> str | None:
    """Return the reason why the stream cannot resume at a position, or None if it can."""
    if slot is None:
        return "the slot no longer exists"
    if slot.wal_status == "lost" or slot.restart_lsn is None:
        return "PostgreSQL has removed WAL that the slot needs (max_slot_wal_keep_size)"
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > lsn:
        return (
            f"the slot is already at {format_lsn(slot.confirmed_lsn)}, but changes were "
            f"delivered only up to {format_lsn(lsn)}: the slot was recreated, or has another "
            "reader"
        )
    return None


def slot_position(slot: ReplicationSlot, name: str) -> int:
    """Return the position of an existing slot; raise UserError if it cannot be used."""
    if slot.plugin != "pgoutput" or not slot.is_here:
        other = (
            f"decodes with {slot.plugin} instead of pgoutput"
            if slot.plugin != "pgoutput"
            else "belongs to another database of this server"
        )
        raise UserError(
            f"The slot {name} {other}. Give this connector its own slot.name, or drop the slot if "
            f"it has no reader: SELECT pg_drop_replication_slot('{name}');"
        )
    if slot.confirmed_lsn is None:
        raise UserError(f"The slot {name} has no confirmed position and cannot be read.")
    return slot.confirmed_lsn


class SlotWatch:
    """Thread that checks the slot periodically until it is stopped."""

    def __init__(self, catalog: Catalog, name: str, policy: LagPolicy, every_s: float) -> None:
        self.kept_bytes: int | None = None
        """Retained size at the last check."""
        self._catalog = catalog
        self._name = name
        self._policy = policy
        self._every_s = every_s
        self._warn_above = 0
        self._reason: str | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Check the slot and start the thread; raise UserError if the connector must stop."""
        self.refresh()
        self.check()
        self._thread = threading.Thread(target=self._run, name="slot-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._catalog.close()

    def check(self) -> None:
        if self._reason is not None:
            raise UserError(self._reason)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s) and self._reason is None:
            try:
                self.refresh()
            except UserError as error:
                # The stream itself reports what is wrong.
                logger.warning("could not query the state of slot %s: %s", self._name, error)
                self._catalog.close()

    def refresh(self) -> None:
        slot = self._catalog.slot(self._name)
        if slot is None or slot.kept_bytes is None:
            return
        kept = self.kept_bytes = slot.kept_bytes
        verdict = self._policy.verdict_for(kept)
        if verdict is Verdict.FINE:
            self._warn_above = 0
            return
        message = f"the slot {self._name} makes PostgreSQL keep {kept} bytes of WAL"
        if verdict is Verdict.WARN:
            if kept > self._warn_above:
                self._warn_above = kept * 2
                logger.warning("%s", message)
            return
        more = f"{message}, more than slot.lag.max.bytes={self._policy.max_bytes}"
        if verdict is Verdict.PAUSE:
            self._reason = (
                f"T{more[1:]}: the connector is paused (slot.lag.policy=pause). Increase "
                "slot.lag.max.bytes to let it catch up, or drop the slot to free the disk."
            )
        else:
            self._catalog.drop_slot(self._name)
            self._reason = (
                f"T{more[1:]}: the slot was dropped (slot.lag.policy=drop). Changes since then "
                "are not captured. With snapshot.mode=when_needed the connector takes a new "
                "snapshot automatically."
            )
        logger.error("%s", self._reason)
