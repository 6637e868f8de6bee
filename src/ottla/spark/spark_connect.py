"""Sessions of Spark Connect, which have no JVM in this process: `SparkSession.builder.remote(…)`.

A session is one of Spark Connect if the setting `spark.remote` or the variable SPARK_REMOTE names a
server, or if the program has created one already. Spark starts a server in this process's JVM for
`local[…]`, and connects to a running one for `sc://…`. There, Ottla must be installed for the
Python of the server and of its executors, because the sources, the sinks and the functions of the
user run there."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.base.errors import UserError
from ottla.base.installation import install_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOTE = "spark.remote"
PACKAGES = "pyspark.sql.connect."
NOT_FOUND = "DATA_SOURCE_NOT_FOUND"


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith(PACKAGES)


def server_address(settings: Mapping[str, str]) -> str | None:
    """Return the server that the settings or SPARK_REMOTE name, or None."""
    return settings.get(REMOTE) or os.environ.get("SPARK_REMOTE") or None


def active_session() -> SparkSession | None:
    """Return this program's session of Spark Connect, or None."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    return found if found is not None and is_connect(found) else None


def starts_server(server: str | None) -> bool:
    """Return whether Spark would start a server at this address, in this process's JVM."""
    if server is None or server.startswith("sc://"):
        return False
    return active_session() is None


def connect(
    server: str, app_name: str, defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> SparkSession:
    """Return a session on a server, creating it if needed.

    Args:
        server: `sc://…`, or `local[…]` for a server in this process's JVM.
        app_name: Name of the Spark application, if the server is started.
        defaults: Settings of Ottla. A running server keeps its own where it has some.
        overrides: Settings of the user.

    Raises:
        UserError: A package is missing, the server does not respond, or it refuses a setting.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(server)
    is_running = server.startswith("sc://")
    if not is_running:
        builder = builder.appName(app_name)
        for name, value in {**defaults, **overrides, REMOTE: server}.items():
            builder = builder.config(name, value)
    try:
        with warnings.catch_warnings():
            # The server has started with these settings; PySpark then tries to change them as well.
            warnings.filterwarnings("ignore", "Failed to set ", UserWarning)
            spark: SparkSession = builder.getOrCreate()
        if is_running:
            configure(spark, defaults, overrides)
    except ImportError as error:
        raise UserError(
            f"Spark Connect needs more packages: {str(error).splitlines()[0]} "
            f"Install them with: {install_extra('spark-connect')}"
        ) from None
    except PySparkException as error:
        raise UserError(
            f"Spark Connect server {server} cannot be used: {str(error).splitlines()[0]}"
        ) from None
    return spark


def configure(
    spark: SparkSession, defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> None:
    """Set what a running server allows, and refuse settings of the user that it does not."""
    from pyspark.errors import PySparkException

    present = spark.conf.getAll
    for name, value in defaults.items():
        if name not in present and spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    for name, value in overrides.items():
        if name == REMOTE or present.get(name) == value:
            continue
        try:
            spark.conf.set(name, value)
        except PySparkException:
            raise UserError(
                f"The Spark Connect server is running, so {name} cannot be changed now. "
                f"Start the server with: --conf {name}={value}"
            ) from None


def register_on_server(spark: SparkSession, source: type) -> None:
    """Register a data source on the server, unless it has found the format by itself.

    Raises:
        UserError: Ottla is not installed for the server's Python.
    """
    from pyspark.errors import PySparkException

    reader = spark.read.format(source.name())  # type: ignore[attr-defined]
    try:
        try:
            _ = reader.load().schema
        except PySparkException as error:
            if error.getCondition() != NOT_FOUND:
                raise
            spark.dataSource.register(source)
            _ = reader.load().schema
    except PySparkException as error:
        raise UserError(
            "The Spark Connect server cannot load Ottla. Install it, in the same version as here, "
            f"for the server's Python: {_cause(str(error))}"
        ) from None


def _cause(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "Error: " in line]
    return lines[-1] if lines else text.splitlines()[0]
