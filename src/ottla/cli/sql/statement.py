"""Parser for the statements that `ottla sql` evaluates without Spark. The code is pure.

    SELECT * | COUNT(*) [[AS] name] | column [[AS] name], …
    FROM topic
    [WHERE column = | <> | < | <= | > | >= literal AND column IS [NOT] NULL AND …]
    [LIMIT number] [;]

Names are words, or arbitrary text in backticks; literals are integers, decimals and plain strings.
For any other statement `parse` returns None, and Spark parses it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKENS = re.compile(
    r"""\s+
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | `(?P<quoted>[^`]+)`
    | (?P<number>[0-9]+(?:\.[0-9]+)?)(?![A-Za-z0-9_.])
    | '(?P<text>[^'\\\n]*)'(?!\s*['"])
    | (?P<symbol><=|>=|<>|!=|[*(),;=<>])""",
    re.VERBOSE,
)
COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
MAX_LITERAL = 2**63 - 1

_RESERVED = frozenset(re.findall(r"\w+", """
    all analyze and anti any array as asc at between both by case cast check collate column
    constraint count cross cube current current_catalog current_database current_date
    current_path current_schema current_time current_timestamp current_timezone current_user
    date default desc distinct div else end escape except exists explode extract false fetch
    filter first for from full group grouping having if ilike in inner intersect interval into
    is join last lateral leading left like limit localtimestamp map minus natural not now null
    nulls offset on only or order outer over overlaps overlay pivot position primary qualify
    range references regexp right rlike rollup rows select semi session_user set some stream
    struct sum table tablesample then time timestamp to trailing transform trim true try_cast
    union unique unknown unpivot user using values view when where window with
"""))  # fmt: skip
"""Words that have a special meaning for Spark. The parser accepts them as names only in
backticks."""


@dataclass(frozen=True)
class Column:
    """A selected column, with its alias if there is one."""

    name: str
    alias: str | None = None

    @property
    def label(self) -> str:
        return self.name if self.alias is None else self.alias


@dataclass(frozen=True)
class Condition:
    """`column operator literal`, or `column IS [NOT] NULL` (operator "is null", "is not null")."""

    column: str
    operator: str
    literal: int | float | str | None = None


@dataclass(frozen=True)
class Select:
    """A parsed SELECT statement."""

    topic: str
    columns: tuple[Column, ...] = ()
    """Selected columns; empty for `*` and for a count."""
    count_label: str | None = None
    """Name of the result column of a count; None if the statement selects columns."""
    conditions: tuple[Condition, ...] = ()
    limit: int | None = None


class _NotSimple(Exception):
    pass


def parse(statement: str) -> Select | None:
    """Return the parsed statement, or None if it is not a simple one."""
    try:
        return _Parser(_tokens(statement)).select()
    except _NotSimple:
        return None


Token = tuple[str, str]


def _tokens(statement: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(statement):
        match = _TOKENS.match(statement, at)
        if match is None:
            raise _NotSimple
        if match.lastgroup is not None:
            found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def select(self) -> Select:
        self._expect("select")
        count_label = self._count()
        columns = () if count_label is not None or self._accept("symbol", "*") else self._columns()
        self._expect("from")
        topic = self._name()
        conditions = self._conditions() if self._accept("word", "where") else ()
        limit = int(self._number()) if self._accept("word", "limit") else None
        self._accept("symbol", ";")
        if self._at < len(self._tokens):
            raise _NotSimple
        return Select(topic, columns, count_label, conditions, limit)

    def _count(self) -> str | None:
        if not self._accept("word", "count"):
            return None
        for symbol in ("(", "*", ")"):
            if not self._accept("symbol", symbol):
                raise _NotSimple
        return self._alias() or "count(1)"

    def _columns(self) -> tuple[Column, ...]:
        found = [Column(self._name(), self._alias())]
        while self._accept("symbol", ","):
            found.append(Column(self._name(), self._alias()))
        return tuple(found)

    def _alias(self) -> str | None:
        if self._accept("word", "as"):
            return self._name()
        kind, text = self._peek()
        is_name = kind == "quoted" or (kind == "word" and text.lower() not in _RESERVED)
        return self._name() if is_name else None

    def _conditions(self) -> tuple[Condition, ...]:
        found = [self._condition()]
        while self._accept("word", "and"):
            found.append(self._condition())
        return tuple(found)

    def _condition(self) -> Condition:
        column = self._name()
        if self._accept("word", "is"):
            operator = "is not null" if self._accept("word", "not") else "is null"
            self._expect("null")
            return Condition(column, operator)
        kind, operator = self._next()
        operator = "<>" if operator == "!=" else operator
        if kind != "symbol" or operator not in COMPARISONS:
            raise _NotSimple
        return Condition(column, operator, self._literal())

    def _literal(self) -> int | float | str:
        kind, text = self._next()
        if kind == "text":
            return text
        if kind != "number" or int(text.partition(".")[0]) > MAX_LITERAL:
            raise _NotSimple
        return float(text) if "." in text else int(text)

    def _number(self) -> str:
        kind, text = self._next()
        if kind != "number" or not text.isdecimal() or int(text) > 2**31 - 1:
            raise _NotSimple
        return text

    def _name(self) -> str:
        kind, text = self._next()
        if kind == "quoted" or (kind == "word" and text.lower() not in _RESERVED):
            return text
        raise _NotSimple

    # ---------------------------------------------------------------------------------- tokens

    def _peek(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> Token:
        found = self._peek()
        self._at += 1
        return found

    def _accept(self, kind: str, text: str) -> bool:
        found_kind, found = self._peek()
        if found_kind != kind or found.lower() != text:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accept("word", word):
            raise _NotSimple
