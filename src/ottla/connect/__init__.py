"""Import and export with no code: Kafka Connect's model, property files and REST.

What a connector, a converter or a transform of your own is made of can be imported from here; the
modules are:

data         schemas and records: what flows between connectors and topics
api          what a connector is; the contract of resuming
config       properties of workers and connectors, and what is wrong with them
plugins      which class a name means: ours, Java's, or a user's own
converters   records to bytes and back; `json_converter` has Kafka's JSON with schemas
transforms/  Kafka's single message transforms and predicates
pipeline     transforms and converters in a row, and what becomes of a record that fails
ledger       where connectors are: records of a topic, written with theirs
source_task, sink_task     a task at work; `task_thread` starts it again when it fails
worker       the tasks of one process; `session` has its Spark session
herder       what REST asks of a worker; `standalone` and `distributed/` answer
offsets      what a standalone worker remembers: `offset.storage.file.filename`
rest, rest_…, rest_server  Kafka Connect's REST contract
tables       records as columns of Arrow
schema_registry, registry_converter, avro_converter, json_schema_converter
frames       sources that are streaming DataFrames
connectors/  files, lakes, Spark's formats, HTTP, mirrors, made-up records; postgres (change
             capture), jdbc
debezium     what a change looks like, for those who read them"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.base.config.definition import ConfigType, Importance
    from ottla.base.config.validator import AtLeast, Between, NonEmpty, OneOf
    from ottla.connect.api import (
        Connector,
        Guarantee,
        Polled,
        RetriableError,
        SinkConnector,
        SinkTask,
        SourceConnector,
        SourceTask,
    )
    from ottla.connect.columns import ColumnBatch, Columns, NotInColumns
    from ottla.connect.converters import Converter
    from ottla.connect.data import DataError, FailedRecord, Field, Header, Record, Schema, Type
    from ottla.connect.definition import Definition, key
    from ottla.connect.transforms.contract import Predicate, Transform

_PUBLIC = {
    "ottla.base.config.definition": ("ConfigType", "Importance"),
    "ottla.base.config.validator": ("AtLeast", "Between", "NonEmpty", "OneOf"),
    "ottla.connect.api": (
        "Connector", "Guarantee", "Polled", "RetriableError", "SinkConnector", "SinkTask",
        "SourceConnector", "SourceTask",
    ),
    "ottla.connect.columns": ("ColumnBatch", "Columns", "NotInColumns"),
    "ottla.connect.converters": ("Converter",),
    "ottla.connect.data": (
        "DataError", "FailedRecord", "Field", "Header", "Record", "Schema", "Type",
    ),
    "ottla.connect.definition": ("Definition", "key"),
    "ottla.connect.transforms.contract": ("Predicate", "Transform"),
}  # fmt: skip
"""Module -> the names that this package has from it. They are loaded when first used, so that a
worker without Arrow starts without it."""

_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = [
    "AtLeast", "Between", "ColumnBatch", "Columns", "ConfigType", "Connector", "Converter",
    "DataError", "Definition", "FailedRecord", "Field", "Guarantee", "Header", "Importance",
    "NonEmpty", "NotInColumns", "OneOf", "Polled", "Predicate", "Record", "RetriableError",
    "Schema", "SinkConnector", "SinkTask", "SourceConnector", "SourceTask", "Transform", "Type",
    "key",
]  # fmt: skip

__getattr__ = lazy_names(__name__, _MODULES)
