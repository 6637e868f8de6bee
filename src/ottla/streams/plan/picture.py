"""A topology as a picture (SVG): topics at the top and bottom, operators between them.

Colours say what runs a step, as `explain` does: columns, Python, state. A dashed line leads from
where a topic is written to where the application reads it again, in a query of its own.

Layout: a node is one layer below its lowest parent; lines that pass layers have a place of their
own in each; places in a layer are ordered by the mean of their neighbours', a few times down and
up, and then moved towards them as far as others leave room. Pure: the same plan, the same
picture."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from ottla.streams.plan.explain import engine, words
from ottla.streams.plan.nodes import BadRecords, Node, Sink, Source, ancestors

CHAR_WIDTH = 6.7
LINE_HEIGHT = 15
TITLE_HEIGHT = 20
PADDING = 10
MOST_CHARS = 44
MOST_LINES = 4
GAP_X = 28
GAP_Y = 44
MARGIN = 20
LEGEND_HEIGHT = 26
SWEEPS = 6
PASSING_WIDTH = 12.0

_FILLS = {
    "topic": ("#e8f0fe", "#3367d6"),
    "columns": ("#ffffff", "#5f6368"),
    "Python": ("#fff4e0", "#e37400"),
    "state": ("#e6f4ea", "#1e8e3e"),
}
_FONT = "font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\""


@dataclass(eq=False)
class _Place:
    """A node, or where a line passes a layer."""

    node: Node | None
    layer: int
    title: str = ""
    lines: Sequence[str] = ()
    kind: str = "columns"
    above: list[_Place] = field(default_factory=list)
    below: list[_Place] = field(default_factory=list)
    x: float = 0.0
    """Of the middle."""
    y: float = 0.0
    """Of the top."""

    @property
    def width(self) -> float:
        if self.node is None:
            return PASSING_WIDTH
        chars = max(len(self.title) + 1, *(len(each) for each in self.lines), 8)
        return chars * CHAR_WIDTH + 2 * PADDING

    @property
    def height(self) -> float:
        if self.node is None:
            return 0.0
        return TITLE_HEIGHT + len(self.lines) * LINE_HEIGHT + PADDING


@dataclass(frozen=True)
class _Line:
    places: tuple[_Place, ...]
    is_dashed: bool


def picture(sinks: Sequence[Sink]) -> str:
    """An SVG document."""
    places, lines = _graph(sinks)
    layers = _ordered(places)
    _move(layers)
    return _drawn(layers, lines)


# ------------------------------------------------------------------------------------- the graph


def _graph(sinks: Sequence[Sink]) -> tuple[list[_Place], list[_Line]]:
    nodes: list[Node] = []
    for sink in sinks:
        nodes += [each for each in ancestors(sink) if not any(each is one for one in nodes)]
    edges = [(parent, node, False) for node in nodes for parent in node.parents]
    edges += _read_again(nodes)
    layers = _layers(nodes, edges)
    places = {id(node): _place(node, layers[id(node)]) for node in nodes}
    found, lines = list(places.values()), []
    for parent, node, is_dashed in edges:
        first, last = places[id(parent)], places[id(node)]
        passing = [_Place(None, layer) for layer in range(first.layer + 1, last.layer)]
        found += passing
        path = (first, *passing, last)
        for upper, lower in itertools.pairwise(path):
            upper.below.append(lower)
            lower.above.append(upper)
        lines.append(_Line(path, is_dashed))
    return found, lines


def _topic(node: Node) -> str | None:
    if isinstance(node, BadRecords):
        return node.source.topic
    return node.topic if isinstance(node, Sink | Source) else None


def _read_again(nodes: Sequence[Node]) -> list[tuple[Node, Node, bool]]:
    """From sinks to sources of the same topic, but for one that would close a circle."""
    found: list[tuple[Node, Node, bool]] = []
    above = {id(node): {id(each) for each in ancestors(node)} for node in nodes}
    for sink in (each for each in nodes if isinstance(each, Sink)):
        for source in (each for each in nodes if isinstance(each, Source | BadRecords)):
            if _topic(source) != sink.topic or id(source) in above[id(sink)]:
                continue
            found.append((sink, source, True))
            for each in above.values():
                if id(source) in each:
                    each |= above[id(sink)]
    return found


def _layers(nodes: Sequence[Node], edges: Sequence[tuple[Node, Node, bool]]) -> dict[int, int]:
    layers = {id(node): 0 for node in nodes}
    for _ in nodes:  # as often as the longest way could need
        for parent, node, _ in edges:
            layers[id(node)] = max(layers[id(node)], layers[id(parent)] + 1)
    return layers


def _place(node: Node, layer: int) -> _Place:
    operator, what = words(node)
    told = engine(node)
    kind = next((each for each in ("Python", "state") if f"[{each}" in told), "columns")
    title = operator
    if (topic := _topic(node)) is not None:
        kind = "topic"
        title = f"{operator} {topic}"
        what = what.removeprefix(f"topic {topic}: ")
    lines = textwrap.wrap(what, MOST_CHARS)
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1][: MOST_CHARS - 2]} …"]
    return _Place(node, layer, title, lines, kind)


# ------------------------------------------------------------------------------------ the layout


def _ordered(places: Sequence[_Place]) -> list[list[_Place]]:
    layers: list[list[_Place]] = [[] for _ in range(max(each.layer for each in places) + 1)]
    for each in places:
        layers[each.layer].append(each)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            order = {id(each): float(at) for at, each in enumerate(layer)}
            beside = {
                id(each): _mean_order(each.above if downwards else each.below, layers)
                for each in layer
            }
            layer.sort(key=lambda each: _or(beside[id(each)], order[id(each)]))
    return layers


def _mean_order(neighbours: Sequence[_Place], layers: Sequence[list[_Place]]) -> float | None:
    if not neighbours:
        return None
    return sum(layers[each.layer].index(each) for each in neighbours) / len(neighbours)


def _or(wanted: float | None, otherwise: float) -> float:
    return otherwise if wanted is None else wanted


def _move(layers: Sequence[list[_Place]]) -> None:
    top = float(MARGIN + LEGEND_HEIGHT)
    for layer in layers:
        left = float(MARGIN)
        for each in layer:
            each.x, each.y = left + each.width / 2, top
            left += each.width + GAP_X
        top += max(each.height for each in layer) + GAP_Y
    for sweep in range(4 * SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _move_layer(layer)
    least = min(each.x - each.width / 2 for layer in layers for each in layer)
    for layer in layers:
        for each in layer:
            each.x += MARGIN - least


def _move_layer(layer: Sequence[_Place]) -> None:
    """To the mean of the neighbours; then apart again, from the left and from the right, and to the
    mean of both."""
    for each in layer:
        neighbours = [*each.above, *each.below]
        if neighbours:
            each.x = sum(one.x for one in neighbours) / len(neighbours)
    from_left, from_right = [each.x for each in layer], [each.x for each in layer]
    for at in range(1, len(layer)):
        apart = (layer[at - 1].width + layer[at].width) / 2 + GAP_X
        from_left[at] = max(from_left[at], from_left[at - 1] + apart)
    for at in range(len(layer) - 2, -1, -1):
        apart = (layer[at].width + layer[at + 1].width) / 2 + GAP_X
        from_right[at] = min(from_right[at], from_right[at + 1] - apart)
    for each, left, right in zip(layer, from_left, from_right, strict=True):
        each.x = (left + right) / 2


# ----------------------------------------------------------------------------------- the drawing


def _drawn(layers: Sequence[list[_Place]], lines: Sequence[_Line]) -> str:
    places = [each for layer in layers for each in layer]
    legend_width = MARGIN + sum(len(name) * CHAR_WIDTH + 40 for name in _FILLS) + MARGIN
    width = max(max(each.x + each.width / 2 for each in places) + MARGIN, legend_width)
    height = max(each.y + each.height for each in places) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" {_FONT} font-size="11">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#5f6368"/>'
        "</marker></defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *_legend(),
        *(_curve(each) for each in lines),
        *(part for each in places if each.node is not None for part in _box(each)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend() -> list[str]:
    parts, x = [], float(MARGIN)
    for name, (fill, stroke) in _FILLS.items():
        parts.append(
            f'<rect x="{x:.1f}" y="{MARGIN - 6}" width="12" height="12" rx="3" fill="{fill}" '
            f'stroke="{stroke}"/>'
        )
        parts.append(f'<text x="{x + 18:.1f}" y="{MARGIN + 4}" fill="#5f6368">{name}</text>')
        x += len(name) * CHAR_WIDTH + 40
    return parts


def _curve(line: _Line) -> str:
    first, last = line.places[0], line.places[-1]
    points = [(first.x, first.y + first.height)]
    points += [(each.x, each.y) for each in line.places[1:-1]]
    points += [(last.x, last.y)]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        middle = (y1 + y2) / 2
        path += f" C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    dashes = ' stroke-dasharray="5 4"' if line.is_dashed else ""
    return (
        f'<path d="{path}" fill="none" stroke="#5f6368" stroke-width="1.3"{dashes} '
        'marker-end="url(#arrow)"/>'
    )


def _box(place: _Place) -> list[str]:
    fill, stroke = _FILLS[place.kind]
    left, radius = place.x - place.width / 2, 14 if place.kind == "topic" else 4
    parts = [
        f'<rect x="{left:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="{radius}" fill="{fill}" stroke="{stroke}"/>',
        f'<text x="{place.x:.1f}" y="{place.y + 16:.1f}" text-anchor="middle" '
        f'font-weight="bold" fill="#202124">{escape(place.title)}</text>',
    ]
    for number, text in enumerate(place.lines):
        y = place.y + TITLE_HEIGHT + 12 + number * LINE_HEIGHT
        parts.append(
            f'<text x="{place.x:.1f}" y="{y:.1f}" text-anchor="middle" fill="#3c4043">'
            f"{escape(text)}</text>"
        )
    return parts
