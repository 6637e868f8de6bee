"""Records of a snapshot, read in batches; `snapshot` describes how tables are read and resumed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.envelope import Envelopes, Where
from ottla.connect.connectors.postgres.options import Options
from ottla.connect.connectors.postgres.pgoutput import Relation
from ottla.connect.connectors.postgres.published import Published
from ottla.connect.connectors.postgres.snapshot import Progress, TableReader
from ottla.connect.connectors.postgres.tables import TableSchema
from ottla.connect.data import ConnectRecord

logger = logging.getLogger(__name__)


class SnapshotRows:
    def __init__(
        self,
        options: Options,
        catalog: Catalog,
        published: Published,
        envelopes: Envelopes,
        shape_of: Callable[[Relation], TableSchema | None],
    ) -> None:
        self._options = options
        self._catalog = catalog
        self._published = published
        self._envelopes = envelopes
        self._shape_of = shape_of
        self._progress = Progress()
        self._reader: TableReader | None = None
        self._reading: tuple[Relation, TableSchema] | None = None
        self.exported: str | None = None
        """Exported snapshot to begin with; it belongs to the connection that created the slot."""

    def close(self) -> None:
        """Close the reader. The next one reads the current state of the database."""
        if self._reader is not None:
            self._reader.close()
        self._reader = self._reading = self.exported = None

    def read(self, progress: Progress, lsn: int) -> tuple[list[ConnectRecord], Progress]:
        """Read some rows of the pending tables; return them and the remaining progress."""
        self._progress = progress
        if self._reader is None:
            if self._options.snapshot.streams:
                self._published.publish(progress.pending)
            self._reader = TableReader(self._options.database, self.exported)
            # The snapshot is imported, so the connection that exported it may run other commands.
            self.exported = None
        now_ms = time.time_ns() // 1_000_000
        where = Where(lsn, None, None, now_ms, "true")
        records = list(self._rows(self._reader, where, now_ms))
        if not self._progress.pending:
            self.close()
            logger.info("the snapshot of %s is complete", self._options.database.place)
        return records, self._progress

    def _rows(self, reader: TableReader, where: Where, now_ms: int) -> Iterator[ConnectRecord]:
        count = size = 0
        lsn = where.commit_lsn
        while self._progress.pending:
            if not reader.is_open:
                yield from self._open_table(reader, where, now_ms)
            if self._reading is None:
                continue
            relation, shape = self._reading
            indices = [i for i, each in enumerate(relation.columns) if each.name in shape.key]
            while (row := reader.next_row()) is not None:
                yield from self._envelopes.read(shape, row, where, lsn, now_ms)
                count += 1
                size += sum(len(each) for each in row if isinstance(each, bytes))
                if count >= self._options.batch_records or size >= self._options.batch_bytes:
                    after = tuple(_text(row[index]) for index in indices)
                    self._progress = replace(self._progress, after=after, is_begun=True)
                    return
            self._reading = None
            self._progress = self._progress.next_table()

    def _open_table(
        self, reader: TableReader, where: Where, now_ms: int
    ) -> Iterator[ConnectRecord]:
        table = self._published.tables.get(self._progress.pending[0])
        relation = self._catalog.relation(table.oid) if table is not None else None
        shape = self._shape_of(relation) if relation is not None else None
        if relation is None or shape is None:
            # The table was dropped, or is no longer selected.
            self._progress = self._progress.next_table()
            self._reading = None
            return
        is_first = not self._progress.is_begun
        if (is_first and self._progress.is_repeat) or (not is_first and not shape.key):
            yield from self._envelopes.truncated(shape, where, where.commit_lsn, now_ms)
        self._reading = (relation, shape)
        reader.open(relation, shape.key, self._progress.after)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else ""
