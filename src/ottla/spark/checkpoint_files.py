"""Checkpoint files on a local disk, created without a child process (`LocalCheckpointFiles.java`).

The class is in a jar of the package, which Spark loads when its JVM starts. Build the jar after a
change of the source, with: python -m ottla.spark.checkpoint_files (which needs Java)"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).with_name("java")
SOURCE = HERE / "LocalCheckpointFiles.java"
JAR = HERE / "local-checkpoint-files.jar"
CLASS = "ottla.LocalCheckpointFiles"
ENTRY = "ottla/LocalCheckpointFiles.class"
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)

_is_loaded = False


def settings() -> Mapping[str, str]:
    """Return the settings that load the class; none if a JVM without it runs already."""
    global _is_loaded
    from pyspark import SparkContext

    is_running = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    if (is_running and not _is_loaded) or not JAR.exists():
        return {}
    _is_loaded = True
    return {
        "spark.jars": str(JAR),
        "spark.sql.streaming.checkpointFileManagerClass": CLASS,
    }


def compiled() -> bytes:
    """Return the class file of the source, compiled in the JVM of a running Spark session."""
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    assert jvm is not None, "Spark is running"
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(SOURCE.read_text())
    return bytes(compiler.getBytecodes().get(CLASS))


def build() -> None:
    """Compile the source and write the jar."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").getOrCreate()
    try:
        with zipfile.ZipFile(JAR, "w") as jar:
            jar.writestr(zipfile.ZipInfo(ENTRY, _FIXED_TIME), compiled())
    finally:
        spark.stop()


if __name__ == "__main__":
    build()
