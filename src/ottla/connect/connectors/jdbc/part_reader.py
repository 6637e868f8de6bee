"""Reading of a bulk load that Spark has spooled, a batch at a time. The source offset is

    {"turn": number of the load, "rows": number of its rows that are in topics}

An incomplete load starts over; a complete one stays in the spool until the next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from ottla.base.errors import UserError
from ottla.connect.api import Json
from ottla.connect.connectors.jdbc.spark_read import Load, Loading
from ottla.connect.connectors.jdbc.spool import Spool
from ottla.connect.data import ConnectRecord


class PartReader:
    def __init__(self, spool: Spool, count: int, make_load: Callable[[], Load | None]) -> None:
        """Initialize; `make_load` returns the next load, or None if there is nothing to read."""
        self.spool = spool
        self._count = count
        self._make_load = make_load
        self._loading: Loading | None = None
        self._reading: Iterator[ConnectRecord] | None = None

    def next(self, offset: Json, limit: int) -> tuple[list[ConnectRecord], Json] | None:
        """Return records and the source offset after them, or None while Spark is still reading.

        The offset has no `rows` at the end of the turn.

        Raises:
            UserError: The load failed, or the spool cannot be read.
        """
        load_id, rows = int(offset.get("turn", 0)), int(offset.get("rows", 0))
        if self._reading is None:
            if not self.spool.is_whole(load_id):
                self._check_not_started(load_id, rows)
                load = self._make_load() if self._loading is None else None
                if load is None and self._loading is None:
                    return [], {"turn": load_id + 1}
                if not self._is_loaded(load_id, load):
                    return None
            self._reading = self.spool.records(load_id, rows)
        try:
            records = list(islice(self._reading, limit))
        except OSError as error:
            raise UserError(
                f"Cannot read {self.spool.folder(load_id)}: {error.strerror or error}."
            ) from None
        if len(records) == limit:
            return records, {"turn": load_id, "rows": rows + limit}
        self._reading = None
        return records, {"turn": load_id + 1}

    def stop(self) -> None:
        if self._loading is not None:
            self._loading.stop()

    def _check_not_started(self, load_id: int, rows: int) -> None:
        if rows:
            raise UserError(
                f"{rows} rows of a load have been written to topics, but the remaining ones are "
                f"missing: {self.spool.folder(load_id)} does not exist. checkpoint.location must "
                "be a directory that all workers share. To start over, reset the connector's "
                "offsets."
            )

    def _is_loaded(self, load_id: int, load: Load | None) -> bool:
        if load is not None:
            self._loading = Loading(self.spool, load_id, self._count, load)
        assert self._loading is not None
        try:
            is_done = self._loading.is_done(0)
        except BaseException:
            self._loading = None
            raise
        if is_done:
            self._loading = None
        return is_done
