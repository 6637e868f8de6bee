"""Kafka Connect's connector model, property files and REST API.

The classes for writing connectors, converters and transforms can be imported from this package.
Its modules:

data         schemas and records that flow between connectors and topics
api          base classes of connectors and tasks, and their delivery contract
config       properties of connectors, and their validation
plugins      lookup of plugin classes: built-in names, Java's names, user classes
converters   records to bytes and back; `json_converter` implements Kafka's JSON with schemas
transforms/  Kafka's single message transforms and predicates
pipeline     transforms and converters in sequence, and the handling of failed records
offset_storage  offset storage: source offsets in a topic, written in the records' transaction
source_task, sink_task     running tasks; `task_thread` restarts a failed one
worker       the tasks of one process; `session` holds its Spark session
herder       operations that REST calls; `standalone` and `distributed/` implement them
offsets      state file of a standalone worker: `offset.storage.file.filename`
rest/        Kafka Connect's REST API
tables       records as Arrow columns
schema_registry, registry_converter, avro_converter, json_schema_converter
frames       sources that are streaming DataFrames
connectors/  files, data lakes, Spark formats, HTTP, mirroring, generated records; postgres
             (change data capture), jdbc
debezium     reading of Debezium's change event envelopes
"""

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
"""Module -> names that this package exports from it.

Names are imported on first use, so that a worker starts without Arrow where it is not installed.
"""

_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = [
    "AtLeast", "Between", "ColumnBatch", "Columns", "ConfigType", "Connector", "Converter",
    "DataError", "Definition", "FailedRecord", "Field", "Guarantee", "Header", "Importance",
    "NonEmpty", "NotInColumns", "OneOf", "Polled", "Predicate", "Record", "RetriableError",
    "Schema", "SinkConnector", "SinkTask", "SourceConnector", "SourceTask", "Transform", "Type",
    "key",
]  # fmt: skip

__getattr__ = lazy_names(__name__, _MODULES)
