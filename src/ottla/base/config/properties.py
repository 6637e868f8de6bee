"""Java .properties files, and `key=value` arguments on a command line.

A file is a sequence of logical lines. A line that ends in an odd number of backslashes continues on
the next one, whose leading whitespace is ignored. Blank lines, and lines that start with `#` or
`!`, are comments. The key ends at the first unescaped `=`, `:` or whitespace; whitespace around the
separator is ignored. `\\t \\n \\r \\f` and `\\uXXXX` have the same meaning as in Java, and a
backslash before any other character stands for that character. If a key occurs twice, the last
value counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ottla.base.errors import UserError

_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SIMPLE = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {"\\": "\\\\"} | {character: f"\\{name}" for name, character in _SIMPLE.items()}


def parse_properties(text: str, source: str = "the configuration") -> dict[str, str]:
    """Parse the text of a .properties file.

    Args:
        text: Contents of the file.
        source: Name of the file, for error messages.

    Raises:
        UserError: A line cannot be parsed. The message has its number.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        try:
            properties[_unescape(raw_key)] = _unescape(raw_value)
        except ValueError as error:
            raise UserError(f"Line {number} of {source} cannot be read: {error}.") from None
    return properties


def load_properties(path: str) -> dict[str, str]:
    """Read a .properties file in UTF-8 or, as older versions of Java wrote it, Latin-1.

    Raises:
        UserError: The file cannot be read or parsed.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UserError(f"Cannot read the configuration file {path}: {reason}.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, path)


def format_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a .properties file, in ASCII so that every version of Java reads it."""
    return "".join(
        f"{_escape(name, is_key=True)}={_escape(value)}\n" for name, value in properties.items()
    )


def parse_override(argument: str) -> tuple[str, str]:
    """Split a `key=value` argument.

    Raises:
        UserError: The argument has another form.
    """
    key, equals, value = argument.partition("=")
    if not equals or not key.strip():
        raise UserError(f"The override {argument!r} must look like key=value.")
    return key.strip(), value.strip()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    lines = iter(enumerate(re.split(r"\r\n|\r|\n", text), start=1))
    for number, line in lines:
        line = line.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip(_BLANKS)
        yield number, line


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    unescaped = _ESCAPE.sub(_replace_escape, text)
    # A character outside the Basic Multilingual Plane is written as two \\u escapes.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16")


def _escape(text: str, *, is_key: bool = False) -> str:
    escaped = []
    for index, character in enumerate(text):
        if character in _ESCAPES:
            escaped.append(_ESCAPES[character])
        elif is_key and character in " =:#!":
            escaped.append(f"\\{character}")
        elif character == " " and index == 0:
            escaped.append("\\ ")
        elif " " <= character <= "~":
            escaped.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            pairs = [units[place : place + 2] for place in range(0, len(units), 2)]
            escaped += [f"\\u{int.from_bytes(pair):04x}" for pair in pairs]
    return "".join(escaped)


def _replace_escape(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape == "u":
        raise ValueError("\\u must be followed by four hexadecimal digits")
    return _SIMPLE.get(escape, escape)
