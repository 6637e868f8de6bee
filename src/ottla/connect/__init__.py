"""Kafka Connect's connector model, property files and REST API.

Authors of connectors, converters and transforms import everything that they need from this package:

    from ottla.connect import ConnectRecord, Definition, Polled, SourceConnector, SourceTask, key

The modules:

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

from ottla.base.deprecation import warn_deprecated
from ottla.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.base.config.definition import ConfigType, Importance
    from ottla.base.config.validator import (
        AtLeast,
        Between,
        EachOneOf,
        NonEmpty,
        OneOf,
        Validator,
    )
    from ottla.base.errors import UserError
    from ottla.connect.api import (
        Connector,
        Guarantee,
        Offsets,
        Polled,
        RetriableError,
        SinkConnector,
        SinkTask,
        SourceConnector,
        SourceTask,
    )
    from ottla.connect.columns import Column, ColumnBatch, Columns, NotInColumns, column_of
    from ottla.connect.converters import Converter
    from ottla.connect.data import (
        ConnectRecord,
        DataError,
        FailedRecord,
        Field,
        Header,
        Schema,
        Type,
        decimal_schema,
        struct_schema,
    )
    from ottla.connect.definition import Definition, Settings, key
    from ottla.connect.frames import FRAME, FrameSource
    from ottla.connect.session import spark_session
    from ottla.connect.transforms.contract import Predicate, Transform

_PUBLIC = {
    "ottla.base.config.definition": ("ConfigType", "Importance"),
    "ottla.base.config.validator": (
        "AtLeast", "Between", "EachOneOf", "NonEmpty", "OneOf", "Validator",
    ),
    "ottla.base.errors": ("UserError",),
    "ottla.connect.api": (
        "Connector", "Guarantee", "Offsets", "Polled", "RetriableError", "SinkConnector",
        "SinkTask", "SourceConnector", "SourceTask",
    ),
    "ottla.connect.columns": ("Column", "ColumnBatch", "Columns", "NotInColumns", "column_of"),
    "ottla.connect.converters": ("Converter",),
    "ottla.connect.data": (
        "ConnectRecord", "DataError", "FailedRecord", "Field", "Header", "Schema", "Type",
        "decimal_schema", "struct_schema",
    ),
    "ottla.connect.definition": ("Definition", "Settings", "key"),
    "ottla.connect.frames": ("FRAME", "FrameSource"),
    "ottla.connect.session": ("spark_session",),
    "ottla.connect.transforms.contract": ("Predicate", "Transform"),
}  # fmt: skip
"""Module -> names that this package exports from it.

Names are imported on first use, so that a worker starts without Arrow where it is not installed.
"""

_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = [
    "FRAME", "AtLeast", "Between", "Column", "ColumnBatch", "Columns", "ConfigType",
    "ConnectRecord", "Connector", "Converter", "DataError", "Definition", "EachOneOf",
    "FailedRecord", "Field", "FrameSource", "Guarantee", "Header", "Importance", "NonEmpty",
    "NotInColumns", "Offsets", "OneOf", "Polled", "Predicate", "RetriableError", "Schema",
    "Settings", "SinkConnector", "SinkTask", "SourceConnector", "SourceTask", "Transform", "Type",
    "UserError", "Validator", "column_of", "decimal_schema", "key", "spark_session",
    "struct_schema",
]  # fmt: skip

_load = lazy_names(__name__, _MODULES)


def __getattr__(name: str) -> object:
    if name == "Record":
        warn_deprecated("ottla.connect.Record", "Use ConnectRecord.")
        return _load("ConnectRecord")
    return _load(name)
