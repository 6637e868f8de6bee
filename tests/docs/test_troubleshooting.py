"""Checks that the messages on the troubleshooting page are messages of the code.

A message on the page has example values. It must match a string of the sources, whose variable
parts (`{…}` of f-strings, `%s` of logging) may be anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from tests.docs.blocks import ROOT, Block, blocks

PAGE = "docs/operations/troubleshooting.md"
SOURCES = ROOT / "src" / "ottla"
LEAST_FIXED = 8
"""Minimum number of fixed characters in a pattern; shorter ones would match almost anything."""
LONG = 20
"""Number of fixed characters that identify a message, however long its values are."""
VALUE = ".*?"
_PLACE = re.compile(r"^[a-z]+-\d+: ")
_CONVERSION = re.compile(r"%[-0-9.]*[sdrgf]")
MESSAGES = [block for block in blocks(PAGE) if block.language == "text"]


def templates(tree: ast.AST) -> Iterator[list[str]]:
    """Yield the fixed parts of each string; between two of them is a value."""
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in joined for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [""]
            for value in node.values:
                if isinstance(value, ast.Constant):
                    parts[-1] += str(value.value)
                else:
                    parts.append("")
            yield parts
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside
        ):
            yield _CONVERSION.split(node.value)


@cache
def patterns() -> list[tuple[re.Pattern[str], int]]:
    """Return a pattern for the first line of each string, with the length of its fixed parts."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for parts in templates(ast.parse(path.read_text())):
            pattern = VALUE.join(map(re.escape, parts)).partition("\\\n")[0]
            fixed = sum(map(len, parts))
            if fixed >= LEAST_FIXED:
                found.append((re.compile(pattern), fixed))
    return found


def explained(message: str) -> bool:
    """Return whether a string of the sources reads like the message.

    `topic-0: ` may precede it, and error codes are named in lower case with spaces: see
    `client.errors.error_for`."""
    return _is_in_sources(message) or _is_in_sources(_PLACE.sub("", message))


def _is_in_sources(text: str) -> bool:
    if text.upper().replace(" ", "_") in _codes():
        return True
    longest = max((fixed for pattern, fixed in patterns() if pattern.fullmatch(text)), default=0)
    return longest >= min(LONG, len(text) * 0.3)


def _codes() -> set[str]:
    from ottla.base.errors import ErrorCode

    return {code.name for code in ErrorCode}


@pytest.mark.parametrize("block", MESSAGES, ids=str)
def test_the_message_is_in_the_sources(block: Block) -> None:
    assert explained(block.text.strip()), f"{block}: no message of the sources reads like this"


def test_the_page_has_many_messages_and_a_wrong_one_is_found() -> None:
    assert len(MESSAGES) >= 20
    assert not explained("The data directory /data has been eaten by another broker.")
