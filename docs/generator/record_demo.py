"""Recorder behind `make recording`: runs `ottla demo` and draws it as an animated SVG.

The demo runs in a pseudo-terminal, and docs/images/demo.svg shows exactly its output; only pauses
are shortened. A line that several frames share is drawn once and referenced."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import time
from html import escape
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import NamedTuple

COLUMNS, ROWS = 100, 42
CHARACTER, LINE = 7.8, 17
LONGEST_PAUSE_S, SHORTEST_S, LAST_S = 0.7, 0.25, 8.0
TIMEOUT_S = 900
_SPINNER = re.compile("[\u2801-\u28ff]")
"""Spinner characters. A fixed one replaces them, or most frames would differ in nothing else."""
TARGET = Path(__file__).resolve().parents[1] / "images" / "demo.svg"
COLORS = {
    "default": "#d7dde2", "red": "#f07178", "green": "#6bd49a", "brown": "#e6b450",
    "yellow": "#e6b450", "blue": "#73b8ff", "magenta": "#d2a6ff", "cyan": "#95e6cb",
    "black": "#5c6773", "white": "#ffffff",
}  # fmt: skip


class Frame(NamedTuple):
    at_s: float
    lines: tuple[str, ...]
    """The lines of the screen, each as SVG."""


def record(command: list[str]) -> list[Frame]:
    import fcntl
    import termios

    import pyte

    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    frames, began, looked_at_s = [], time.monotonic(), 0.0
    lines = [""] * ROWS
    is_over = False
    while not is_over and time.monotonic() - began < TIMEOUT_S:
        if select.select([leader], [], [], 0.1)[0]:
            data = _read(leader)
            is_over = not data
            stream.feed(data)
        at_s = time.monotonic() - began
        if at_s - looked_at_s < SHORTEST_S and not is_over:
            continue  # too short to be seen, and rendering would slow down the demo
        looked_at_s = at_s
        for row in screen.dirty:
            lines[row] = _line(screen, row)
        screen.dirty.clear()
        if not frames or frames[-1].lines != tuple(lines):
            frames.append(Frame(at_s, tuple(lines)))
    code = process.wait(30)
    if code:
        raise SystemExit(f"{' '.join(command)} ended with exit code {code}")
    return frames


def _read(leader: int) -> bytes:
    """Read output of the terminal, or return b'' if the other end is closed."""
    try:
        return os.read(leader, 65_536)
    except OSError:
        return b""


def _line(screen: object, row: int) -> str:
    """Return a line as one tspan per run of equal style, or '' if it is empty."""
    cells = screen.buffer[row]  # type: ignore[attr-defined]
    runs: list[tuple[int, str, str]] = []
    for column in range(COLUMNS):
        cell = cells[column]
        color = COLORS.get(cell.fg, f"#{cell.fg}" if len(cell.fg) == 6 else COLORS["default"])
        style = f'fill="{color}"' + (' font-weight="600"' if cell.bold else "")
        if runs and runs[-1][2] == style:
            start, text, _ = runs[-1]
            runs[-1] = (start, text + cell.data, style)
        else:
            runs.append((column, cell.data, style))
    runs = [(start, _SPINNER.sub("⠿", text), style) for start, text, style in runs]
    return "".join(
        f'<tspan x="{start * CHARACTER:.1f}" {style}>{_kept(text)}</tspan>'
        for start, text, style in runs
        if text.strip()
    )


def _kept(text: str) -> str:
    """Escape the text and keep its spaces, which a browser would collapse."""
    return escape(text.rstrip()).replace(" ", "\N{NO-BREAK SPACE}")


def draw(frames: list[Frame], title: str) -> str:
    """Return an SVG that stacks the frames vertically and moves from one to the next."""
    height = _used_rows(frames) * LINE + 20
    width = COLUMNS * CHARACTER + 30
    ids: dict[str, str] = {}
    for frame in frames:
        for line in filter(None, frame.lines):
            ids.setdefault(line, f"l{len(ids)}")
    pauses = [
        min(max(after.at_s - before.at_s, SHORTEST_S), LONGEST_PAUSE_S)
        for before, after in pairwise(frames)
    ] + [LAST_S]
    total, elapsed, steps = sum(pauses), 0.0, []
    for number, pause in enumerate(pauses):
        steps.append(f"{elapsed / total * 100:.3f}%{{transform:translateY({-number * height}px)}}")
        elapsed += pause
    steps.append(f"100%{{transform:translateY({-(len(frames) - 1) * height}px)}}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height + 34}" '
        "font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" "
        'font-size="13">',
        f"<title>{escape(title)}</title>",
        f"<style>@keyframes play{{{''.join(steps)}}}"
        f".film{{transform:translateY({-(len(frames) - 1) * height}px);"
        f"animation:play {total:.1f}s step-end infinite}}</style>",
        f'<rect width="{width:.0f}" height="{height + 34}" rx="8" fill="#1b2229"/>',
        '<circle cx="18" cy="17" r="5" fill="#f07178"/><circle cx="36" cy="17" r="5" '
        'fill="#e6b450"/><circle cx="54" cy="17" r="5" fill="#6bd49a"/>',
        f'<text x="76" y="21" fill="#8a949c">{escape(title)}</text>',
        "<defs>",
        *(f'<text id="{id}">{line}</text>' for line, id in ids.items()),
        "</defs>",
        f'<svg x="14" y="34" width="{width - 14:.0f}" height="{height}"><g class="film">',
    ]
    for number, frame in enumerate(frames):
        for row, line in enumerate(frame.lines):
            if line:
                y = number * height + row * LINE + 15
                lines.append(f'<use href="#{ids[line]}" y="{y}"/>')
    return "\n".join([*lines, "</g></svg>", "</svg>", ""])


def _used_rows(frames: list[Frame]) -> int:
    return max(row + 1 for frame in frames for row, line in enumerate(frame.lines) if line)


def main() -> None:
    arguments = sys.argv[1:]
    recorded = record([sys.executable, "-m", "ottla", "demo", *arguments])
    frames = list(dropwhile(lambda frame: not any(frame.lines), recorded))
    TARGET.write_text(draw(frames, " ".join(["$ ottla demo", *arguments])))
    print(f"{len(frames)} frames in {TARGET}")


if __name__ == "__main__":
    main()
