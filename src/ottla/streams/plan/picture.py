"""Topology as a picture (SVG): topics at the top and bottom, operators between them.

Colours show the engine of an operator, as `explain` does: columns, Python, state. A dashed line
leads from a topic that the application writes to the query in which it reads the topic again.

Layout: a node is one layer below its lowest parent, or further down where that layer is full: a
picture is at most `MAX_WIDTH` wide, the width of a notebook's cell. A line that crosses layers has
a place of its own in each and bends only between layers, so that it never runs behind a box. The
places in a layer are ordered by the mean of their neighbours', in a few sweeps down and up, and
then moved towards them as far as there is room. A picture that is still too wide is scaled. The
result depends on the plan alone.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from ottla.streams.plan.node import Node, ancestors

CHAR_WIDTH = 6.7
LINE_HEIGHT = 15
TITLE_HEIGHT = 20
PADDING = 10
MAX_WIDTH = 1000
MAX_CHARS = 40
MAX_LINES = 4
GAP_X = 28
GAP_Y = 44
MARGIN = 20
LEGEND_HEIGHT = 26
SWEEPS = 6
PASSING_WIDTH = 2.0
PASSING_GAP = 12
CAPACITIES = (960, 880, 760, 640, 520, 400, 300)
"""Limits on the total width of a layer's boxes, tried until the lines fit beside them."""

_FILLS = {
    "topic": ("#e8f0fe", "#3367d6"),
    "columns": ("#ffffff", "#5f6368"),
    "Python": ("#fff4e0", "#e37400"),
    "state": ("#e6f4ea", "#1e8e3e"),
}
_FONT = "font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\""


@dataclass(eq=False)
class _Place:
    """Position of a node, or of a line where it crosses a layer."""

    node: Node | None
    layer: int
    title: str = ""
    lines: Sequence[str] = ()
    kind: str = "columns"
    above: list[_Place] = field(default_factory=list)
    below: list[_Place] = field(default_factory=list)
    x: float = 0.0
    """Centre of the box."""
    y: float = 0.0
    """Upper edge of the box."""
    bottom: float = 0.0
    """Lower edge of the whole layer."""

    @property
    def width(self) -> float:
        if self.node is None:
            return PASSING_WIDTH
        chars = max(len(self.shown_title) + 1, *(len(each) for each in self.lines), 8)
        return chars * CHAR_WIDTH + 2 * PADDING

    @property
    def shown_title(self) -> str:
        is_long = len(self.title) > MAX_CHARS
        return f"{self.title[: MAX_CHARS - 1]}…" if is_long else self.title

    @property
    def height(self) -> float:
        if self.node is None:
            return 0.0
        return TITLE_HEIGHT + len(self.lines) * LINE_HEIGHT + PADDING


@dataclass(frozen=True)
class _Line:
    places: tuple[_Place, ...]
    is_dashed: bool


def picture(sinks: Sequence[Node]) -> str:
    """Return the topology as an SVG document."""
    places, lines = _graph(sinks)
    layers = _ordered(places)
    _move(layers)
    return _drawn(layers, lines)


# ------------------------------------------------------------------------------------- the graph


def _graph(sinks: Sequence[Node]) -> tuple[list[_Place], list[_Line]]:
    nodes: list[Node] = []
    for sink in sinks:
        nodes += [each for each in ancestors(sink) if not any(each is one for one in nodes)]
    edges = [(parent, node, False) for node in nodes for parent in node.parents]
    edges += _feedback_edges(nodes)
    places = {id(node): _place(node) for node in nodes}
    layers = _layers(nodes, edges, {id(node): places[id(node)].width for node in nodes})
    for node in nodes:
        places[id(node)].layer = layers[id(node)]
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


def _feedback_edges(nodes: Sequence[Node]) -> list[tuple[Node, Node, bool]]:
    """Return edges from sinks to sources of the same topic, except those that close a cycle."""
    found: list[tuple[Node, Node, bool]] = []
    above = {id(node): {id(each) for each in ancestors(node)} for node in nodes}
    for sink in (each for each in nodes if each.topic_written is not None):
        for source in (each for each in nodes if each.topic_read == sink.topic_written):
            if id(source) in above[id(sink)]:
                continue
            found.append((sink, source, True))
            for each in above.values():
                if id(source) in each:
                    each |= above[id(sink)]
    return found


Edges = Sequence[tuple[Node, Node, bool]]


def _layers(nodes: Sequence[Node], edges: Edges, widths: dict[int, float]) -> dict[int, int]:
    """Return each node's layer, so that all layers fit into the picture where that is possible."""
    depths = {id(node): 0 for node in nodes}
    for _ in nodes:  # enough passes for the longest path
        for parent, node, _ in edges:
            depths[id(node)] = max(depths[id(node)], depths[id(parent)] + 1)
    tried = [_filled(nodes, edges, widths, depths, capacity) for capacity in CAPACITIES]
    return min(tried, key=lambda each: max(_max_width(each, edges, widths), MAX_WIDTH))


def _filled(
    nodes: Sequence[Node],
    edges: Edges,
    widths: dict[int, float],
    depths: dict[int, int],
    capacity: float,
) -> dict[int, int]:
    """Return layers whose boxes are together at most `capacity` wide, or which have one box."""
    layers: dict[int, int] = {}
    used: dict[int, float] = {}

    def put(key: int, candidates: Iterable[int]) -> None:
        needed = widths[key] + GAP_X
        for layer in candidates:
            if not used.get(layer) or used[layer] + needed <= capacity + GAP_X:
                layers[key] = layer
                used[layer] = used.get(layer, 0.0) + needed
                return

    above: dict[int, list[int]] = {id(node): [] for node in nodes}
    below: dict[int, list[int]] = {id(node): [] for node in nodes}
    for parent, node, _ in edges:
        above[id(node)].append(id(parent))
        below[id(parent)].append(id(node))
    for key in sorted((id(node) for node in nodes), key=depths.__getitem__):
        first = max((layers[each] + 1 for each in above[key]), default=0)
        put(key, itertools.count(first))
    for node in reversed(nodes):  # move sources down to where they are used
        key = id(node)
        if not above[key] and below[key]:
            lowest = min(layers[each] for each in below[key]) - 1
            used[layers[key]] -= widths[key] + GAP_X
            put(key, range(lowest, layers[key] - 1, -1))
    occupied = {layer: at for at, layer in enumerate(sorted(set(layers.values())))}
    return {key: occupied[layer] for key, layer in layers.items()}


def _max_width(layers: dict[int, int], edges: Edges, widths: dict[int, float]) -> float:
    """Return the width of the widest layer, with its lines and margins."""
    totals = dict.fromkeys(range(max(layers.values()) + 1), 2.0 * MARGIN - GAP_X)
    for key, layer in layers.items():
        totals[layer] += widths[key] + GAP_X
    for parent, node, _ in edges:
        for layer in range(layers[id(parent)] + 1, layers[id(node)]):
            totals[layer] += PASSING_WIDTH + GAP_X
    return max(totals.values())


def _place(node: Node) -> _Place:
    operator, what = node.describe()
    kind = next((each for each in ("Python", "state") if node.engine.startswith(each)), "columns")
    title = operator
    if (topic := node.topic_read or node.topic_written) is not None:
        kind = "topic"
        title = f"{operator} {topic}"
        what = what.removeprefix(f"topic {topic}: ")
    lines = textwrap.wrap(what, MAX_CHARS)  # breaks long words as well
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"{lines[MAX_LINES - 1][: MAX_CHARS - 2]} …"]
    return _Place(node, 0, title, lines, kind)


# ------------------------------------------------------------------------------------ the layout


def _ordered(places: Sequence[_Place]) -> list[list[_Place]]:
    layers: list[list[_Place]] = [[] for _ in range(max(each.layer for each in places) + 1)]
    for each in places:
        layers[each.layer].append(each)
    order = {id(each): at for layer in layers for at, each in enumerate(layer)}
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            wanted = {
                id(each): _mean_order(each, each.above if downwards else each.below, order)
                for each in layer
            }
            layer.sort(key=lambda each: wanted[id(each)])
            order |= {id(each): at for at, each in enumerate(layer)}
    return layers


def _mean_order(place: _Place, neighbours: Sequence[_Place], order: dict[int, int]) -> float:
    if not neighbours:
        return order[id(place)]
    return sum(order[id(each)] for each in neighbours) / len(neighbours)


def _min_distance(left: _Place, right: _Place) -> float:
    """Return the minimum distance between the centres of two neighbours."""
    gap = PASSING_GAP if left.node is None and right.node is None else GAP_X
    return (left.width + right.width) / 2 + gap


def _move(layers: Sequence[list[_Place]]) -> None:
    top = float(MARGIN + LEGEND_HEIGHT)
    for layer in layers:
        bottom = top + max(each.height for each in layer)
        x = MARGIN + layer[0].width / 2
        for at, each in enumerate(layer):
            x += _min_distance(layer[at - 1], each) if at else 0.0
            each.x, each.y, each.bottom = x, top, bottom
        top = bottom + GAP_Y
    for sweep in range(4 * SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _move_layer(layer)
    least = min(each.x - each.width / 2 for layer in layers for each in layer)
    for layer in layers:
        for each in layer:
            each.x += MARGIN - least


def _move_layer(layer: Sequence[_Place]) -> None:
    """Move the boxes of a layer towards the mean of their neighbours.

    Overlaps are resolved once from the left and once from the right. Each box takes the mean of
    both positions, and is then moved inside the picture.
    """
    for each in layer:
        neighbours = [*each.above, *each.below]
        if neighbours:
            each.x = sum(one.x for one in neighbours) / len(neighbours)
    from_left, from_right = [each.x for each in layer], [each.x for each in layer]
    for at in range(1, len(layer)):
        distance = _min_distance(layer[at - 1], layer[at])
        from_left[at] = max(from_left[at], from_left[at - 1] + distance)
    for at in range(len(layer) - 2, -1, -1):
        distance = _min_distance(layer[at], layer[at + 1])
        from_right[at] = min(from_right[at], from_right[at + 1] - distance)
    for each, left, right in zip(layer, from_left, from_right, strict=True):
        each.x = (left + right) / 2
    most = MAX_WIDTH - MARGIN
    for at in range(len(layer) - 1, -1, -1):
        limit = most - layer[at].width / 2
        if at < len(layer) - 1:
            limit = min(limit, layer[at + 1].x - _min_distance(layer[at], layer[at + 1]))
        layer[at].x = min(layer[at].x, limit)
    for at, each in enumerate(layer):
        limit = MARGIN + each.width / 2
        if at:
            limit = max(limit, layer[at - 1].x + _min_distance(layer[at - 1], each))
        each.x = max(each.x, limit)


# ----------------------------------------------------------------------------------- the drawing


def _drawn(layers: Sequence[list[_Place]], lines: Sequence[_Line]) -> str:
    places = [each for layer in layers for each in layer]
    legend_width = MARGIN + sum(len(name) * CHAR_WIDTH + 40 for name in _FILLS) + MARGIN
    width = max(max(each.x + each.width / 2 for each in places) + MARGIN, legend_width)
    height = max(each.y + each.height for each in places) + MARGIN
    scale = 1.0 if width < MAX_WIDTH + 0.5 else MAX_WIDTH / width
    shown_width, shown_height = math.floor(width * scale), math.ceil(height * scale)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{shown_width}" height="{shown_height}" '
        f'viewBox="0 0 {shown_width} {shown_height}" {_FONT} font-size="11">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#5f6368"/>'
        "</marker></defs>",
        f'<rect width="{shown_width}" height="{shown_height}" fill="#ffffff"/>',
        "<g>" if scale == 1.0 else f'<g transform="scale({scale:.4f})">',
        *_legend(),
        *(_curve(each) for each in lines),
        *(part for each in places if each.node is not None for part in _box(each)),
        "</g>",
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
    """Return the path of a line that is straight beside boxes and bends between layers."""
    first = line.places[0]
    path = f"M{first.x:.1f} {first.y + first.height:.1f}"
    for upper, lower in itertools.pairwise(line.places):
        middle = (upper.bottom + lower.y) / 2
        path += f" L{upper.x:.1f} {upper.bottom:.1f}"
        path += (
            f" C{upper.x:.1f} {middle:.1f} {lower.x:.1f} {middle:.1f} {lower.x:.1f} {lower.y:.1f}"
        )
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
        f'font-weight="bold" fill="#202124">{escape(place.shown_title)}</text>',
    ]
    if place.shown_title != place.title:
        parts.insert(1, f"<title>{escape(place.title)}</title>")
    for number, text in enumerate(place.lines):
        y = place.y + TITLE_HEIGHT + 12 + number * LINE_HEIGHT
        parts.append(
            f'<text x="{place.x:.1f}" y="{y:.1f}" text-anchor="middle" fill="#3c4043">'
            f"{escape(text)}</text>"
        )
    return parts
