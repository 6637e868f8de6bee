"""Reasons in the error texts of Spark, without stack traces."""

from __future__ import annotations

import re

_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): ?(.*)", re.MULTILINE)
_SPARK_CODE = re.compile(r"\s*SQLSTATE: \w+")
MAX_CHARS = 2_000


def reason_of(text: str) -> str:
    """Return the last Python exception in a Spark error, or the text above its stack trace."""
    text = _SPARK_CODE.sub("", text)
    traceback = text.rfind("Traceback (most recent call last)")
    if traceback >= 0:
        raised = list(_RAISED.finditer(text, traceback))
        if raised:
            last = raised[-1]
            message = _until_java(text[last.start(2) :])
            name = last[1]
            plain = name in ("UserError", "InvalidConfig", "InvalidConnector")
            return (message if plain and message else f"{name}: {message}")[:MAX_CHARS]
    return _until_java(text.strip())[:MAX_CHARS] or "no error details"


def _until_java(text: str) -> str:
    lines = []
    for line in text.strip().splitlines():
        if line.lstrip().startswith(("at ", "=== ", "JVM stacktrace")):
            break
        lines.append(line)
    return "\n".join(lines).strip()
