"""Change events in Debezium's envelope format.

    key      the table's key as a struct, or null if it has none
    value    {"before": row or null, "after": row or null, "source": origin of the change,
              "op": "c" insert, "u" update, "d" delete, "t" truncate, "r" read by a snapshot,
              "ts_ms": time of reading, "transaction": …}

A delete is followed by a tombstone (`tombstones.on.delete`). An update of the key becomes a delete
of the old key and an insert of the new one, with the headers `__debezium.newkey` and
`__debezium.oldkey`, as in Debezium. An update that does not change a large value (TOAST) does not
contain it: the value is then the placeholder (null if the type is neither string nor bytes), and
the header UNCHANGED_HEADER lists the columns, separated by commas. The functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ottla.connect.connectors.postgres.pgoutput import Delete, Insert, Row, Update
from ottla.connect.connectors.postgres.tables import TableSchema
from ottla.connect.data import (
    INT64,
    STRING,
    ConnectRecord,
    DataError,
    FailedRecord,
    Header,
    Schema,
    Type,
    struct_schema,
)
from ottla.connect.debezium import UNCHANGED_HEADER

NEW_KEY_HEADER, OLD_KEY_HEADER = "__debezium.newkey", "__debezium.oldkey"
VERSION = "3.0"
_OPTIONAL_STRING = STRING.as_optional()
_OPTIONAL_INT64 = INT64.as_optional()

SOURCE_SCHEMA = struct_schema(
    ("version", STRING), ("connector", STRING), ("name", STRING), ("ts_ms", INT64),
    ("snapshot", _OPTIONAL_STRING), ("db", STRING), ("sequence", _OPTIONAL_STRING),
    ("schema", STRING), ("table", STRING), ("txId", _OPTIONAL_INT64), ("lsn", _OPTIONAL_INT64),
    ("xmin", _OPTIONAL_INT64), name="io.debezium.connector.postgresql.Source",
)  # fmt: skip
TRANSACTION_SCHEMA = struct_schema(
    ("id", STRING), ("total_order", INT64), ("data_collection_order", INT64),
    name="event.block", optional=True,
)  # fmt: skip
MARKER_KEY_SCHEMA = struct_schema(
    ("id", STRING), name="io.debezium.connector.common.TransactionMetadataKey"
)
MARKER_SCHEMA = struct_schema(
    ("status", STRING), ("id", STRING), ("event_count", _OPTIONAL_INT64),
    ("data_collections", Schema(Type.ARRAY, True, value_schema=struct_schema(
        ("data_collection", STRING), ("event_count", INT64), name="event.collection",
    ))),
    ("ts_ms", INT64), name="io.debezium.connector.common.TransactionMetadataValue",
)  # fmt: skip
HEARTBEAT_KEY_SCHEMA = struct_schema(("serverName", STRING))
HEARTBEAT_SCHEMA = struct_schema(
    ("ts_ms", INT64), ("slot_lag_bytes", INT64.as_optional()),
    name="io.debezium.connector.common.Heartbeat",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Where:
    """Transaction that a change belongs to."""

    commit_lsn: int
    previous_lsn: int | None
    xid: int | None
    time_ms: int
    snapshot: str = "false"


class Made(NamedTuple):
    """Parts that all records of a table share."""

    topic: str
    schema: Schema
    source: dict[str, Any]


@dataclass
class Envelopes:
    """Factory for the records of one connector."""

    prefix: str
    database: str
    has_tombstones: bool = True
    skipped: frozenset[str] = frozenset()
    """Operations that are not captured (`skipped.operations`)."""
    marks_transactions: bool = False
    made: dict[int, tuple[TableSchema, Made]] = field(default_factory=dict)

    def topic(self, shape: TableSchema) -> str:
        return f"{self.prefix}.{shape.full_name}"

    def inserted(
        self, shape: TableSchema, change: Insert, where: Where, lsn: int, now_ms: int
    ) -> list[ConnectRecord]:
        after, _ = shape.decode(change.new)
        return self._record(shape, "c", None, after, where, lsn, now_ms)

    def updated(
        self, shape: TableSchema, change: Update, where: Where, lsn: int, now_ms: int
    ) -> list[ConnectRecord]:
        after, unchanged = shape.decode(change.new, change.old)
        before = shape.decode(change.old)[0] if change.old is not None else None
        headers = _unchanged(unchanged)
        if before is not None and shape.key and shape.key_of(before) != shape.key_of(after):
            old_key, new_key = shape.key_of(before), shape.key_of(after)
            gone = (Header(NEW_KEY_HEADER, shape.key_schema, new_key),)
            come = (Header(OLD_KEY_HEADER, shape.key_schema, old_key), *headers)
            return [
                *self._record(shape, "d", before, None, where, lsn, now_ms, gone),
                *self._record(shape, "c", None, after, where, lsn, now_ms, come),
            ]
        return self._record(shape, "u", before, after, where, lsn, now_ms, headers)

    def deleted(
        self, shape: TableSchema, change: Delete, where: Where, lsn: int, now_ms: int
    ) -> list[ConnectRecord]:
        before, _ = shape.decode(change.old)
        return self._record(shape, "d", before, None, where, lsn, now_ms)

    def truncated(
        self, shape: TableSchema, where: Where, lsn: int, now_ms: int
    ) -> list[ConnectRecord]:
        return self._record(shape, "t", None, None, where, lsn, now_ms)

    def read(
        self, shape: TableSchema, row: Row, where: Where, lsn: int, now_ms: int
    ) -> list[ConnectRecord]:
        try:
            after, _ = shape.decode(row)
        except DataError as error:
            return [self.failed(shape, error)]
        return self._record(shape, "r", None, after, where, lsn, now_ms)

    def failed(self, shape: TableSchema, error: DataError) -> ConnectRecord:
        """Return a FailedRecord for a row with an invalid value, for `errors.tolerance`."""
        return FailedRecord(self.topic(shape), None, error=str(error), source="PostgresSource")

    # -------------------------------------------------------------------------- other records

    def begun(self, where: Where) -> ConnectRecord:
        return self._marker(where, {"status": "BEGIN", "event_count": None})

    def ended(self, where: Where, counts: Mapping[str, int]) -> ConnectRecord:
        collections = [
            {"data_collection": name, "event_count": count} for name, count in counts.items()
        ]
        document = {"status": "END", "event_count": sum(counts.values())}
        return self._marker(where, document | {"data_collections": collections})

    def _marker(self, where: Where, document: dict[str, Any]) -> ConnectRecord:
        identity = transaction_id(where)
        value = {"data_collections": None} | document | {"id": identity, "ts_ms": where.time_ms}
        return ConnectRecord(
            f"{self.prefix}.transaction", value, MARKER_SCHEMA, {"id": identity}, MARKER_KEY_SCHEMA
        )

    def heartbeat(self, topic_prefix: str, now_ms: int, lag_bytes: int | None) -> ConnectRecord:
        return ConnectRecord(
            f"{topic_prefix}.{self.prefix}",
            {"ts_ms": now_ms, "slot_lag_bytes": lag_bytes},
            HEARTBEAT_SCHEMA,
            {"serverName": self.prefix},
            HEARTBEAT_KEY_SCHEMA,
        )

    # ---------------------------------------------------------------------------------- parts

    def _record(
        self,
        shape: TableSchema,
        op: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        where: Where,
        lsn: int,
        now_ms: int,
        headers: tuple[Header, ...] = (),
    ) -> list[ConnectRecord]:
        if op in self.skipped:
            return []
        made = self._made(shape)
        previous = f'"{where.previous_lsn}"' if where.previous_lsn is not None else "null"
        source = made.source.copy()
        source["ts_ms"] = where.time_ms
        source["snapshot"] = where.snapshot
        source["sequence"] = f'[{previous},"{lsn}"]'
        source["txId"] = where.xid
        source["lsn"] = lsn
        value = {
            "before": before,
            "after": after,
            "source": source,
            "op": op,
            "ts_ms": now_ms,
            "transaction": None,
        }
        row = after if after is not None else before
        key = shape.key_of(row) if row is not None else None
        # With a schema but no key, the converter would write a non-null key.
        key_schema = shape.key_schema if key is not None else None
        topic = made.topic
        record = ConnectRecord(
            topic, value, made.schema, key, key_schema, None, None, None, headers
        )
        if op == "d" and key is not None and self.has_tombstones:
            return [record, ConnectRecord(topic, None, None, key, key_schema)]
        return [record]

    def _made(self, shape: TableSchema) -> Made:
        """Return the shared parts of a table's records, built once for each shape."""
        known = self.made.get(shape.oid)
        if known is not None and known[0] is shape:
            return known[1]
        row, topic = shape.row_schema, self.topic(shape)
        schema = struct_schema(
            ("before", row), ("after", row), ("source", SOURCE_SCHEMA), ("op", STRING),
            ("ts_ms", _OPTIONAL_INT64), ("transaction", TRANSACTION_SCHEMA),
            name=f"{topic}.Envelope",
        )  # fmt: skip
        source = dict.fromkeys(each.name for each in SOURCE_SCHEMA.fields)
        source |= {
            "version": VERSION,
            "connector": "postgresql",
            "name": self.prefix,
            "db": self.database,
            "schema": shape.schema,
            "table": shape.name,
        }
        made = Made(topic, schema, source)
        self.made[shape.oid] = (shape, made)
        return made


def with_order(record: ConnectRecord, where: Where, total: int, of_table: int) -> ConnectRecord:
    """Return the record with its position in the transaction (`provide.transaction.metadata`)."""
    if record.value is None:
        return record
    document = {
        "id": transaction_id(where),
        "total_order": total,
        "data_collection_order": of_table,
    }
    return replace(record, value={**record.value, "transaction": document})


def transaction_id(where: Where) -> str:
    return f"{where.xid}:{where.commit_lsn}"


def _unchanged(names: list[str]) -> tuple[Header, ...]:
    return (Header(UNCHANGED_HEADER, STRING, ",".join(names)),) if names else ()
