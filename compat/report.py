"""Runner for checks, one after another, and the report of their results.

A check is a function whose docstring begins with a line that states what must hold. It raises
AssertionError if that does not hold, and Skipped if it cannot be checked.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TypeVar

Subject = TypeVar("Subject")


class Skipped(Exception):
    """A check cannot run; the message says what is missing."""


@dataclass
class Report:
    only: str = ""
    """Text that the group or the title of a check must contain; empty runs all."""
    passed: int = 0
    skipped: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    _output_lock: Lock = field(default_factory=Lock)
    """Lock for the output: checks may run in several threads."""

    def wants(self, group: str, checks: Iterable[Callable[..., None]]) -> bool:
        return any(self._is_wanted(group, check) for check in checks)

    def run(
        self, group: str, subject: Subject, checks: Iterable[Callable[[Subject], None]]
    ) -> None:
        for check in checks:
            if self._is_wanted(group, check):
                self._run_one(f"{group}: {_title(check)}", partial(check, subject))

    def run_setup(self, group: str, setup: Callable[[], Subject]) -> Subject | None:
        """Return the subject of a group of checks, or None after reporting a failure."""
        try:
            return setup()
        except Exception:
            self._failed(f"{group}: setup", time.monotonic())
            return None

    def closing_line(self) -> str:
        return f"{self.passed} passed, {len(self.failures)} failed, {self.skipped} skipped"

    def _is_wanted(self, group: str, check: Callable[..., None]) -> bool:
        return self.only in f"{group}: {_title(check)}"

    def _run_one(self, title: str, check: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            check()
        except Skipped as reason:
            with self._output_lock:
                self.skipped += 1
                print(f"skipped  {title}: {reason}", flush=True)
        except Exception:
            self._failed(title, began)
        else:
            with self._output_lock:
                self.passed += 1
                print(f"passed   {title} ({time.monotonic() - began:.1f} s)", flush=True)

    def _failed(self, title: str, began: float) -> None:
        trace = traceback.format_exc()
        with self._output_lock:
            self.failures.append((title, trace))
            print(f"FAILED   {title} ({time.monotonic() - began:.1f} s)", flush=True)


def _title(check: Callable[..., None]) -> str:
    assert check.__doc__ is not None, f"{check.__name__} needs a docstring that says what it checks"
    return check.__doc__.strip().splitlines()[0].rstrip(".")
