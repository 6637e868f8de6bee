"""The JVM part of `format("ottla")`: compiled by Spark's own compiler, kept, and added to sessions.

Spark contains Janino, a Java compiler, for its generated code. It compiles the sources beside this
module in a second or two. The JAR is kept in the user's cache directory, under a name with a hash
of the sources and of the Spark version, and other sessions take it from there. Files of other
users, or that others could have written, are not used.

A cluster that does not allow programs to add JARs gets it when a program is submitted:
`python -m ottla.spark.realtime PATH` writes it, and `spark-submit --jars` or `spark.jars` names
it."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

CLASS = "ottla.DefaultSource"
WRITE_JAR = "python -m ottla.spark.realtime PATH"
LOCAL_CHECKPOINT_FILES = "ottla.LocalCheckpointFiles"
_SOURCES = tuple(sorted(Path(__file__).parent.glob("*.java")))
_PLACEHOLDER = "@FINGERPRINT@"
_MUTABLE_LOADER = "MutableURLClassLoader"
_PRIVATE = 0o700
_EPOCH = (1980, 1, 1, 0, 0, 0)


def add_to(spark: SparkSession) -> None:
    """Add the JVM part to a session, unless it has it already.

    Raises:
        UserError: The session has the JVM part of another version of Ottla.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    wanted, found = fingerprint(spark.version), _fingerprint_in(jvm, loader)
    if found == wanted:
        return
    if found is not None:
        raise UserError(
            "The Spark session has a JAR of another version of Ottla or Spark. Write a new one "
            f"with: {WRITE_JAR}"
        )
    try:
        jar = _cached_jar(spark)
    except Py4JJavaError as error:
        # Internal classes of Spark that another version has changed; all else works without them.
        logger.warning(
            "Streams have neither outputMode('update') nor trigger(realTime=…) with Spark %s: %s",
            spark.version,
            error.java_exception.getMessage(),
        )
        return
    spark.sparkContext._jsc.addJar(str(jar))
    _add_to_driver(jvm, loader, jar)


def is_in(spark: SparkSession) -> bool:
    """Return whether a session has the JVM part."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return _fingerprint_in(jvm, loader) is not None


def write_jar(spark: SparkSession, path: Path) -> None:
    """Compile the JVM part into a JAR file."""
    classes = _compiled(spark)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as jar:
            for each in sorted(classes):
                jar.writestr(zipfile.ZipInfo(each, _EPOCH), classes[each])
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def fingerprint(spark_version: str) -> str:
    """Return the name of the JVM part of this version of Ottla for a version of Spark."""
    text = "\n".join([spark_version, *(source.read_text() for source in _SOURCES)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ottla", "spark")


# ---------------------------------------------------------------------------------------- the file


def _cached_jar(spark: SparkSession) -> Path:
    name = f"ottla-spark-{fingerprint(spark.version)}.jar"
    try:
        folder = cache_directory()
        folder.mkdir(_PRIVATE, parents=True, exist_ok=True)
        kept = folder / name
        if _is_ours(folder):
            if not (_is_ours(kept) and _is_whole(kept)):
                write_jar(spark, kept)
            return kept
    except OSError as error:
        logger.debug("cannot keep the compiled JVM part: %s", error)
    home = tempfile.mkdtemp(prefix="ottla-spark-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    write_jar(spark, Path(home, name))
    return Path(home, name)


def _is_ours(path: Path) -> bool:
    """Return whether the path exists and only this user can have written it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    is_writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid == os.getuid() and not is_writable and not stat.S_ISLNK(found.st_mode)


def _is_whole(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as file:
            return file.testzip() is None and bool(file.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


# --------------------------------------------------------------------------------------- the JVM


def _compiled(spark: SparkSession) -> dict[str, bytes]:
    """Return the contents of the class files by their names in the JAR."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found: dict[str, bytes] = {}
    for source in _SOURCES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(source.read_text().replace(_PLACEHOLDER, fingerprint(spark.version)))
        codes = compiler.getBytecodes()
        for name in codes.keySet():
            found[f"{name.replace('.', '/')}.class"] = bytes(codes.get(name))
    return found


def _fingerprint_in(jvm: Any, loader: Any) -> str | None:
    from py4j.protocol import Py4JJavaError

    try:
        found = jvm.java.lang.Class.forName(CLASS, True, loader)
    except Py4JJavaError:
        return None
    return str(found.getField("FINGERPRINT").get(None))


def _add_to_driver(jvm: Any, loader: Any, jar: Path) -> None:
    """Make the driver find the classes, in all threads.

    `ADD JAR` would set the class loader of the current thread only, and each Python thread has one
    of its own in the JVM. The class loader that `spark-submit` creates is their common parent."""
    found = None
    while loader is not None:
        if str(loader.getClass().getSimpleName()) == _MUTABLE_LOADER:
            found = loader
        loader = loader.getParent()
    if found is None:
        raise UserError(
            "Ottla cannot add its JAR to this Spark session. Start it with spark.jars=PATH, "
            f"and write the file with: {WRITE_JAR}"
        )
    found.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
