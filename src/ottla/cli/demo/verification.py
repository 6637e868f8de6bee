"""Comparison of the pipeline's input and output.

Every line has a unique number, so a lost or duplicated line shows in the topic. Words are counted
here in the same way as in the application, so a word that is lost or counted twice shows in the
result. The code is pure: it uses neither files nor brokers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

SENTENCES = (
    "a topic is a log that many producers write and many consumers read",
    "each partition keeps its records in the order in which they arrived",
    "an offset is the position of a record in its partition and never changes",
    "a consumer group shares the partitions of a topic among its members",
    "the leader of a partition takes the writes and its followers copy them",
    "an acknowledged record survives the loss of the leader",
    "a stream is every change and a table is the sum of the changes",
    "connectors move records in and out of topics without code",
)


def numbered_lines() -> Iterator[str]:
    """Yield an infinite sequence of distinct lines."""
    number = 0
    while True:
        yield f"line-{number} {SENTENCES[number % len(SENTENCES)]}"
        number += 1


def words_of(line: str) -> list[str]:
    return [word for word in line.lower().split(" ") if word]


@dataclass(frozen=True)
class Check:
    """A comparison of an expected and an actual count."""

    what: str
    wanted: int
    found: int
    is_right: bool

    @staticmethod
    def equal(what: str, wanted: int, found: int) -> Check:
        return Check(what, wanted, found, wanted == found)


@dataclass
class WrittenLines:
    """Lines and words written to the file that the source connector reads."""

    lines: list[str] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.words.update(words_of(line))


@dataclass
class WordCounts:
    """Counts by word, or by word and window, from a changelog.

    Within one key the counts must increase; a count that does not is a duplicate."""

    latest: dict[tuple[str, str], int] = field(default_factory=dict)
    changes: int = 0
    repeated: int = 0

    def add(self, text: str | bytes) -> None:
        change = json.loads(text)
        key, seen = (change["word"], change.get("from", "")), change["seen"]
        self.changes += 1
        self.repeated += seen <= self.latest.get(key, 0)
        self.latest[key] = seen

    def words(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for (word, _), seen in self.latest.items():
            total[word] += seen
        return total

    @property
    def windows(self) -> int:
        return len({window for _, window in self.latest})

    @classmethod
    def of(cls, lines: Iterable[str]) -> WordCounts:
        counted = cls()
        for line in lines:
            counted.add(line)
        return counted


@dataclass
class ReadRecords:
    """Records that the demo's consumer has read from the topics."""

    lines: list[str] = field(default_factory=list)
    counts: WordCounts = field(default_factory=WordCounts)
    windows: WordCounts = field(default_factory=WordCounts)


def checks(
    written: WrittenLines, read: ReadRecords, counts_file: WordCounts, windows_file: WordCounts
) -> list[Check]:
    """Return the checks that must pass once the pipeline has processed all lines."""
    words = written.words.total()
    seen = Counter(read.lines)
    there = sum((seen & Counter(written.lines)).values())
    found = [
        Check.equal("lines of lines.txt in topic lines", len(written.lines), there),
        Check.equal("other records in topic lines", 0, len(read.lines) - there),
    ]
    for what, counted in (
        ("counted in topic word-counts", read.counts),
        ("counted in topic word-windows", read.windows),
        ("counted in counts.txt", counts_file),
        ("counted in windows.txt", windows_file),
    ):
        outcome = counted.words()
        is_right = outcome == written.words
        found.append(Check(f"words {what}", words, outcome.total(), is_right))
    repeated = sum(each.repeated for each in (read.counts, read.windows, counts_file, windows_file))
    found.append(Check.equal("duplicate changes in topics and files", 0, repeated))
    return found


def has_arrived(
    written: WrittenLines, read: ReadRecords, counts_file: WordCounts, windows_file: WordCounts
) -> bool:
    """Return whether all written lines have reached the topics and the result files."""
    return (
        len(read.lines) >= len(written.lines)
        and read.counts.words() == written.words
        and read.windows.words() == written.words
        and counts_file.words() == written.words
        and windows_file.words() == written.words
    )
