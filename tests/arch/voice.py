"""Finder of phrases that the project does not use in docstrings, comments and pages.

`python -m tests.arch.voice` lists them. `python -m tests.arch.voice --sample 100 --seed 7` prints a
random sample of docstrings and comments for a person to read."""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CODE = ("src", "bench", "compat", "docs", "examples", "tests")
FORBIDDEN_OPENINGS = re.compile(r"(Of|By|With|Whose|Where|What)\b")
"""First words of a docstring that leave the reader looking for its subject."""
RIDDLES = re.compile(
    r"\b(told|whoever|that is so|as it came|what is none|nobody looks|its word"
    r"|goes on behind it)\b",
    re.IGNORECASE,
)

DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma:|!|-+)")
"""Comments for tools, and separators between the sections of a module."""


class Sentence(NamedTuple):
    place: str
    """File and line."""
    text: str
    is_docstring: bool


class Finding(NamedTuple):
    place: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}: {self.text}"


def python_files() -> list[Path]:
    return [file for folder in CODE for file in sorted((ROOT / folder).rglob("*.py"))]


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("deploy/*.md")])


def sentences_in(source: str, name: str) -> Iterator[Sentence]:
    """Yield the docstrings, attribute docstrings and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield Sentence(f"{name}:{node.lineno}", value.value.strip(), True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            yield Sentence(f"{name}:{token.start[0]}", token.string.lstrip("# "), False)


def findings_in(sentences: Iterator[Sentence]) -> Iterator[Finding]:
    for place, text, is_docstring in sentences:
        first_line = text.partition("\n")[0]
        if is_docstring and FORBIDDEN_OPENINGS.match(text):
            yield Finding(place, "docstring begins with a preposition or a question", first_line)
        riddle = RIDDLES.search(text)
        if riddle is not None:
            yield Finding(place, f"says {riddle[0]!r}", first_line)


def sentences() -> Iterator[Sentence]:
    for file in python_files():
        yield from sentences_in(file.read_text(), str(file.relative_to(ROOT)))


def findings_in_page(text: str, name: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        riddle = RIDDLES.search(line)
        if riddle is not None:
            yield Finding(f"{name}:{number}", f"says {riddle[0]!r}", line.strip())


def findings() -> Iterator[Finding]:
    yield from findings_in(sentences())
    for page in pages():
        yield from findings_in_page(page.read_text(), str(page.relative_to(ROOT)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, metavar="COUNT", help="Number of sentences to print.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the sample.")
    options = parser.parse_args()
    if options.sample is None:
        for finding in findings():
            print(finding)
        return
    for place, text, _ in random.Random(options.seed).sample([*sentences()], options.sample):
        print(f"{place}\n{text}\n")


if __name__ == "__main__":
    main()
