"""What Spark says of formats that it does not have, or whose package is made for another Spark, in
a sentence that helps. Pure but for Spark's version."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.api import RetriableError
from ottla.connect.definition import Settings, with_prefix
from ottla.connect.failures import reason_of

FILE_FORMATS = ("parquet", "orc", "csv", "json", "text", "avro")
OPTION = "option."
MAX_CAUSES, MAX_CAUSE_CHARS = 10, 10_000
_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13:{version}",
    "delta": "io.delta:delta-spark_{line}_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{line}_2.13:VERSION",
}
"""`line`: Spark's version without its last number, for which these are made one by one."""
_UNLIKE = re.compile(
    r"\b(NoSuchMethodError|NoSuchFieldError|IncompatibleClassChangeError|AbstractMethodError|"
    r"NoClassDefFoundError|IllegalAccessError|VerifyError|UnsupportedClassVersionError)\b"
)
"""What Java says when a class does not fit those that it was compiled against."""
_NOT_FOUND = (
    "DATA_SOURCE_NOT_FOUND", "Failed to find data source", "Failed to find the data source",
)  # fmt: skip


def options_of(settings: Settings) -> dict[str, str]:
    """What begins with `option.`, for Spark."""
    given = {name: value for name, value in settings.items() if name.startswith(OPTION)}
    return with_prefix(given, OPTION)


@contextlib.contextmanager
def told_plainly(format_: str) -> Iterator[None]:
    """Spark's errors as UserError."""
    try:
        yield
    except (UserError, RetriableError):
        raise
    except Exception as error:
        # Py4J's and Spark's own: there is no common class below Exception.
        raise UserError(sentence(format_, error)) from error


def sentence(format_: str, error: BaseException) -> str:
    text = str(error)
    unlike = _UNLIKE.search(text + _causes(error))
    if unlike is not None:
        version = spark_version()
        return (
            f"The package that Spark has for the format {format_} is made for another Spark than "
            f"{version} ({unlike[1]}): set spark.jars.packages in the worker's properties to one "
            f"that is made for {line_of(version)}."
        )
    if any(each in text for each in _NOT_FOUND):
        package = _PACKAGES.get(format_)
        if package is None:
            return f"Spark has no format {format_}."
        version = spark_version()
        name = package.format(version=version, line=line_of(version))
        return (
            f"The format {format_} needs a package that Spark does not have: set "
            f"spark.jars.packages={name} in the worker's properties."
        )
    return reason_of(text)


def _causes(error: BaseException) -> str:
    """Java's own words, which Spark's errors for Python carry beside what they say."""
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
