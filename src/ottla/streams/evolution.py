"""Changes of a topology that a checkpoint survives: topics that a query gains or loses.

Spark keeps the offsets of a query under the names of its sources, so sources may come and go, as
long as the operators with state remain. From the topology, this module derives how records reach
that state:

    Shape    an operator with state (or the sink), and for each of its inputs the paths to it
    Path     a topic, or the `Shape` of another operator with state, and the operators without state
             between it and the input

Two branches that are merged before or after an operator without state have the same paths. A query
may gain or lose paths that begin at topics; all others must remain, in the same order. A topic on
such a path must not be read on another one, because only their order distinguishes its reads.

Spark forgets the offsets of a source that a query has lost. They are therefore stored as well, and
a topic that returns continues there, as a source with a new name.

Both are stored beside the checkpoint, as JSON. Checkpoints of Ottla 0.1 have none: Spark cannot
give their sources names. Neither have queries with DataFrames of the user, whose sources Ottla does
not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

from ottla.streams.operators.stateless import Failures, Merge, Transformed
from ottla.streams.operators.topics import BadRecords, FrameSource, Sink, Source
from ottla.streams.plan.node import Node, UnaryNode, ancestors

VERSION = 1
CLOCK_NAME = "wall_clock"
"""Name of the source of wall-clock ticks. Names of topics have two hexadecimal digits after `_`."""
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True)
class Left:
    """A topic that a query has lost, and may have regained since."""

    times: int
    """How often the query has lost it."""
    offsets: tuple[dict[str, Any], ...]
    """End offsets of each of its reads."""


class SourceNames:
    """Names of a query's sources, for one compilation of the query."""

    def __init__(self, left: Mapping[str, Left]) -> None:
        self._left = left
        self._reads: dict[str, int] = {}

    def next_read(self, topic: str) -> tuple[str, dict[str, Any] | None]:
        """Return the name of the next read of a topic.

        Returns:
            The name, and the offsets at which a topic continues that the query had lost.
        """
        number = self._reads[topic] = self._reads.get(topic, 0) + 1
        left = self._left.get(topic)
        if left is None:
            return _source_name(topic, number, 0), None
        known = left.offsets[number - 1 : number]
        return _source_name(topic, number, left.times), known[0] if known else None


def _source_name(topic: str, number: int, times_left: int) -> str:
    """Return a name of letters, digits and underscores, as Spark demands."""
    name = _NOT_PLAIN.sub(lambda found: f"_{ord(found[0]):02x}", topic)
    name += f"__{number}" if number > 1 else ""
    return name + (f"__again{times_left}" if times_left else "")


def leave(
    topics: Iterable[str], left: Mapping[str, Left], offsets: Mapping[str, Any]
) -> dict[str, Left]:
    """Record topics that a query loses.

    Args:
        topics: The topics.
        left: Topics that the query has lost before.
        offsets: End offsets of the last batch, by the names of the sources.
    """
    made = dict(left)
    for topic in topics:
        before = left.get(topic, Left(0, ()))
        names = (_source_name(topic, number, before.times) for number in count(1))
        ends = tuple(offsets[name] for name in takewhile(offsets.__contains__, names))
        # A topic that has never been in a batch continues where it would have.
        made[topic] = Left(before.times + 1, ends or before.offsets)
    return made


# -------------------------------------------------------------------------------------- the shape


@dataclass(frozen=True)
class Path:
    origin: Shape | str
    """Another operator with state, or the text of a source."""
    topic: str | None
    """Topic of the source."""
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    operator: str
    inputs: tuple[tuple[Path, ...], ...]

    @property
    def topics(self) -> Iterator[str]:
        for paths in self.inputs:
            for path in paths:
                if isinstance(path.origin, Shape):
                    yield from path.origin.topics
                elif path.topic is not None:
                    yield path.topic


def shape_of(sink: Sink) -> Shape | None:
    """Return the shape of a query, or None if its sources cannot have names."""
    if any(isinstance(each, FrameSource | Transformed) for each in ancestors(sink)):
        return None
    return Shape(_text(sink), (tuple(_paths(sink.parent)),))


def _paths(node: Node) -> Iterator[Path]:
    """Yield the paths from sources and operators with state up to and including a node."""
    if isinstance(node, Source | BadRecords):
        yield Path(_text(node), node.topic_read, ())
    elif isinstance(node, Merge):
        yield from _paths(node.left)
        yield from _paths(node.right)
    elif isinstance(node, Failures):
        for each in node.operators:
            yield from (_extended(path, _text(node)) for path in _paths(each))
    elif node.state_word is not None:
        inputs = tuple(tuple(_paths(each)) for each in node.parents)
        yield Path(Shape(_text(node), inputs), None, ())
    elif isinstance(node, UnaryNode):
        yield from (_extended(path, _text(node)) for path in _paths(node.parent))
    else:  # a join of a stream with a table, which is read anew in each micro-batch
        left, *tables = node.parents
        text = "; ".join((_text(node), *map(_text, tables)))
        yield from (_extended(path, text) for path in _paths(left))


def _extended(path: Path, step: str) -> Path:
    return Path(path.origin, path.topic, (*path.steps, step))


def _text(node: Node) -> str:
    return " ".join((*node.describe(), *(f"#{each}" for each in node.fingerprints)))


# ------------------------------------------------------------------------------------ as a text


@dataclass(frozen=True)
class Stored:
    """Content of the file beside a checkpoint whose sources have names."""

    shape: Shape
    left: Mapping[str, Left]


def to_text(stored: Stored | None) -> str:
    made: dict[str, Any] = {"version": VERSION, "query": None}
    if stored is not None:
        made["query"] = _to_json(stored.shape)
        made["left"] = {
            topic: {"times": each.times, "offsets": list(each.offsets)}
            for topic, each in stored.left.items()
        }
    return json.dumps(made)


def from_text(text: str | None) -> Stored | None:
    """Return what is stored, or None if the checkpoint's sources have no names."""
    read = None if text is None else json.loads(text)
    if read is None or read["query"] is None or read["version"] != VERSION:
        return None
    left = {
        topic: Left(each["times"], tuple(each["offsets"])) for topic, each in read["left"].items()
    }
    return Stored(_from_json(read["query"]), left)


def _to_json(shape: Shape) -> dict[str, Any]:
    return {
        "operator": shape.operator,
        "inputs": [
            [
                {
                    "from": each.origin if isinstance(each.origin, str) else _to_json(each.origin),
                    "topic": each.topic,
                    "steps": list(each.steps),
                }
                for each in paths
            ]
            for paths in shape.inputs
        ],
    }


def _from_json(stored: dict[str, Any]) -> Shape:
    return Shape(
        stored["operator"],
        tuple(
            tuple(
                Path(
                    each["from"] if isinstance(each["from"], str) else _from_json(each["from"]),
                    each["topic"],
                    tuple(each["steps"]),
                )
                for each in paths
            )
            for paths in stored["inputs"]
        ),
    )


# ------------------------------------------------------------------------------------ the change


@dataclass(frozen=True)
class Change:
    """Topics that a query gains and loses."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]


def change_between(before: Shape, now: Shape) -> Change | None:
    """Return what a query gains and loses, or None if its checkpoint does not survive the change.

    Every input keeps at least one of its paths, so that another application with the same name is
    not taken for a new version of this one.
    """
    gained: list[Path] = []
    lost: list[Path] = []
    if not _has_same_state(before, now, gained, lost):
        return None
    topics = [{each.topic for each in paths if each.topic} for paths in (gained, lost)]
    kept = list(now.topics)
    for each in gained:
        if each.topic is not None:
            kept.remove(each.topic)
    if topics[0] & topics[1] or (topics[0] | topics[1]) & set(kept):
        return None
    return Change(tuple(sorted(topics[0])), tuple(sorted(topics[1])))


def _has_same_state(before: Shape, now: Shape, gained: list[Path], lost: list[Path]) -> bool:
    """Compare two shapes, and collect the paths that only one of them has."""
    if before.operator != now.operator or len(before.inputs) != len(now.inputs):
        return False
    for earlier, later in zip(before.inputs, now.inputs, strict=True):
        if not _has_same_paths(earlier, later, gained, lost):
            return False
    return True


def _has_same_paths(
    before: tuple[Path, ...], now: tuple[Path, ...], gained: list[Path], lost: list[Path]
) -> bool:
    states_before, states_now = ([p for p in each if p.topic is None] for each in (before, now))
    if len(states_before) != len(states_now):
        return False
    for earlier, later in zip(states_before, states_now, strict=True):
        assert isinstance(earlier.origin, Shape)
        assert isinstance(later.origin, Shape)
        if earlier.steps != later.steps:
            return False
        if not _has_same_state(earlier.origin, later.origin, gained, lost):
            return False
    topics_before, topics_now = ([p for p in each if p.topic is not None] for each in (before, now))
    kept = [each for each in topics_now if each in topics_before]
    if [each for each in topics_before if each in topics_now] != kept:
        return False
    gained += [each for each in topics_now if each not in topics_before]
    lost += [each for each in topics_before if each not in topics_now]
    return bool(kept) or bool(states_now)
