"""Bar charts of ratios, in SVG, on a logarithmic scale: 2 is as far from 1 as 1/2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.peers.rows import Row

WIDTH, LABELS, RIGHT = 900, 430, 70
BAR, GAP, TOP, BOTTOM = 14, 6, 46, 30
BETTER, WORSE = "#2a9d6f", "#d9822b"
LEAST_SPAN = 4.0


def ratios_svg(title: str, rows: Sequence[Row]) -> str:
    span = max(LEAST_SPAN, *(max(row.ratio, 1 / row.ratio) for row in rows))
    span = 2 ** math.ceil(math.log2(span))
    height = TOP + len(rows) * (BAR + GAP) + BOTTOM
    room = WIDTH - LABELS - RIGHT

    def x(ratio: float) -> float:
        return LABELS + room * (math.log2(ratio) / math.log2(span) + 1) / 2

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="15" font-weight="600" fill="#222">{escape(title)}</text>',
    ]
    for power in _powers(span):
        at, bottom = x(2.0**power), height - BOTTOM
        color = "#888" if power == 0 else "#e4e4e4"
        label = f"{2**power}×" if power >= 0 else f"1/{2**-power}"
        lines.append(f'<path d="M{at:.1f} {TOP - 6}V{bottom}" stroke="{color}"/>')
        lines.append(
            f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#666">{label}</text>'
        )
    for number, row in enumerate(rows):
        y = TOP + number * (BAR + GAP)
        start, end = sorted((x(1), x(row.ratio)))
        color = BETTER if row.ratio >= 1 else WORSE
        lines.append(
            f'<text x="{LABELS - 10}" y="{y + 11}" text-anchor="end" fill="#333">'
            f"{escape(row.name)}</text>"
            f'<rect x="{start:.1f}" y="{y}" width="{max(1, end - start):.1f}" height="{BAR}" '
            f'rx="2" fill="{color}"/>'
            f'<text x="{end + 5:.1f}" y="{y + 11}" fill="#333">{format_ratio(row.ratio)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def format_ratio(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.1f}" if ratio >= 3 else f"{ratio:.2f}"


def _powers(span: float) -> range:
    most = round(math.log2(span))
    step = max(1, most // 4)
    return range(-most // step * step, most + 1, step)
