"""The page of the programs in examples/, each with its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
HEAD = """\
# Examples

Streams applications, in the folder `examples/` of the repository. Each takes the address of a
broker as its argument, and uses `localhost:9092` without one. Property files of connectors are in
`examples/connect/`; [Connectors](connectors.md) describes what each does. A pipeline is in
`examples/pipeline/`; see [Define a declarative pipeline](howto/pipelines.md).
"""


def page() -> str:
    lines = [HEAD]
    for path in sorted(EXAMPLES.glob("*.py")):
        text = path.read_text()
        words = ast.get_docstring(ast.parse(text)) or ""
        about, _, command = words.rpartition("\n\n")
        code = text.partition('"""\n')[2].strip()
        lines += [f"\n## {_title(path)}\n", about, "", "```console", f"$ {command}", "```", ""]
        lines += ["```python", code, "```"]
    return "\n".join(lines) + "\n"


def anchor(path: str) -> str:
    """Return the anchor of a file of examples/ on the page, or '' if it has no section."""
    file = ROOT / path
    return f"#{_title(file).lower().replace(' ', '-')}" if file.suffix == ".py" else ""


def _title(path: Path) -> str:
    return path.stem.replace("_", " ").capitalize()
