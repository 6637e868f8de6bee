"""Error messages of statements: one sentence that names the object and the remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import UserError
from ottla.spark.topic_snapshot import TopicSnapshot

MAX_CHARS = 400
_NAME = re.compile(r"`((?:[^`]|``)+)`")
_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)")


def no_topic(name: str, topics: Iterable[str]) -> UserError:
    """Return an error for an unknown topic, with the nearest existing name."""
    there = sorted(topics)
    if name in there:
        return UserError(f"Quote the topic's name with backticks: `{name}`.")
    nearest = _nearest(name, there)
    if nearest is None:
        return UserError(
            f"Topic '{name}' does not exist. List the topics with: ottla topics --list"
        )
    return UserError(f"Topic '{name}' does not exist. Did you mean {_quoted(nearest)}?")


def no_column(
    name: str, columns: Sequence[str], snapshot: TopicSnapshot, value_format: str
) -> UserError:
    """Return an error for an unknown column, with the nearest name and all columns."""
    words = [f"Column '{name}' does not exist."]
    nearest = _nearest(name, columns)
    if nearest is not None:
        words.append(f"Did you mean '{nearest}'?")
    words.append(f"The columns are {', '.join(columns)}.")
    if name == "value" and value_format == "json":
        words.append("Values are JSON objects; --value-format string reads them as text.")
    elif value_format in ("string", "raw"):
        why = snapshot.sample().why_not_json()
        words += [] if why is None else [why]
    return UserError(" ".join(words))


def not_json(snapshot: TopicSnapshot) -> str | None:
    """Return a note if some but not all values of the topic are JSON objects."""
    sample = snapshot.sample()
    if not sample.is_mixed:
        return None
    return (
        f"{sample.why_not_json()} To query only the JSON objects, add: "
        "--value-format json --mode drop"
    )


def _nearest(name: str, names: Iterable[str]) -> str | None:
    by_lower = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, 0.6)
    return by_lower[found[0]] if found else None


def _quoted(name: str) -> str:
    return f"'{name}'" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name}`"


# ------------------------------------------------------------------------------ Spark's errors


@dataclass
class Tables:
    """The topics of a statement, for use in error messages."""

    topics: Sequence[str]
    """All topics of the cluster."""
    snapshots: Sequence[TopicSnapshot]
    formats: dict[str, str] = field(default_factory=dict)
    """Value format of each topic."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """Column names of each topic."""

    @property
    def only(self) -> TopicSnapshot | None:
        return self.snapshots[0] if len(self.snapshots) == 1 else None


def of_spark(error: Any, tables: Tables) -> UserError:
    """Convert an error of Spark, captured or raw, to an error with one sentence."""
    condition, parameters, message = _described(error)
    rule = next((rule for name, rule in _RULES.items() if condition.startswith(name)), None)
    made = None if rule is None else rule(parameters, message, tables)
    return made or UserError(_plain(message))


def _described(error: Any) -> tuple[str, dict[str, str], str]:
    """Return the condition, its parameters and the message of the innermost cause that has them."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        condition = getattr(error, "getCondition", lambda: None)() or ""
        return condition, {}, str(error)
    from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
    from pyspark import SparkContext

    gateway, found = SparkContext._gateway, java
    cause = java
    while cause is not None:
        if (
            is_instance_of(gateway, cause, "org.apache.spark.SparkThrowable")
            and cause.getCondition() is not None
        ):
            found = cause
        cause = cause.getCause()
    if not is_instance_of(gateway, found, "org.apache.spark.SparkThrowable"):
        return "", {}, str(found.getMessage() or found.toString())
    # The message is the only place that holds the traceback of a Python worker.
    text = str(found.getMessage() or "")
    return found.getCondition() or "", dict(found.getMessageParameters() or {}), text


def _unknown_column(
    parameters: Mapping[str, str], message: str, tables: Tables
) -> UserError | None:
    names = _NAME.findall(parameters.get("objectName", ""))
    if not names:
        return None
    if (snapshot := tables.only) is not None and snapshot.topic in tables.columns:
        columns, kind = tables.columns[snapshot.topic], tables.formats[snapshot.topic]
        return no_column(names[-1], columns, snapshot, kind)
    proposed = [_NAME.findall(each) for each in parameters.get("proposal", "").split(", ")]
    nearest = _nearest(names[-1], [each[-1] for each in proposed if each])
    hint = "" if nearest is None else f" Did you mean '{nearest}'?"
    return UserError(f"Column '{names[-1]}' does not exist.{hint}")


def _unknown_table(parameters: Mapping[str, str], message: str, tables: Tables) -> UserError | None:
    names = _NAME.findall(parameters.get("relationName", ""))
    return no_topic(".".join(names), tables.topics) if names else None


def _syntax(parameters: Mapping[str, str], message: str, tables: Tables) -> UserError | None:
    near = parameters.get("error", "").strip("'")
    at = _POSITION.search(message) or _POSITION.search(parameters.get("position", ""))
    where = f" at line {at[1]}, position {int(at[2]) + 1}" if at else ""
    near = "the end of the statement" if near in ("end of input", "<EOF>", "") else f"'{near}'"
    hint = parameters.get("hint", "").strip(" :.")
    return UserError(f"Syntax error in the SQL{where}, near {near}{f': {hint}' if hint else ''}.")


def _identifier(parameters: Mapping[str, str], message: str, tables: Tables) -> UserError | None:
    name = parameters.get("ident", "").strip("`")
    meant = [each for each in tables.topics if name and each.startswith(name)]
    shown = name if name in meant or not meant else min(meant, key=len)
    return UserError(f"Quote names that are not plain words with backticks: `{shown}`.")


def _malformed(parameters: Mapping[str, str], message: str, tables: Tables) -> UserError | None:
    names = [each for each, kind in tables.formats.items() if kind == "json"]
    of = f" of topic '{names[0]}'" if len(names) == 1 else ""
    first = next(
        (
            f" (partition {found[0].partition}, offset {found[0].offset}: {found[1]})"
            for snapshot in tables.snapshots
            if snapshot.topic in names and (found := snapshot.sample().first_other) is not None
        ),
        "",
    )
    return UserError(
        f"A value{of} does not match the JSON schema{first}. Add --mode drop to skip such values, "
        "or --value-format string to read values as text."
    )


def _not_utf8(parameters: Mapping[str, str], message: str, tables: Tables) -> UserError | None:
    return UserError(
        "A value is not UTF-8. Add --mode drop to skip such values, or --value-format raw to read "
        "values as bytes."
    )


Rule = Callable[[Mapping[str, str], str, Tables], UserError | None]
_RULES: dict[str, Rule] = {
    "UNRESOLVED_COLUMN": _unknown_column,
    "TABLE_OR_VIEW_NOT_FOUND": _unknown_table,
    "PARSE_SYNTAX_ERROR": _syntax,
    "PARSE_EMPTY_STATEMENT": lambda *_: UserError("The statement is empty."),
    "INVALID_IDENTIFIER": _identifier,
    "MALFORMED_RECORD_IN_PARSING": _malformed,
    "INVALID_UTF8_STRING": _not_utf8,
}
_ADVICE = re.compile(r" If necessary set \S+ to \S+ to bypass this error\.")
_CODES = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+")


def _plain(message: str) -> str:
    """Return a message without class names, error codes, plans and stack traces."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("ottla.")]
    if ours:
        return ours[-1].partition(": ")[2] or ours[-1]
    text = lines[0] if lines else "Spark failed without an error message."
    text = _ADVICE.sub("", _CODES.sub("", text)).partition("; line ")[0].strip(" ;")
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}…"
    return text if text.endswith((".", "?", "!", "…")) else f"{text}."
