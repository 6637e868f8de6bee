"""Matching of topic names against patterns. A pattern must match the whole name.

A client must not be able to block the broker, so the matching time depends only on the lengths of
the name and the pattern: all states of the automaton are advanced in parallel, without
backtracking. RE2 lacks the features that would need backtracking (back references, lookahead and
lookbehind).
"""

from __future__ import annotations

from functools import lru_cache

from ottla.core.group.pattern_syntax import (
    BIT,
    WORD,
    Alt,
    Cat,
    Chars,
    Edge,
    InvalidPattern,
    Parser,
    PatternNode,
    Repeat,
)

__all__ = ["InvalidPattern", "TopicPattern", "compile_pattern"]

MAX_STATES = 2_000
"""Maximum number of states of a pattern with its repetitions expanded."""
MAX_REMEMBERED_STEPS = 20_000
MAX_REMEMBERED_PATTERNS = 256
_ACCEPT = 0


class TopicPattern:
    """A nondeterministic finite automaton. States are numbered, and state 0 accepts.

    `_chars[s]` is the set of characters with which state s advances to `_next[s][0]`. A state
    without a set advances to all of `_next[s]` without a character, provided that its zero-width
    assertion, if it has one, holds.
    """

    def __init__(self, text: str) -> None:
        """Compile a pattern.

        Raises:
            InvalidPattern: The pattern is not valid.
        """
        self._chars: list[int | None] = [None]
        self._edges: list[str | None] = [None]
        self._next: list[tuple[int, ...]] = [()]
        self._start = 1 << self._build(Parser(text).parse(), _ACCEPT)
        self._steps: dict[tuple[int, str, str], int] = {}

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        states, before = self._start, ""
        steps = self._steps
        for character in name:
            key = (states, before, character)
            known = steps.get(key)
            if known is None:
                if len(steps) >= MAX_REMEMBERED_STEPS:
                    steps.clear()
                known = steps[key] = self._step(states, before, character)
            if not known:
                return False
            states, before = known, character
        return bool(self._closure(states, before, "") >> _ACCEPT & 1)

    def _step(self, states: int, before: str, character: str) -> int:
        bit, reached = BIT.get(character, 0), 0
        for state in _bits(self._closure(states, before, character)):
            mask = self._chars[state]
            if mask is not None and mask & bit:
                reached |= 1 << self._next[state][0]
        return reached

    def _closure(self, states: int, before: str, after: str) -> int:
        """Return all states that can be reached without consuming a character."""
        found, pending = states, list(_bits(states))
        while pending:
            state = pending.pop()
            edge = self._edges[state]
            if self._chars[state] is not None or (edge and not _edge_matches(edge, before, after)):
                continue
            for successor in self._next[state]:
                if not found >> successor & 1:
                    found |= 1 << successor
                    pending.append(successor)
        return found

    # --------------------------------------------------------------------------------- building

    def _build(self, node: PatternNode, then: int) -> int:
        """Return the start state of an automaton that matches `node` and ends in state `then`."""
        match node:
            case Chars(mask):
                return self._state(mask, None, (then,))
            case Edge(kind):
                return self._state(None, kind, (then,))
            case Cat(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Alt(parts):
                return self._state(None, None, tuple(self._build(part, then) for part in parts))
            case Repeat(part, low, high):
                return self._build_repeat(part, low, high, then)

    def _build_repeat(self, part: PatternNode, low: int, high: int | None, then: int) -> int:
        if high is None:
            loop = self._state(None, None, ())
            self._next[loop] = (self._build(part, loop), then)
            then = loop
        else:
            end = then
            for _ in range(high - low):
                then = self._state(None, None, (self._build(part, then), end))
        for _ in range(low):
            then = self._build(part, then)
        return then

    def _state(self, mask: int | None, edge: str | None, following: tuple[int, ...]) -> int:
        if len(self._chars) > MAX_STATES:
            raise InvalidPattern("it is too large")
        self._chars.append(mask)
        self._edges.append(edge)
        self._next.append(following)
        return len(self._chars) - 1


def _bits(states: int) -> list[int]:
    found = []
    while states:
        lowest = states & -states
        found.append(lowest.bit_length() - 1)
        states ^= lowest
    return found


def _edge_matches(edge: str, before: str, after: str) -> bool:
    if edge == "^":
        return not before
    if edge == "$":
        return not after
    is_boundary = bool(BIT.get(before, 0) & WORD) != bool(BIT.get(after, 0) & WORD)
    return is_boundary == (edge == "b")


@lru_cache(maxsize=MAX_REMEMBERED_PATTERNS)
def compile_pattern(text: str) -> TopicPattern:
    """Compile a pattern; recently used patterns are cached.

    Raises:
        InvalidPattern: The pattern is not valid.
    """
    return TopicPattern(text)
