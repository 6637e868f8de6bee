"""Finder of phrases that the project does not use: in docstrings, comments, messages and pages.

Messages are the string literals of `src` that have several words: arguments of exceptions, log
lines, help texts and descriptions of properties. Help texts and descriptions must also stand alone.

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

RIDDLES_IN_MESSAGES = re.compile(
    r"\b(goes on|anew|left alone|given back|how far|who we are|of its own accord|by now"
    r"|any more)\b",
    re.IGNORECASE,
)
"""Private vocabulary that only messages must not have; `RIDDLES` applies to them as well."""
FRAGMENTS = re.compile(r"(At|Between|By|For|From|How|In|Of|On|To|What|Where|Whose|With|Without)\b")
"""First words of a help text that does not stand alone."""
STANDS_ALONE = re.compile(r"([A-Z]|[a-z]+(\.[a-z]+)+ ).*[.…]", re.DOTALL)
"""A help text begins with a capital letter or the name of a property, and ends like a sentence."""
DEFAULT = re.compile(r"  \[default: .*\]$", re.DOTALL)
"""Default value that a help text may have at its end."""
MIN_SPACES = 2
"""Minimum number of spaces in a string literal that counts as a message."""

DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma:|!|-+)")
"""Comments for tools, and separators between the sections of a module."""


class Sentence(NamedTuple):
    place: str
    """File and line."""
    text: str
    is_docstring: bool


class Message(NamedTuple):
    place: str
    """File and line."""
    text: str
    """Text, with … for the values of an f-string."""


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


def _text(node: ast.AST) -> str | None:
    """Return the text of a string literal or f-string, or None for other expressions."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) or "…" for each in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def messages_in(source: str, name: str) -> Iterator[Message]:
    """Yield the string literals of several words that are not docstrings."""
    nodes = [*ast.walk(ast.parse(source))]
    others = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            others |= {id(part) for part in ast.walk(node) if part is not node}
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in others:
            text = _text(node) or ""
            if text.count(" ") >= MIN_SPACES:
                yield Message(f"{name}:{node.lineno}", text)


def help_texts_in(source: str, name: str) -> Iterator[Message]:
    """Yield the literals given as `help=`, and the descriptions of properties."""
    for node in ast.walk(ast.parse(source)):
        value = _help_text(node)
        text = None if value is None else _text(value)
        if value is not None and text:
            yield Message(f"{name}:{value.lineno}", text)


def _help_text(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.keyword(arg="help", value=value):
            return value
        case ast.Call(func=ast.Name(id="key" | "ConfigKey"), args=[_, _, _, description, *_]):
            return description
    return None


def findings_in_messages(messages: Iterator[Message]) -> Iterator[Finding]:
    for place, text in messages:
        riddle = RIDDLES.search(text) or RIDDLES_IN_MESSAGES.search(text)
        if riddle is not None:
            yield Finding(place, f"message says {riddle[0]!r}", text)


def findings_in_help(texts: Iterator[Message]) -> Iterator[Finding]:
    for place, text in texts:
        if FRAGMENTS.match(text):
            yield Finding(place, "help text begins with a preposition or a question", text)
        elif not STANDS_ALONE.fullmatch(DEFAULT.sub("", text)):
            yield Finding(place, "help text is not a phrase with a capital and a full stop", text)


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
    for file in python_files():
        source, name = file.read_text(), str(file.relative_to(ROOT))
        yield from findings_in_help(help_texts_in(source, name))
        if name.startswith("src/"):
            yield from findings_in_messages(messages_in(source, name))
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
