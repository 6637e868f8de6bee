"""Settings of `ottla run app.py --master …`, which override those of the program.

They are in effect while the program runs. If applications are only to be built (`--explain` and
similar), `App.run` returns at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


class Launchable(Protocol):
    """An application as the launcher sees it."""

    master: str | None
    bootstrap: str
    state_dir: str
    spark_settings: dict[str, str]

    def run(self) -> None: ...
    def explain(self) -> str: ...
    def topology(self) -> str: ...
    def picture(self) -> str: ...


@dataclass
class Launch:
    master: str | None = None
    bootstrap: str | None = None
    state_dir: str | None = None
    http: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    only_builds: bool = False
    started: list[Launchable] = field(default_factory=list)
    """Applications whose `run` was called."""

    def apply_to(self, app: Launchable) -> None:
        """Override the application's settings with those of the command line."""
        if self.master is not None:
            app.master = self.master
        if self.bootstrap is not None:
            app.bootstrap = self.bootstrap
        if self.state_dir is not None:
            app.state_dir = self.state_dir
        app.spark_settings.update(self.spark)


_current: Launch | None = None


def current() -> Launch | None:
    return _current


@contextmanager
def launching(launch: Launch) -> Iterator[None]:
    global _current
    before, _current = _current, launch
    try:
        yield
    finally:
        _current = before
