"""The page that lists the decisions."""

from __future__ import annotations

from pathlib import Path

DECISIONS = Path(__file__).resolve().parents[1] / "decisions"
HEAD = """\
# Decisions

Choices that are hard to undo, each with what was known when it was made.
"""


def page() -> str:
    lines = [HEAD]
    for path in sorted(DECISIONS.glob("0*.md")):
        title = path.read_text().partition("\n")[0].lstrip("# ").strip()
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"
