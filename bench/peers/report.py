"""Reports. docs/benchmarks.json holds the last run of each part.

docs/benchmarks.md and the images in docs/images are generated from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.plots import ratios_svg, shown_ratio
from bench.peers.reasons import below_reason, far_above_reason
from bench.peers.rows import Row

DOCS = Path(__file__).resolve().parents[2] / "docs"
TITLES = {
    "startup": "Start and memory",
    "throughput": "Produce and consume",
    "latency": "Latency and small requests",
    "replication": "Three brokers",
    "transactions": "Small transactions on three brokers",
    "restart": "After a crash",
    "partitions": "Many partitions",
    "clients": "Clients for Python",
    "spark": "Spark source and sink",
}
HEAD = """\
# Benchmarks

Apache Kafka and Ottla on the same machine, loaded by the same programs in turn, several rounds, a
warming round before them. **A ratio above 1 is better for Ottla**; figures are medians of the
rounds, and [benchmarks.json](benchmarks.json) has every round. This page is written by the tool:

```text
make bench-peers                       # all of it, less than an hour on 2 cores
make bench-peers ARGS=latency          # one part
make bench-peers ARGS=--quick          # a look, nothing is written
```

Apache Kafka runs as its own script starts it (KRaft, G1, a heap of 1 GB) with its default settings;
Ottla runs with its defaults, too. Both are on one machine with the clients: what the clients spend
is missing to the brokers. `bench/peers/` has the programs.
"""


def load(docs: Path = DOCS) -> dict[str, Any]:
    path = docs / "benchmarks.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def keep(
    part: str, rows: list[Row], about: Mapping[str, str], date: str, docs: Path = DOCS
) -> None:
    """Replace the figures of a part, and generate the page again."""
    kept = load(docs)
    kept[part] = {"date": date, "machine": dict(about), "rows": [row.to_json() for row in rows]}
    (docs / "images").mkdir(parents=True, exist_ok=True)
    (docs / "benchmarks.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    write_page(kept, docs)


def write_page(kept: Mapping[str, Any], docs: Path = DOCS) -> None:
    sections = [HEAD]
    if not kept:
        sections.append("No run has been kept yet.\n")
    for part, title in TITLES.items():
        if part not in kept:
            continue
        rows = [Row(**each) for each in kept[part]["rows"]]
        picture = f"bench-{part}.svg"
        (docs / "images" / picture).write_text(ratios_svg(f"{title}: ratio to the peer", rows))
        sections += [f"\n## {title}\n", f"![{title}: ratios](images/{picture})\n"]
        sections += [*table(rows), ""]
        sections += _explained(rows)
        sections.append(_measured(kept[part]))
    (docs / "benchmarks.md").write_text("\n".join(sections))


def table(rows: list[Row]) -> list[str]:
    lines = ["| | unit | Ottla | peer | | ratio |", "|---|---|--:|---|--:|--:|"]
    for row in rows:
        ratio = shown_ratio(row.ratio)
        lines.append(
            f"| {row.name} | {row.unit} | {shown(row.our_figure)} | {row.peer} | "
            f"{shown(row.their_figure)} | {f'**{ratio}**' if row.ratio >= 1 else ratio} |"
        )
    return lines


def shown(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _explained(rows: list[Row]) -> list[str]:
    lines: list[str] = []
    for title, why in (("Below 1:", below_reason), ("Far above 1:", far_above_reason)):
        told = dict.fromkeys(text for row in rows if (text := why(row)) is not None)
        if told:
            lines += [title, "", *(f"- {text}" for text in told), ""]
    return lines


def _measured(part: Mapping[str, Any]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in part["machine"].items())
    return f"Measured {part['date']}: {facts}.\n"
