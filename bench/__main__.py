"""Entry point of `python -m bench [NAME…] [--quick]`: run benchmarks and compare them to budgets.

With --quick, those that can do little work do so, to see that everything runs: see QUICK_NAMES."""

from __future__ import annotations

import importlib
import os
import sys

from bench.measure import Figure

NAMES = (
    "startup",
    "throughput",
    "connections",
    "partitions",
    "codec",
    "authorizer",
    "revocation",
    "tenants",
    "client_produce",
    "client_consume",
    "transactions",
    "groups",
    "cluster",
    "spark",
    "streams",
    "realtime",
    "capture",
    "connect",
)

QUICK_NAMES = ("realtime",)


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    names = [each for each in arguments if each != "--quick"]
    if quick and set(names or NAMES) - set(QUICK_NAMES):
        print(f"--quick is for: {', '.join(QUICK_NAMES)}")
        return 2
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"unknown benchmarks: {', '.join(sorted(unknown))}; use any of {', '.join(NAMES)}")
        return 2
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    missed = 0
    for name in names or NAMES:
        module = importlib.import_module(f"bench.{name}")
        figures = []
        for figure in module.run(quick=True) if quick else module.run():
            missed += not figure.is_within
            print(_line(figure), flush=True)
            figures.append(figure)
        if hasattr(module, "table"):
            print(f"\n{module.table(figures)}\n", flush=True)
    print(f"{missed} budgets missed" if missed else "all budgets met")
    return 1 if missed else 0


def _line(figure: Figure) -> str:
    budget = ""
    if figure.budget is not None:
        sign = "≥" if figure.at_least else "≤"
        verdict = "" if figure.is_within else "  MISSED"
        budget = f"  (budget {sign} {figure.budget:g}){verdict}"
    return f"{figure.name:52} {figure.value:12.2f} {figure.unit}{budget}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
