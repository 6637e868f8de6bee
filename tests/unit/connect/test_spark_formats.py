"""Tests of error messages about Spark packages that are missing or built for another version."""

from __future__ import annotations

import pytest

from ottla.base.errors import UserError
from ottla.connect.connectors import spark_formats
from ottla.connect.connectors.spark_formats import plain_errors, sentence
from ottla.connect.connectors.spark_source import SparkSource
from ottla.connect.session import not_started

NO_METHOD = (
    "An error occurred while calling o88.save.\n: java.lang.NoSuchMethodError: 'void "
    "org.apache.spark.sql.execution.LogicalRDD.<init>(scala.collection.immutable.Seq)'\n"
    "\tat org.apache.spark.sql.delta.Snapshot.emptyDF(Snapshot.scala:1)\n"
)
NO_INTERFACE = (
    "An error occurred while calling o68.sql.\n: java.lang.IncompatibleClassChangeError: class "
    "org.apache.iceberg.spark.source.SparkView can not implement org.apache.spark.sql.connector."
    "catalog.View, because it is not an interface\n\tat java.base/java.lang.ClassLoader\n"
)


class SparkError(Exception):
    """Exception like PySpark's, which keeps the Java stack trace in a separate attribute."""

    def __init__(self, text: str, stack: str = "", cause: Exception | None = None) -> None:
        super().__init__(text)
        self._stackTrace = stack
        self._cause = cause


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_formats, "spark_version", lambda: "4.3.0")


@pytest.mark.parametrize(
    ("format_", "error", "name"),
    [
        ("delta", Exception(NO_METHOD), "NoSuchMethodError"),
        ("delta", SparkError("'void <init>()'", "", SparkError("", NO_METHOD)),
         "NoSuchMethodError"),
        ("iceberg", Exception(NO_INTERFACE), "IncompatibleClassChangeError"),
    ],
)  # fmt: skip
def test_a_package_of_another_spark_is_reported(format_: str, error: Exception, name: str) -> None:
    with pytest.raises(UserError) as raised, plain_errors(format_):
        raise error
    assert str(raised.value) == (
        f"The package for the format {format_} does not support Spark 4.3.0 ({name}). Set "
        "spark.jars.packages in the worker's properties to a package for Spark 4.3."
    )


def test_a_package_that_is_missing_is_named_for_this_spark() -> None:
    error = Exception("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: x")
    assert "packages=io.delta:delta-spark_4.3_2.13:VERSION in" in sentence("delta", error)
    assert "iceberg-spark-runtime-4.3_2.13:VERSION in" in sentence("iceberg", error)
    assert "spark-avro_2.13:4.3.0 in" in sentence("avro", error)
    assert sentence("x", error) == "Spark has no format x."


def test_a_spark_that_does_not_start_is_reported() -> None:
    text = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
    packages = {"spark.jars.packages": "io.delta:delta-spark_4.3_2.13:9.9.9"}
    assert (
        "downloads spark.jars.packages=io.delta:delta-spark_4.3_2.13:9.9.9. Check that"
        in not_started(text, packages)
    )
    assert not_started(text, {}).endswith("on the worker's console.")
    assert not_started("Master must start with yarn", {}) == (
        "Spark did not start: Master must start with yarn"
    )


def test_a_query_that_ends_is_explained_by_its_format() -> None:
    source = SparkSource(
        SparkSource.definition.settings(
            {"format": "delta", "topic": "t", "path": "p", "checkpoint.location": "c"}
        )
    )
    error = Exception("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta")
    assert source.error_message(error) == sentence("delta", error)
    assert "spark.jars.packages" in source.error_message(error)
