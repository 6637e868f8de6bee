"""Apache Kafka's jars, downloaded once from Maven Central into a cache beside this file.

The cache of a version is complete if its stamp has the hash of the pom.xml that it was made from.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
CACHE = HERE / ".cache"
DOWNLOAD_TIMEOUT_S = 600
OLDEST_JAVA = 17


class NotAvailable(Exception):
    """Java, Maven or Maven Central is unavailable; the message says which."""


def java_command() -> str:
    """Return the path of Java.

    Raises:
        NotAvailable: Java is missing or too old.
    """
    java = shutil.which("java")
    if java is None:
        raise NotAvailable("`java` is not installed")
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', result.stderr)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise NotAvailable(
            f"Apache Kafka 4 requires Java {OLDEST_JAVA}, but found {result.stderr!r}"
        )
    return java


def directory(version: str | None = None) -> Path:
    """Return the directory with the jars of a version of Kafka, and download them if needed.

    Args:
        version: Version of Kafka; None takes the one in pom.xml.

    Raises:
        NotAvailable: The jars cannot be downloaded.
    """
    version = version or version_in_pom()
    found = CACHE / f"kafka-{version}"
    stamp = found / ".complete"
    wanted = hashlib.sha256(POM.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        _download(version, found)
        stamp.write_text(wanted)
    return found


def version_in_pom() -> str:
    found = re.search(r"<kafka.version>(.*)</kafka.version>", POM.read_text())
    assert found is not None, "pom.xml names a version of Kafka"
    return found[1]


def _download(version: str, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NotAvailable("`mvn` is not installed, so Apache Kafka cannot be downloaded")
    shutil.rmtree(target, ignore_errors=True)
    print(f"downloading Apache Kafka {version} from Maven Central …", flush=True)
    try:
        result = subprocess.run(
            [
                *(maven, "--quiet", "--batch-mode", "--file", str(POM)),
                f"-Dkafka.version={version}",
                f"-DoutputDirectory={target}",
                "dependency:copy-dependencies",
            ],
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"Maven Central sent no jars within {DOWNLOAD_TIMEOUT_S} s") from None
    if result.returncode:
        reason = next((line for line in result.stdout.splitlines() if "ERROR" in line), "")
        raise NotAvailable(f"Maven could not download Apache Kafka {version}: {reason[:300]}")
