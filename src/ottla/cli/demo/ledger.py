"""What was written into the pipeline, what came out, and whether the two agree.

Every line has a number of its own, so one that is lost or there twice is seen in the topic; words
are counted here as the application counts them, so one that is lost or counted twice is seen in
the outcome. Pure: no files, no brokers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

SENTENCES = (
    "a topic is a log that many may write and many may read",
    "each partition keeps its records in the order of their coming",
    "an offset is the place of a record in its partition and never changes",
    "a group shares the partitions of a topic among its members",
    "the leader of a partition takes the writes and its followers copy them",
    "what was acknowledged is there even when the leader is gone",
    "a stream is every change and a table is what the changes add up to",
    "connectors bring records in and take them out with no code",
)


def numbered_lines() -> Iterator[str]:
    """Without an end; all different."""
    number = 0
    while True:
        yield f"line-{number} {SENTENCES[number % len(SENTENCES)]}"
        number += 1


def words_of(line: str) -> list[str]:
    return [word for word in line.lower().split(" ") if word]


@dataclass(frozen=True)
class Check:
    what: str
    wanted: int
    found: int
    is_right: bool

    @staticmethod
    def equal(what: str, wanted: int, found: int) -> Check:
        return Check(what, wanted, found, wanted == found)


@dataclass
class Written:
    """Into the file that the source connector reads."""

    lines: list[str] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.words.update(words_of(line))


@dataclass
class Counted:
    """Changes of counts, by word or by word and window; those of one key may only grow, and be told
    once each."""

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
    def of(cls, lines: Iterable[str]) -> Counted:
        counted = cls()
        for line in lines:
            counted.add(line)
        return counted


@dataclass
class Read:
    """By consumers, from the topics."""

    lines: list[str] = field(default_factory=list)
    counts: Counted = field(default_factory=Counted)
    windows: Counted = field(default_factory=Counted)


def checks(
    written: Written, read: Read, counts_file: Counted, windows_file: Counted
) -> list[Check]:
    """All that must hold once the pipeline is empty."""
    words = written.words.total()
    seen = Counter(read.lines)
    there = sum((seen & Counter(written.lines)).values())
    found = [
        Check.equal("lines of lines.txt that are in topic lines", len(written.lines), there),
        Check.equal("… and records there beyond those", 0, len(read.lines) - there),
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
    found.append(Check.equal("changes told twice, in topics or files", 0, repeated))
    return found


def has_arrived(written: Written, read: Read, counts_file: Counted, windows_file: Counted) -> bool:
    """Everything that was written has come out at the far end."""
    return (
        len(read.lines) >= len(written.lines)
        and read.counts.words() == written.words
        and read.windows.words() == written.words
        and counts_file.words() == written.words
        and windows_file.words() == written.words
    )
