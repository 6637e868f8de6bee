"""kafka-dump-log on a data directory, and its problems.

The exit code of the tool is always 0; its problems are lines among the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from compat.java import Java

EVERYTHING = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
INDEXES = (".index", ".timeindex")
FILES_AT_ONCE = 200
TIMEOUT_S = 120.0

_PROBLEMS = re.compile(
    r"^(Mismatches in .*|Found out of order timestamp.*"
    r"|The following indexed offsets are not found.*"
    r"|Found \d+ invalid bytes at the end of .*|baseOffset: .*isvalid: false.*"
    r"|.*Exception.*|.*[Cc]orrupt.*|Ignoring unknown file.*)$",
    re.MULTILINE,
)
_GAPS = re.compile(r"^Non-consecutive offsets in (.*)\n((?:  -?\d+ is followed by \d+\n)+)", re.M)
_TIMES = re.compile(
    r"^Found timestamp mismatch in :(.*)\n((?:  Index timestamp: \d+, log timestamp: -?\d+\n)+)",
    re.M,
)
_EMPTY_BATCH = "log timestamp: -1"
"""Compaction keeps empty batches for the state of idempotent producers. Kafka's own time indexes
refer to them, too, and the tool, which looks at records, reports a mismatch."""
_FALSE_GAP = "  -1 is followed by "
"""Reported for each segment that does not begin at offset 0, also for Kafka's own files."""
_BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* producerId: (-?\d+)")
_DUMPING = re.compile(r"^Dumping (.*)$")


class Batch(NamedTuple):
    path: Path
    base_offset: int
    last_offset: int
    record_count: int
    producer_id: int


class Dump(NamedTuple):
    text: str

    def problems(self, *, compacted: Iterable[str] = ()) -> list[str]:
        """Return the problems that DumpLogSegments reports.

        In the logs of `compacted` topics, gaps and empty batches are expected.
        """
        expected = tuple(f"/{topic}-" for topic in compacted)
        gaps = [
            f"after a gap in {path}: {line.strip()}"
            for path, line in _listed(_GAPS, self.text)
            if not any(each in path for each in expected) and not line.startswith(_FALSE_GAP)
        ]
        times = [
            f"Found timestamp mismatch in {path}: {line.strip()}"
            for path, line in _listed(_TIMES, self.text)
            if not (any(each in path for each in expected) and line.endswith(_EMPTY_BATCH))
        ]
        return _PROBLEMS.findall(self.text) + gaps + times

    def batches(self) -> Iterator[Batch]:
        path = Path()
        for line in self.text.splitlines():
            if dumping := _DUMPING.match(line):
                path = Path(dumping[1])
            elif batch := _BATCH.match(line):
                yield Batch(path, *(int(number) for number in batch.groups()))

    def record_count(self) -> int:
        """Return the number of records that the tool iterated over."""
        return sum(line.startswith("| offset: ") for line in self.text.splitlines())


def _listed(heading: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    """Yield (file, line) for problems that are followed by lines of details."""
    for path, lines in heading.findall(text):
        for line in lines.splitlines():
            yield path, line


def files_in(data_dir: Path, suffixes: Iterable[str]) -> list[Path]:
    """Return the files of active logs, without deleted logs and Kafka's metadata."""
    wanted = tuple(suffixes)
    return [
        path
        for directory in sorted(data_dir.iterdir())
        if re.fullmatch(r".+-\d+", directory.name) and directory.name != "__cluster_metadata-0"
        for path in sorted(directory.iterdir())
        if path.suffix in wanted
    ]


def dump(java: Java, files: list[Path], *options: str) -> Dump:
    texts = []
    for start in range(0, len(files), FILES_AT_ONCE):
        names = ",".join(map(str, files[start : start + FILES_AT_ONCE]))
        output = java.succeed("kafka-dump-log", "--files", names, *options, timeout_s=TIMEOUT_S)
        texts.append(output.all)
    return Dump("\n".join(texts))
