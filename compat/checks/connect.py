"""Java's Connect and ours on one broker: each reads what the other wrote."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from compat.checks.tools import Tools
from compat.java import QUIET

ROOT = Path(__file__).parents[2]
OURS = "from ottla.cli.connect_standalone import main; main()"
JAVAS = "org.apache.kafka.connect.cli.ConnectStandalone"
PATIENCE_S = 120.0
LINES = 'plain\n{"json": "in a line"}\nÄtna \\ "quoted"\n\n12\n'


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _worker(tools: Tools, folder: Path, converter: str, *, schemas: bool) -> dict[str, str]:
    return {
        "bootstrap.servers": tools.bootstrap,
        "key.converter": f"org.apache.kafka.connect.{converter}",
        "value.converter": f"org.apache.kafka.connect.{converter}",
        "key.converter.schemas.enable": str(schemas).lower(),
        "value.converter.schemas.enable": str(schemas).lower(),
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://127.0.0.1:{_free_port()}",
    }


def _file(kind: str, path: Path, topic: str) -> dict[str, str]:
    topics = "topic" if kind == "Source" else "topics"
    return {"name": f"file-{kind.lower()}", "connector.class": f"FileStream{kind}",
            "file": str(path), topics: topic}  # fmt: skip


@contextmanager
def _running(
    command: list[str], folder: Path, *files: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    paths = []
    for number, properties in enumerate(files):
        path = folder / f"{number}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        paths.append(str(path))
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, *paths],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait_for(path: Path, wanted: str, *workers: tuple[str, subprocess.Popen[bytes], Path]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not path.exists() or path.read_text() != wanted:
        for name, process, folder in workers:
            output = (folder / "log").read_text(errors="replace")[-3000:]
            assert process.poll() is None, f"{name} exited: {output}"
            found = path.read_text() if path.exists() else None
            assert time.monotonic() < until, (
                f"{path.name} has {found!r}; output of {name}: {output}"
            )
        time.sleep(0.1)


def _exchange(tools: Tools, converter: str, *, schemas: bool) -> None:
    ours_reads, java_reads = tools.new_topic(), tools.new_topic()
    base = tools.scratch / f"connect-{ours_reads}"
    ours, javas = base / "ours", base / "javas"
    for each in (ours, javas):
        each.mkdir(parents=True)
        (each / "in.txt").write_text(LINES)
    our_command = [sys.executable, "-c", OURS]
    java_command = tools.java.arguments(JAVAS, *QUIET)
    with _running(
        java_command, javas, _worker(tools, javas, converter, schemas=schemas),
        _file("Source", javas / "in.txt", ours_reads), _file("Sink", javas / "out.txt", java_reads),
    ) as java, _running(
        our_command, ours, _worker(tools, ours, converter, schemas=schemas),
        _file("Source", ours / "in.txt", java_reads), _file("Sink", ours / "out.txt", ours_reads),
    ) as our:  # fmt: skip
        workers = (("Java's worker", java, javas), ("our worker", our, ours))
        _wait_for(ours / "out.txt", LINES, *workers)
        _wait_for(javas / "out.txt", LINES, *workers)
        with open(javas / "in.txt", "a") as file:
            file.write("one more\n")
        _wait_for(ours / "out.txt", LINES + "one more\n", *workers)


def json_with_schemas(tools: Tools) -> None:
    """File connectors of Java's Connect and ours read each other's topics: JSON with schemas."""
    _exchange(tools, "json.JsonConverter", schemas=True)


def strings(tools: Tools) -> None:
    """File connectors of Java's Connect and ours read each other's topics: strings."""
    _exchange(tools, "storage.StringConverter", schemas=False)


CHECKS = [json_with_schemas, strings]
