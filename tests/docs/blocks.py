"""Code blocks of the README and of docs/, in page order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RUN = ("python", "console", "sh")
"""Languages of blocks that are run.

`properties` blocks are content for the reader's own files; `text` marks steps for a person."""
OF_SPARK = ("ottla.spark", "ottla.streams", "ottla sql")
SPARK_PAGES = ("docs/spark.md", "docs/streams.md")
ELSEWHERE = ("docs/connectors-own.md", "docs/howto/postgres.md")
"""Pages that other tests run.

tests/unit/connect/test_own_connectors.py runs the pytest functions of the first, and
tests/docs/test_postgres_page.py follows the second on a PostgreSQL."""
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    @property
    def needs_spark(self) -> bool:
        return self.page in SPARK_PAGES or any(word in self.text for word in OF_SPARK)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found]


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        yield Block(page, line, found[1], found[2])


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console or sh block with its input, the lines after `>`."""
    is_console = any(line.startswith("$ ") for line in text.splitlines())
    command, typed = "", ""
    for line in text.splitlines():
        begins = line.startswith("$ ") if is_console else bool(line.strip())
        if command.endswith("\\"):
            command = f"{command[:-1]} {line.strip()}"
        elif begins:
            if command:
                yield command, typed
            command, typed = line.removeprefix("$ ").strip(), ""
        elif is_console and line.startswith(">"):
            typed += f"{line[1:]}\n"
    if command:
        yield command, typed
