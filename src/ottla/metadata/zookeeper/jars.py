"""The jars of a ZooKeeper member: those of an installed ZooKeeper, or PySpark's.

Directories are searched in this order, each in its own layout:

    $ZOOKEEPER_HOME/lib      a ZooKeeper distribution: zookeeper-3.9.3.jar and so on
    $KAFKA_HOME/libs         Apache Kafka before 4.0, which contains ZooKeeper
    /usr/share/java          Debian's package `zookeeper`: zookeeper.jar and so on
    pyspark/jars             PySpark

Only the jars that a member needs are returned: with all of PySpark's jars, a member uses 40 MB more
memory.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ottla.base.errors import UserError
from ottla.base.installation import install_extra

SERVER = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java",
          "netty-handler", "netty-transport", "netty-buffer", "netty-common", "netty-codec",
          "netty-codec-base", "netty-resolver", "netty-transport-classes-epoll",
          "netty-transport-native-epoll", "netty-transport-native-unix-common",
          "commons-io")  # fmt: skip
LOGGING = (
    ("log4j-slf4j2-impl", "log4j-core", "log4j-api"),
    ("logback-classic", "logback-core"),
    ("slf4j-reload4j", "reload4j"),
    ("slf4j-log4j12", "log4j"),
)
"""Implementations of SLF4J; the first complete one is used."""
OLDEST = (3, 6)
"""First version with persistent recursive watches, which brokers need."""
DEBIAN_FOLDER = Path("/usr/share/java")


def find_jars() -> list[Path]:
    """Return the class path of a ZooKeeper member.

    Raises:
        UserError: None of the directories above contains ZooKeeper.
    """
    for folder in _folders():
        if _is_new_enough(folder):
            return _jars_in(folder)
    raise UserError(
        "ZooKeeper was not found. Set ZOOKEEPER_HOME to a ZooKeeper 3.6 or newer, install Debian's "
        "package zookeeper, or install PySpark, which contains ZooKeeper, with: "
        f"{install_extra('spark')}"
    )


def _folders() -> Iterator[Path]:
    for variable, name in (("ZOOKEEPER_HOME", "lib"), ("KAFKA_HOME", "libs")):
        home = os.environ.get(variable)
        if home:
            yield Path(home).absolute() / name
    yield DEBIAN_FOLDER
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is not None and pyspark.origin is not None:
        yield Path(pyspark.origin).parent / "jars"


def _is_new_enough(folder: Path) -> bool:
    if not (folder / "zookeeper-jute.jar").exists() and not [*folder.glob("zookeeper-jute-*.jar")]:
        return False  # no ZooKeeper, or a version before 3.5
    versions = [re.match(r"zookeeper-(\d+)\.(\d+)", jar.name) for jar in folder.glob("*.jar")]
    known = [(int(found[1]), int(found[2])) for found in versions if found is not None]
    return _jar(folder, "zookeeper") is not None and (not known or max(known) >= OLDEST)


def _jars_in(folder: Path) -> list[Path]:
    found = [jar for name in SERVER if (jar := _jar(folder, name)) is not None]
    for names in LOGGING:
        logging = [jar for name in names if (jar := _jar(folder, name)) is not None]
        if len(logging) == len(names):
            return found + logging
    return found


def _jar(folder: Path, name: str) -> Path | None:
    """Return the newest jar of that name, with or without a version in its file name."""
    jars = sorted(folder.glob(f"{name}-[0-9]*.jar"), key=_version)
    plain = folder / f"{name}.jar"
    return jars[-1] if jars else plain if plain.exists() else None


def _version(jar: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", jar.name)]
