"""Lookup of plugin classes by name.

Java's full class names, their short forms (`FileStreamSource`, `JsonConverter`,
`InsertField$Value`) and Ottla's own names are equivalent; the suffix `Connector` is optional.
`package.module.Class` and `package.module:Class` name a user's class, or a function to use as a
transform. Packages can offer connectors under short names as entry points in the group
`ottla.connectors`.

A plugin whose packages are not installed is known by name, but not listed with those that can run.
`missing_connectors` lists it with the command that installs the package.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, util
from importlib.metadata import entry_points
from typing import Any

from ottla.base.installation import install_extra
from ottla.connect.api import Connector, SourceConnector
from ottla.connect.converters import Converter
from ottla.connect.transforms.contract import Predicate, Transform
from ottla.connect.transforms.function import transform_of

logger = logging.getLogger(__name__)

ENTRY_POINTS = "ottla.connectors"
JAVA_PACKAGES = (
    "org.apache.kafka.connect.file.", "org.apache.kafka.connect.json.",
    "org.apache.kafka.connect.storage.", "org.apache.kafka.connect.converters.",
    "org.apache.kafka.connect.transforms.predicates.", "org.apache.kafka.connect.transforms.",
    "io.debezium.transforms.",
    "org.apache.kafka.connect.mirror.", "io.confluent.connect.avro.", "io.confluent.connect.json.",
    "io.confluent.kafka.connect.datagen.", "io.aiven.kafka.connect.http.",
)  # fmt: skip
_OURS = "ottla.connect."

CONNECTORS = {
    "FileStreamSource": "connectors.file_stream:FileStreamSource",
    "FileStreamSink": "connectors.file_stream:FileStreamSink",
    "JdbcSource": "connectors.jdbc.source:JdbcSource",
    "JdbcSink": "connectors.jdbc.sink:JdbcSink",
    "PostgresSource": "connectors.postgres.connector:PostgresSource",
    "FileSource": "connectors.file_source:FileSource",
    "FileSink": "connectors.file_sink:FileSink",
    "Datagen": "connectors.datagen:Datagen",
    "HttpSink": "connectors.http_sink:HttpSink",
    "ParquetSink": "connectors.parquet_sink:ParquetSink",
    "SparkSource": "connectors.spark_source:SparkSource",
    "SparkSink": "connectors.spark_sink:SparkSink",
    "SparkFunctionSource": "connectors.spark_source:SparkFunctionSource",
    "SparkFunctionSink": "connectors.spark_sink:SparkFunctionSink",
    "MirrorSource": "connectors.mirror_source:MirrorSource",
    "MirrorCheckpoint": "connectors.mirror_checkpoint:MirrorCheckpoint",
    "MirrorHeartbeat": "connectors.mirror_checkpoint:MirrorHeartbeat",
}
JAVA_CONNECTORS = {
    "io.debezium.connector.postgresql.PostgresConnector": "PostgresSource",
    "io.confluent.connect.jdbc.JdbcSourceConnector": "JdbcSource",
    "io.confluent.connect.jdbc.JdbcSinkConnector": "JdbcSink",
}
"""Java connectors whose class name differs from ours."""
CONVERTERS = {
    "JsonConverter": "json_converter:JsonConverter",
    "AvroConverter": "avro_converter:AvroConverter",
    "JsonSchemaConverter": "json_schema_converter:JsonSchemaConverter",
    **{
        name: f"converters:{name}"
        for name in (
            "StringConverter", "ByteArrayConverter", "ShortConverter", "IntegerConverter",
            "LongConverter", "FloatConverter", "DoubleConverter", "BooleanConverter",
            "SimpleHeaderConverter",
        )
    },
}  # fmt: skip
TRANSFORMS = {
    name: f"transforms.{module}:{name}"
    for module, names in {
        "fields": ("InsertField", "ReplaceField", "MaskField", "HoistField", "ExtractField",
                   "ValueToKey"),
        "shape": ("Flatten", "Cast", "SetSchemaMetadata"),
        "timestamps": ("TimestampConverter",),
        "routing": ("RegexRouter", "TimestampRouter", "Filter"),
        "headers": ("HeaderFrom", "InsertHeader", "DropHeaders"),
        "debezium": ("ExtractNewRecordState",),
    }.items()
    for name in names
}  # fmt: skip
PREDICATES = {
    name: f"transforms.predicates:{name}"
    for name in ("TopicNameMatches", "HasHeaderKey", "RecordIsTombstone")
}


PACKAGES = {
    "arrow": ("pyarrow",),
    "avro": ("fastavro",),
    "jdbc": ("sqlalchemy",),
    "postgres": ("psycopg",),
    "spark": ("pyspark", "pandas", "pyarrow", "numba"),
}
"""Modules that plugins import, by the extra of Ottla that installs them."""
EXTRAS = {
    "AvroConverter": "avro",
    "JdbcSink": "jdbc",
    "JdbcSource": "jdbc",
    "ParquetSink": "arrow",
    "PostgresSource": "postgres",
    "SparkFunctionSink": "spark",
    "SparkFunctionSource": "spark",
    "SparkSink": "spark",
    "SparkSource": "spark",
}
"""The extra that a plugin needs, by the plugin's name."""


class UnknownPlugin(ValueError):
    """A name that does not refer to a plugin class. The message is one sentence."""


class MissingPackage(UnknownPlugin):
    """The class exists, but a package that it needs is not installed."""


@dataclass(frozen=True)
class Plugin:
    """A connector that can run, as `/connector-plugins` lists it."""

    name: str
    kind: str
    version: str
    guarantee: str = ""


@dataclass(frozen=True)
class MissingPlugin:
    """A connector that cannot run here."""

    name: str
    missing: str
    """The package that is not installed, and how to install it."""


def connector_class(name: str) -> type[Connector]:
    found: type[Connector] = _find("connector", name, _connectors(), Connector)
    return found


def converter_class(name: str) -> type[Converter]:
    found: type[Converter] = _find("converter", name, _own(CONVERTERS), Converter)
    return found


def transform_class(name: str) -> tuple[type[Transform], str]:
    """Return the class, and the part of the record that it transforms."""
    plain, dollar, part = name.strip().partition("$")
    found = _find("transform", plain, _own(TRANSFORMS), Transform, or_function=True)
    if not isinstance(found, type):
        found = transform_of(found, on_part=bool(dollar))
    if not found.has_parts:
        if dollar:
            raise UnknownPlugin(
                f"{found.__name__} has no class {part}. Use the name without ${part}."
            )
        return found, "value"
    if part not in ("Key", "Value"):
        raise UnknownPlugin(f"{name} transforms keys or values. Use {plain}$Key or {plain}$Value.")
    return found, part.lower()


def predicate_class(name: str) -> type[Predicate]:
    found: type[Predicate] = _find("predicate", name, _own(PREDICATES), Predicate)
    return found


def connector_plugins() -> list[Plugin]:
    """Return the connectors that can run here, by name."""
    found = []
    for name in sorted(_connectors()):
        try:
            made = connector_class(name)
        except UnknownPlugin:
            continue
        kind = "source" if issubclass(made, SourceConnector) else "sink"
        found.append(Plugin(name, kind, version_of(made), made.guarantee.value))
    return found


def missing_connectors() -> list[MissingPlugin]:
    """Return the connectors that cannot run here, by name, with what each of them lacks."""
    found = []
    for name in sorted(_connectors()):
        try:
            connector_class(name)
        except UnknownPlugin as error:
            found.append(MissingPlugin(name, missing_package(name) or str(error)))
    return found


def missing_package(name: str) -> str | None:
    """Return what one of Ottla's own plugins lacks and how to install it, or None if nothing.

    Nothing is imported, so a worker can afford to ask for every plugin when it starts.
    """
    extra = EXTRAS.get(name)
    if extra is None:
        return None
    for package in PACKAGES[extra]:
        if util.find_spec(package) is None:
            return f"the package {package}: {install_extra(extra)}"
    return None


def version_of(plugin: type[Connector]) -> str:
    from ottla import __version__

    return plugin.version or __version__


def short_name(kind: str, name: str) -> str:
    """Return a plugin's name without Java's package, as in the tables above."""
    name = JAVA_CONNECTORS.get(name, name)
    for package in JAVA_PACKAGES:
        name = name.removeprefix(package)
    return name.removesuffix("Connector") if kind == "connector" else name


def _own(table: Mapping[str, str]) -> dict[str, str]:
    return {name: _OURS + place for name, place in table.items()}


def import_plugins_from(entries: Iterable[str]) -> None:
    """Add the entries of `plugin.path` to the import path of this process."""
    for entry in entries:
        path = os.path.abspath(entry)
        if not os.path.exists(path):
            logger.warning("%s in plugin.path does not exist", entry)
        elif path not in sys.path:
            sys.path.append(path)
            _connectors.cache_clear()


@cache
def _connectors() -> dict[str, str]:
    offered = {each.name: each.value for each in entry_points(group=ENTRY_POINTS)}
    return offered | _own(CONNECTORS)


def _find(
    kind: str, name: str, table: Mapping[str, str], base: type, *, or_function: bool = False
) -> Any:
    name = name.strip()
    short = short_name(kind, name)
    place = table.get(short) or table.get(name)
    if place is None and ("." in name or ":" in name):
        place = name if ":" in name else ":".join(name.rsplit(".", 1))
    if place is None:
        raise UnknownPlugin(_unknown(kind, name, short, table))
    missing = missing_package(short) if short in table else None
    if missing is not None:
        raise MissingPackage(f"The {kind} {name} needs {missing}")
    module, _, attribute = place.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        # The class may exist but import a module that does not.
        if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
            raise MissingPackage(
                f"The {kind} {name} needs the package {error.name}, which is not installed."
            ) from None
        raise UnknownPlugin(_unknown(kind, name, short, table)) from None
    except ImportError as error:
        # An installed package that fails to load, such as psycopg without libpq.
        message = str(error).partition("\n")[0].rstrip(".")
        raise UnknownPlugin(f"The {kind} {name} cannot be imported: {message}.") from None
    except (AttributeError, ValueError):
        raise UnknownPlugin(_unknown(kind, name, short, table)) from None
    if or_function and callable(found) and not isinstance(found, type):
        return found
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UnknownPlugin(f"{name} is not a {kind}: it must be a subclass of {base.__name__}.")
    return found


def _unknown(kind: str, name: str, short: str, table: Mapping[str, str]) -> str:
    last = short.rpartition(".")[2].removesuffix("Connector" if kind == "connector" else "")
    nearest = difflib.get_close_matches(last, table, n=1, cutoff=0.5)
    message = (
        f"; did you mean {nearest[0]}?" if nearest else f"; use one of {', '.join(sorted(table))}."
    )
    return f"{kind.capitalize()} {name} does not exist{message}"
