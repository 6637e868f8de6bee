"""What Spark says of formats that it does not have, in a sentence that helps. Pure but for Spark's
version."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.api import RetriableError
from ottla.connect.definition import Settings, with_prefix
from ottla.connect.failures import reason_of

FILE_FORMATS = ("parquet", "orc", "csv", "json", "text", "avro")
OPTION = "option."
_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13:{version}",
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
}
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
    if any(each in text for each in _NOT_FOUND):
        package = _PACKAGES.get(format_)
        if package is None:
            return f"Spark has no format {format_}."
        version = spark_version()
        return (
            f"The format {format_} needs a package that Spark does not have: set "
            f"spark.jars.packages={package.format(version=version)} in the worker's properties."
        )
    return reason_of(text)


def spark_version() -> str:
    import pyspark

    version: Any = pyspark.__version__
    return str(version)
