"""Helpful messages for Spark's errors about formats that are missing or built for another Spark."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.api import RetriableError
from ottla.connect.definition import Settings, with_prefix
from ottla.connect.spark_errors import reason_of

FILE_FORMATS = ("parquet", "orc", "csv", "json", "text", "avro")
OPTION = "option."
MAX_CAUSES, MAX_CAUSE_CHARS = 10, 10_000
_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13:{version}",
    "delta": "io.delta:delta-spark_{line}_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{line}_2.13:VERSION",
}
"""Packages by format; `line` is Spark's minor version, for which each package is built."""
_UNLIKE = re.compile(
    r"\b(NoSuchMethodError|NoSuchFieldError|IncompatibleClassChangeError|AbstractMethodError|"
    r"NoClassDefFoundError|IllegalAccessError|VerifyError|UnsupportedClassVersionError)\b"
)
"""Java errors that occur when a class is incompatible with those it was compiled against."""
_NOT_FOUND = (
    "DATA_SOURCE_NOT_FOUND", "Failed to find data source", "Failed to find the data source",
)  # fmt: skip


def options_of(settings: Settings) -> dict[str, str]:
    """Return the properties that begin with `option.`, for Spark."""
    properties = {name: value for name, value in settings.items() if name.startswith(OPTION)}
    return with_prefix(properties, OPTION)


@contextlib.contextmanager
def plain_errors(format_: str) -> Iterator[None]:
    """Convert Spark's errors to UserError."""
    try:
        yield
    except (UserError, RetriableError):
        raise
    except Exception as error:
        # Py4J and Spark raise exceptions with no common base class below Exception.
        raise UserError(sentence(format_, error)) from error


def sentence(format_: str, error: BaseException) -> str:
    text = str(error)
    unlike = _UNLIKE.search(text + _causes(error))
    if unlike is not None:
        version = spark_version()
        return (
            f"The package for the format {format_} does not support Spark {version} "
            f"({unlike[1]}). Set spark.jars.packages in the worker's properties to a package "
            f"for Spark {line_of(version)}."
        )
    if any(each in text for each in _NOT_FOUND):
        package = _PACKAGES.get(format_)
        if package is None:
            return f"Spark has no format {format_}."
        version = spark_version()
        name = package.format(version=version, line=line_of(version))
        return (
            f"The format {format_} needs a package that is not installed. Set "
            f"spark.jars.packages={name} in the worker's properties."
        )
    return reason_of(text)


def _causes(error: BaseException) -> str:
    """Return the Java stack traces, which Spark's Python exceptions carry as their causes."""
    found: list[str] = []
    cause = getattr(error, "_cause", None)
    while cause is not None and len(found) < MAX_CAUSES:
        found.append(f"\n{getattr(cause, '_stackTrace', '')}"[:MAX_CAUSE_CHARS])
        cause = getattr(cause, "_cause", None)
    return "".join(found)


def line_of(version: str) -> str:
    return ".".join(version.split(".")[:2])


def spark_version() -> str:
    import pyspark

    version: Any = pyspark.__version__
    return str(version)
