"""`python -m bench.peers [PART…] [--quick] [--no-write]`: measure, print, and write the page.

The exit code is 0 even if Java, Maven or Maven Central is unavailable; a message reports it.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import sys
import time

from bench.measure import touch_memory
from bench.peers import machine, report
from bench.peers.scale import FULL, QUICK
from compat import jars

WARM_BYTES = 4_000_000_000


def main() -> int:
    arguments = _parser().parse_args()
    unknown = set(arguments.parts) - set(report.TITLES)
    if unknown:
        print(f"unknown parts: {', '.join(sorted(unknown))}; use any of {', '.join(report.TITLES)}")
        return 2
    try:
        jars.java_command(), jars.directory()
    except jars.NotAvailable as reason:
        print(f"skipped: {reason}")
        return 0
    scale = QUICK if arguments.quick else FULL
    about = machine.facts()
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    if not arguments.quick:
        touch_memory(WARM_BYTES)
    write = not (arguments.quick or arguments.no_write)
    failed = 0
    for part in arguments.parts or report.TITLES:
        failed += not _measure(part, scale, about, write=write)
    return 1 if failed else 0


def _measure(part: str, scale: object, about: dict[str, str], *, write: bool) -> bool:
    """Measure one part. A failure does not stop the other parts."""
    began = time.monotonic()
    print(f"\n## {report.TITLES[part]}", flush=True)
    try:
        rows = importlib.import_module(f"bench.peers.{part}").run(scale)
    except Exception as error:
        print(f"FAILED: {type(error).__name__}: {error}", flush=True)
        return False
    print("\n".join(report.table(rows)))
    print(f"({time.monotonic() - began:.0f} s)", flush=True)
    if write:
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
        report.save(part, rows, about, date)
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-peers ARGS=…", description=__doc__)
    titles = ", ".join(report.TITLES)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"Parts to run: {titles}.")
    parser.add_argument("--quick", action="store_true", help="Do a short run, write nothing.")
    parser.add_argument("--no-write", action="store_true", help="Do not update docs/.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
