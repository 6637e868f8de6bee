"""Description of the machine that the figures were measured on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CONGESTION_CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"
PACKAGES = ("confluent-kafka", "kafka-python", "aiokafka", "pyspark", "pyarrow", "numba", "uvloop")


def facts() -> dict[str, str]:
    memory_kb = int(_line_of("/proc/meminfo", "MemTotal:").split()[1])
    found = {
        "processor": _line_of("/proc/cpuinfo", "model name").partition(": ")[2] or "unknown",
        "cores": str(os.cpu_count()),
        "memory": f"{memory_kb / 1e6:.0f} GB",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}",
        "disk": _file_system(tempfile.gettempdir()),
        "congestion control": _contents(CONGESTION_CONTROL) or "unknown",
        "Python": platform.python_version(),
        "Java": _java(),
        "Ottla": _commit(),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


def _contents(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _line_of(path: str, beginning: str) -> str:
    lines = _contents(path).splitlines()
    return next((line for line in lines if line.startswith(beginning)), "")


def _file_system(directory: str) -> str:
    file_system = _output("findmnt", "--noheadings", "--output", "FSTYPE", "--target", directory)
    return file_system or _output("stat", "--file-system", "--format=%T", directory) or "unknown"


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return result.stderr.partition("\n")[0].replace('"', "")


def _commit() -> str:
    import ottla

    commit = _output("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
    return f"{ottla.__version__} ({commit})" if commit else ottla.__version__


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
