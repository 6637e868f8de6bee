"""Comparison of our kafka-dump-log with Apache Kafka's: the same output, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from compat.checks.files import WrittenFiles
from compat.checks.kafka_directory import AdoptedDirectory
from compat.dump_log import FILES_AT_ONCE, INDEXES, TIMEOUT_S, files_in
from compat.java import Java

SOURCE = Path(__file__).parents[2] / "src"
_PROGRAM = "from ottla.cli.kafka_dump_log import main; main()"


def prints_of_our_files_what_kafkas_prints(files: WrittenFiles) -> None:
    """Our kafka-dump-log prints the same as Kafka's own for the files of our broker."""
    _compare(files.java, files.stopped)


def prints_of_kafkas_files_what_kafkas_prints(taken: AdoptedDirectory) -> None:
    """Our kafka-dump-log prints the same as Kafka's own for Apache Kafka's files."""
    # Kafka's tool fails with an exception at the indexes that a killed broker leaves.
    _compare(taken.java, taken.original, indexes=taken.how_left == "clean")
    metadata = taken.original / "__cluster_metadata-0"
    logs = sorted([*metadata.glob("*.log"), *metadata.glob("*.checkpoint")])
    assert logs
    _assert_equal(taken.java, logs, "--cluster-metadata-decoder")


def _compare(java: Java, directory: Path, *, indexes: bool = True) -> None:
    logs = files_in(directory, [".log"])
    _assert_equal(java, logs, "--deep-iteration")
    _assert_equal(java, files_in(directory, [".txnindex", ".snapshot"]))
    if indexes:
        _assert_equal(java, files_in(directory, INDEXES))
        _assert_equal(java, files_in(directory, INDEXES), "--index-sanity-check")
    for topic, decoder in (
        ("__consumer_offsets-", "--offsets-decoder"),
        ("__transaction_state-", "--transaction-log-decoder"),
    ):
        of_topic = [path for path in logs if path.parent.name.startswith(topic)]
        if of_topic:
            _assert_equal(java, of_topic, decoder)


def _assert_equal(java: Java, files: list[Path], *options: str) -> None:
    for start in range(0, len(files), FILES_AT_ONCE):
        names = ",".join(map(str, files[start : start + FILES_AT_ONCE]))
        theirs = java.succeed("kafka-dump-log", "--files", names, *options, timeout_s=TIMEOUT_S)
        ours = _ours("--files", names, *options)
        different = [
            f"Kafka: {theirs_line}\nours:  {ours_line}"
            for theirs_line, ours_line in zip(theirs.lines, ours.splitlines(), strict=False)
            if theirs_line != ours_line
        ]
        assert not different, f"{len(different)} lines differ, the first:\n{different[0]}"
        assert len(theirs.lines) == len(ours.splitlines())
        assert theirs.out.startswith("Dumping ")


def _ours(*arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert not result.returncode, result.stderr.decode()
    return result.stdout.decode()


OF_OUR_FILES = [prints_of_our_files_what_kafkas_prints]
OF_KAFKAS_FILES = [prints_of_kafkas_files_what_kafkas_prints]
