"""Conversion of Google-style docstrings to Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Examples?|Note):$")
_ITEM = re.compile(r"^(\*{0,2}[\w.]+)(?: \([^)]*\))?: (.*)$")
_LIST_BEGINS = re.compile(r"^(?![-\s])(.+)\n(?=- )", re.MULTILINE)
TITLES = {"Args": "Parameters", "Example": "Example", "Examples": "Examples"}


def markdown(words: str) -> list[str]:
    """Return the lines of a docstring as Markdown, its sections as lists and code.

    Args:
        words: The docstring, with or without its indentation.
    """
    lines: list[str] = []
    for title, body in _sections(inspect.cleandoc(words)):
        text = inspect.cleandoc(body)
        if title is None:
            lines += [escaped(_LIST_BEGINS.sub(r"\1\n\n", text)), ""]
        elif title.startswith("Example"):
            lines += ["```python", text, "```", ""]
        elif title in ("Args", "Attributes", "Raises"):
            lines += [f"**{TITLES.get(title, title)}**", "", *_items(text), ""]
        else:
            lines += [f"**{title}**: {escaped(' '.join(text.split()))}", ""]
    return lines


def summary(words: str) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return escaped(" ".join(inspect.cleandoc(words).partition("\n\n")[0].split()))


def escaped(text: str) -> str:
    return text.replace("<", "&lt;")


def _sections(words: str) -> Iterator[tuple[str | None, str]]:
    title, body = None, list[str]()
    for line in words.splitlines():
        if found := _SECTION.match(line):
            yield title, "\n".join(body)
            title, body = found[1], []
        elif title is not None and line and not line.startswith(" "):
            yield title, "\n".join(body)
            title, body = None, [line]
        else:
            body.append(line)
    yield title, "\n".join(body)


def _items(text: str) -> Iterator[str]:
    """Yield one line for each item; lines that are indented further belong to the one before."""
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") or not line:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line)
    for each in items:
        found = _ITEM.match(each)
        name, about = (found[1], found[2]) if found else ("", each)
        yield f"- `{name}`: {escaped(about.strip())}" if name else f"- {escaped(about)}"
