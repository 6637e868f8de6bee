"""Task of the PostgreSQL source: a snapshot, followed by the stream of changes.

The source offset of `{"server": topic.prefix}` is

    {"system": ID of the PostgreSQL system, "lsn": …, "commit_lsn": …, "changes": …,  see `changes`
     "snapshot": {…},                                                               see `snapshot`
     "slot_lag_bytes": WAL that the slot retained at the last check,
     "notices": messages for the administrator}

The task confirms a position to PostgreSQL only after the records are committed to their topics. The
slot is therefore never ahead of the source offset; if it is, changes were lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ottla.base.errors import UserError
from ottla.connect.api import Json, Offsets, Polled, SourceTask
from ottla.connect.connectors.postgres.catalog import IN_USE, Catalog
from ottla.connect.connectors.postgres.changes import ChangeDecoder, Position
from ottla.connect.connectors.postgres.connection import (
    ConnectionLost,
    PostgresError,
    ReplicationConnection,
    ResourcesExhausted,
)
from ottla.connect.connectors.postgres.envelope import Envelopes
from ottla.connect.connectors.postgres.options import Options
from ottla.connect.connectors.postgres.pgoutput import Keepalive, ProtocolError, Relation, decode
from ottla.connect.connectors.postgres.published import Published
from ottla.connect.connectors.postgres.slot import SlotWatch, loss_reason, slot_position
from ottla.connect.connectors.postgres.snapshot import Progress
from ottla.connect.connectors.postgres.snapshot_rows import SnapshotRows
from ottla.connect.connectors.postgres.tables import TableSchema, make_table_schema
from ottla.connect.data import ConnectRecord, DataError

logger = logging.getLogger(__name__)

SILENT_INTERVALS = 3
"""Number of `status.update.interval.ms` after which a silent reader is considered dead."""
BUSY_TURNS, BUSY_PAUSE_S = 60, 0.25
"""Attempts and pause while the slot is still held by a worker that has just died."""


class PostgresTask(SourceTask):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._partition = {"server": options.prefix}
        self._catalog = Catalog(options.database)
        self._envelopes = Envelopes(
            options.prefix,
            options.database_name,
            options.has_tombstones,
            options.skipped,
            options.marks_transactions,
        )
        self._published = Published(self._catalog, options)
        self._watch = SlotWatch(
            Catalog(options.database),
            options.slot_name,
            options.lag_policy,
            options.lag_check_s,
        )
        self._system = ""
        self._progress = Progress()
        self._position = Position(0)
        """Position after the records that were returned."""
        self._confirmed = 0
        self._link: ReplicationConnection | None = None
        self._changes: ChangeDecoder | None = None
        self._rows = SnapshotRows(
            options, self._catalog, self._published, self._envelopes, self._table_schema
        )
        self._polled_at = self._looked_at = self._status_at = time.monotonic()
        self._troubles: list[str] = []
        """Errors of the last periodic check."""
        self._must_commit_offset = False
        """Whether the offset must be committed before anything else is done."""
        self._has_moved = False
        """Whether the position moved without records; the next heartbeat commits it."""

    # ------------------------------------------------------------------------------ lifecycle

    def start(self, offsets: Offsets) -> None:
        try:
            self._start(next((dict(each) for at, each in offsets if at == self._partition), {}))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._watch.stop()
        self._disconnect()
        self._catalog.close()

    def commit(self, offsets: Offsets) -> None:
        for partition, offset in offsets:
            if partition == self._partition and int(offset.get("lsn", 0)) > self._confirmed:
                self._confirmed = int(offset["lsn"])
                self._send_status()

    def poll(self, wait_s: float) -> Polled:
        self._watch.check()
        progress = self._progress
        try:
            return self._poll(wait_s)
        except ConnectionLost as lost:
            logger.warning("%s; reconnecting", str(lost).rstrip("."))
            # What was read since the last offset is read again.
            self._progress = progress
            self._disconnect()
        except ResourcesExhausted:
            # The worker reports the error and retries.
            self._progress = progress
            self._disconnect()
            raise
        except (DataError, ProtocolError) as error:
            self._disconnect()
            raise UserError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
        self._watch.check()
        if self._options.snapshot.streams:
            self._check_slot()
            self._connect()
        return Polled()

    # --------------------------------------------------------------------------------- start

    def _start(self, offset: Json) -> None:
        self._catalog.check_server()
        self._link = self._options.database.replication()
        self._system = str(self._link.execute("IDENTIFY_SYSTEM")[0][0])
        if offset and offset.get("system", self._system) != self._system:
            raise UserError(
                f"{self._options.database.place} is not the PostgreSQL server that the connector's "
                "offsets belong to. To start over with a snapshot, reset the connector's offsets."
            )
        self._published.refresh()
        if offset:
            self._resume(offset)
        elif self._options.snapshot.streams:
            self._begin(is_repeat=False)
        else:
            self._begin_without_slot()
        if not self._options.snapshot.streams:
            self._warn_of_unused_slot()
            return
        self._watch.start()
        if not self._progress.pending:
            self._connect()

    def _begin(self, *, is_repeat: bool) -> None:
        """Begin for the first time, or after changes were lost."""
        takes = self._options.snapshot.at_first or is_repeat
        self._published.check_privileges(self._published.tables, reads=takes)
        self._published.publish(self._published.tables)
        slot = self._catalog.slot(self._options.slot_name)
        pending = tuple(self._published.tables) if takes else ()
        if slot is None:
            assert self._link is not None
            lsn, self._rows.exported = self._link.create_slot(self._options.slot_name)
        else:
            lsn = slot_position(slot, self._options.slot_name)
            logger.warning(
                "the slot %s already existed: changes since its last position are captured after "
                "the snapshot",
                self._options.slot_name,
            )
        self._position = Position(lsn)
        self._progress = Progress(pending, is_repeat=is_repeat)
        self._must_commit_offset = not pending

    def _begin_without_slot(self) -> None:
        """Begin without a slot, which would never be read and would retain WAL forever."""
        self._published.check_privileges(self._published.tables, reads=True)
        self._position = Position(self._catalog.wal_position())
        self._progress = Progress(tuple(self._published.tables))

    def _warn_of_unused_slot(self) -> None:
        """Disconnect, because only rows and no changes are captured; warn about an unused slot."""
        self._disconnect()
        name = self._options.slot_name
        if self._catalog.slot(name) is not None:
            self._troubles = [f"the slot {name} exists and retains WAL, but is not read"]
            logger.warning("%s; drop it", self._troubles[0])
            self._must_commit_offset = not self._progress.pending

    def _resume(self, offset: Json) -> None:
        self._position = Position.of(offset)
        self._progress = Progress.of(offset.get("snapshot"))
        self._confirmed = 0
        mode = self._options.snapshot
        self._published.check_privileges(self._progress.pending, reads=True)
        if not mode.streams or not self._check_slot():
            return
        if len(self._published.unpublished()) == len(self._published.tables):
            # The publications were dropped, and PostgreSQL does not stream without one.
            self._find_new_tables()
        else:
            with self._log_failures("the search for new tables", []):
                self._find_new_tables()
        if mode.at_each_start and not offset.get("snapshot"):
            # Changes since the offset are repeated after the snapshot: a consumer that applies the
            # records in order ends with the same tables.
            self._published.check_privileges(self._published.tables, reads=True)
            self._progress = Progress(tuple(self._published.tables))
            self._must_commit_offset = True

    def _check_slot(self) -> bool:
        """Return whether the slot still has the next changes.

        If it does not, begin a new snapshot and return False, or raise UserError.
        """
        slot = self._catalog.slot(self._options.slot_name)
        reason = loss_reason(slot, self._position.lsn)
        if reason is None:
            return True
        name = self._options.slot_name
        message = (
            f"Changes of {self._options.database.place} were lost with the slot {name}: {reason}"
        )
        if not self._options.snapshot.after_loss:
            raise UserError(
                f"{message}. To start over with a snapshot, reset the connector's offsets or set "
                "snapshot.mode=when_needed."
            )
        logger.error("%s; taking a new snapshot", message)
        if slot is not None:
            self._catalog.drop_slot(name)
        self._disconnect()
        self._link = self._options.database.replication()
        self._begin(is_repeat=True)
        return False

    # -------------------------------------------------------------------------- connections

    def _connect(self) -> None:
        """Start the stream at the current position."""
        link = self._link or self._options.database.replication()
        self._link = link
        for load_id in range(BUSY_TURNS):
            try:
                link.start(
                    self._options.slot_name, self._position.lsn, self._published.publications
                )
                break
            except PostgresError as error:
                # The previous worker died and PostgreSQL has not noticed yet, or it is suspended.
                if error.code != IN_USE:
                    raise
                if load_id == BUSY_TURNS - 1:
                    raise self._in_use(error) from None
                silent_s = self._options.status_s * SILENT_INTERVALS
                if self._catalog.terminate_silent_reader(self._options.slot_name, silent_s):
                    logger.warning(
                        "terminated the slot's previous reader, which sent no status updates"
                    )
                time.sleep(BUSY_PAUSE_S)
        self._changes = ChangeDecoder(self._envelopes, self._table_schema, self._position)
        self._status_at = time.monotonic()

    def _in_use(self, error: PostgresError) -> PostgresError:
        name = self._options.slot_name
        reader = self._catalog.reader_of(name)
        if reader is None:
            return error
        pid, described = reader
        return PostgresError(
            f"The slot {name} in {self._options.database.place} is in use by another reader "
            f"({described}). Give this connector its own slot.name, or end the other reader: "
            f"SELECT pg_terminate_backend({pid});",
            error.code,
        )

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
        self._rows.close()
        self._link = self._changes = None

    def _send_status(self) -> None:
        self._status_at = time.monotonic()
        if self._link is not None and self._changes is not None:
            try:
                self._link.send_status(self._confirmed)
            except ConnectionLost as error:
                # The next poll detects it and reconnects.
                logger.debug("%s", error)

    def _table_schema(self, relation: Relation) -> TableSchema | None:
        options = self._options
        if not options.selection.takes_table(relation.schema, relation.name):
            return None
        return make_table_schema(
            relation,
            self._catalog.primary_key(relation),
            options.prefix,
            options.selection,
            options.key_columns,
            options.modes,
            self._catalog.types(each.type_oid for each in relation.columns),
            options.placeholder,
        )

    # ---------------------------------------------------------------------------------- poll

    def _poll(self, wait_s: float) -> Polled:
        self._run_periodic_checks()
        if self._progress.pending:
            if self._must_commit_offset:
                # The offset must list the table as pending before the table is published.
                return self._polled([])
            records, self._progress = self._rows.read(self._progress, self._position.lsn)
            return self._polled(records)
        if not self._options.snapshot.streams:
            # The snapshot is complete, and the mode captures no changes.
            time.sleep(wait_s)
            return self._polled([]) if self._must_commit_offset else Polled()
        if self._changes is None:
            self._connect()
        records = self._receive(wait_s)
        assert self._changes is not None
        self._has_moved = self._has_moved or self._changes.position != self._position
        self._position = self._changes.position
        if records:
            return self._polled(records)
        is_time = time.monotonic() - self._polled_at >= self._options.heartbeat_s
        if is_time and (self._has_moved or self._options.beats):
            return self._polled(self._heartbeat())
        return self._polled([]) if self._must_commit_offset else Polled()

    def _polled(self, records: list[ConnectRecord]) -> Polled:
        self._polled_at = time.monotonic()
        self._must_commit_offset = self._has_moved = False
        offset: Json = {"system": self._system} | self._position.to_json()
        if self._progress.pending:
            offset["snapshot"] = self._progress.to_json()
        if self._watch.kept_bytes is not None:
            offset["slot_lag_bytes"] = self._watch.kept_bytes
        notices = self._published.notices + self._troubles
        if notices:
            offset["notices"] = notices
        return Polled(records, [(self._partition, offset)])

    def _receive(self, wait_s: float) -> list[ConnectRecord]:
        changes, link, options = self._changes, self._link, self._options
        assert changes is not None
        assert link is not None
        now_ms = time.time_ns() // 1_000_000
        until = time.monotonic() + wait_s
        records: list[ConnectRecord] = []
        size = 0
        while len(records) < options.batch_records and size < options.batch_bytes:
            wait = 0.0 if records else max(until - time.monotonic(), 0.0)
            data = link.receive(wait)
            if data is None:
                if records or time.monotonic() >= until:
                    break
                continue
            size += len(data)
            message = decode(data)
            records.extend(changes.feed(message, now_ms))
            if isinstance(message, Keepalive) and message.wants_reply:
                self._send_status_if_due(changes)
        if time.monotonic() - self._status_at >= options.status_s:
            self._send_status()
        return records

    def _send_status_if_due(self, changes: ChangeDecoder) -> None:
        """Reply to a keepalive. A server that is shutting down waits until all WAL is confirmed."""
        self._send_status()
        if changes.is_between and changes.position.lsn > self._confirmed:
            self._must_commit_offset = True

    def _run_periodic_checks(self) -> None:
        """Check periodically for new tables, and run the heartbeat query."""
        now = time.monotonic()
        is_time = now - self._looked_at >= self._options.heartbeat_s
        if not is_time or not self._options.snapshot.streams:
            return
        self._looked_at = now
        known, self._troubles = self._troubles, []
        if self._options.heartbeat_query:
            with self._log_failures("heartbeat.action.query", known):
                self._catalog.query(self._options.heartbeat_query)
        if not self._progress.pending:
            with self._log_failures("the search for new tables", known):
                self._published.refresh()
                self._find_new_tables()

    @contextmanager
    def _log_failures(self, what: str, known: list[str]) -> Iterator[None]:
        """Report an error as a notice instead of raising it, and log it unless it is in `known`.

        A database that rejects a statement, for example because its disk is full, can still stream.
        """
        try:
            yield
        except ConnectionLost:
            raise
        except PostgresError as error:
            message = f"{what} failed: {error}"
            if message not in known:
                logger.warning("%s", message)
            self._troubles.append(message)

    def _find_new_tables(self) -> None:
        self._published.repair()
        new = self._published.unpublished()
        self._published.check_privileges(new, reads=True)
        if new:
            logger.info("capturing new tables: %s", ", ".join(new))
            self._progress = replace(self._progress, pending=(*self._progress.pending, *new))
            self._must_commit_offset = True

    def _heartbeat(self) -> list[ConnectRecord]:
        if not self._options.beats:
            return []
        now_ms = time.time_ns() // 1_000_000
        topic = self._options.heartbeat_topic
        return [self._envelopes.heartbeat(topic, now_ms, self._watch.kept_bytes)]
