"""The import graph of Ottla, and its drawing for ARCHITECTURE.md.

    python docs/generator/import_graph.py

writes `docs/images/imports.svg`: one box per package in the order of the layers, with an arrow from
each package to the packages that it imports. An arrow is left out where others lead the same way.
Every import counts, including those under `TYPE_CHECKING` and inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
DRAWING = ROOT / "docs" / "images" / "imports.svg"

LAYERS: tuple[dict[str, tuple[int, str]], ...] = (
    {"cli": (190, "commands"), "testing": (620, "brokers for tests")},
    {"connect": (280, "connectors, workers")},
    {"streams": (100, "topologies")},
    {"spark": (190, "topics as Spark tables"), "broker": (530, "server, handlers")},
    {"client": (150, "producer, consumer, admin")},
    {
        "net": (150, "connections"),
        "storage": (340, "logs on disk"),
        "core": (530, "decisions"),
        "metadata": (720, "cluster state"),
    },
    {"wire": (340, "messages, record batches")},
    {"base": (530, "values, errors, configuration")},
)
"""The packages from top to bottom, with the horizontal centre and the text of each box. A package
imports only packages below it."""

_WIDTH, _ROW, _BOX_WIDTH, _BOX_HEIGHT = 860, 84, 186, 46
_STYLE = """
      .box { fill: #e8f1f8; stroke: #5b8fb9; stroke-width: 1.5; rx: 8 }
      .name { font-weight: 600; fill: #22313a }
      .small { font-size: 12px; fill: #46555e }
      .line { stroke: #7a909b; stroke-width: 1.5; fill: none; marker-end: url(#tip) }
"""


def modules() -> dict[str, Path]:
    """Return the file of each module of `ottla`, by dotted name."""
    found = {}
    for path in sorted((SOURCE / "ottla").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def graph() -> dict[str, set[str]]:
    """Return the modules of `ottla` that each module imports."""
    known = modules()
    return {
        name: {each for each in _imported(path, known) if each != name}
        for name, path in known.items()
    }


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in known else node.module


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""
    reached = {module: _reachable(module, imports) for module in imports}
    found = {
        tuple(sorted(each for each in reached[module] if module in reached[each]))
        for module in imports
        if module in reached[module]
    }
    return [list(group) for group in sorted(found)]


def _reachable(module: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that a module imports, directly or through others."""
    found: set[str] = set()
    pending = [module]
    while pending:
        for each in imports[pending.pop()] - found:
            found.add(each)
            pending.append(each)
    return found


def package_imports() -> set[tuple[str, str]]:
    """Return the pairs of packages of which the first imports the second."""
    pairs = {
        (_package(importer), _package(imported))
        for importer, targets in graph().items()
        for imported in targets
    }
    return {
        (importer, imported)
        for importer, imported in pairs
        if importer and imported and importer != imported
    }


def _package(module: str) -> str:
    """Return the package below `ottla`, or '' for the modules directly in it."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (SOURCE / "ottla" / parts[1]).is_dir() else ""


def without_detours(imports: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the imports between packages that no chain of other imports implies."""
    direct: dict[str, set[str]] = {}
    for importer, imported in imports:
        direct.setdefault(importer, set()).add(imported)
    reached: dict[str, set[str]] = {}
    for package in reversed([name for row in LAYERS for name in row]):
        targets = direct.get(package, set())
        reached[package] = targets.union(*(reached[each] for each in targets))
    return {
        (importer, imported)
        for importer, imported in imports
        if not any(imported in reached[between] for between in direct[importer])
    }


def svg() -> str:
    """Return the drawing."""
    places = {
        name: (x, 24 + _BOX_HEIGHT // 2 + index * _ROW)
        for index, row in enumerate(LAYERS)
        for name, (x, _) in row.items()
    }
    texts = {name: text for row in LAYERS for name, (_, text) in row.items()}
    lines = [
        _arrow(places[importer], places[imported])
        for importer, imported in sorted(without_detours(package_imports()))
    ]
    boxes = [_box(name, texts[name], *place) for name, place in places.items()]
    height = len(LAYERS) * _ROW + 10
    title = "Packages of Ottla and what they import"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="system-ui, sans-serif" font-size="14">',
            f"  <title>{escape(title)}</title>",
            '  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#4a6572"/></marker>',
            f"    <style>{_STYLE}    </style></defs>",
            f'  <rect width="{_WIDTH}" height="{height}" rx="12" fill="#ffffff"/>',
            *lines,
            *boxes,
            "</svg>",
            "",
        ]
    )


def _box(name: str, text: str, x: int, y: int) -> str:
    return (
        f'  <g text-anchor="middle"><rect class="box" x="{x - _BOX_WIDTH // 2}" '
        f'y="{y - _BOX_HEIGHT // 2}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}"/>'
        f'<text class="name" x="{x}" y="{y - 2}">{name}</text>'
        f'<text class="small" x="{x}" y="{y + 15}">{text}</text></g>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Draw an arrow from the bottom of one box to the top of another."""
    (x1, y1), (x2, y2) = start, end
    y1, y2 = y1 + _BOX_HEIGHT // 2, y2 - _BOX_HEIGHT // 2
    middle = (y2 - y1) // 2
    curve = f"M{x1} {y1}C{x1} {y1 + middle} {x2} {y2 - middle} {x2} {y2}"
    return f'  <path class="line" d="{curve}"/>'


if __name__ == "__main__":
    DRAWING.write_text(svg(), encoding="utf-8")
