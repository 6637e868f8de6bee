"""Launcher of programs, for `ottla run app.py --master …`.

A program builds an `App` and may call its `run`. The settings of the command line override those of
the program. If the application is only to be built (`--explain` and similar), `run` returns at
once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError

if TYPE_CHECKING:
    from ottla.streams.app import App


@dataclass
class Launch:
    master: str | None = None
    bootstrap: str | None = None
    state_dir: str | None = None
    http: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    only_builds: bool = False
    started: list[App] = field(default_factory=list)
    """Applications whose `run` was called."""

    def apply_to(self, app: App) -> None:
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


def run_program(path: str, arguments: Sequence[str], launch: Launch) -> list[App]:
    """Run a program as `python PATH ARGUMENTS…` would.

    If the program builds one application and runs none, run that one.

    Returns:
        The applications whose `run` was called.
    """
    names = _execute(path, arguments, launch)
    if launch.started:
        return launch.started
    from ottla.streams.app import App

    found: list[App] = []
    for each in names.values():
        if isinstance(each, App) and not any(each is one for one in found):
            found.append(each)
    if len(found) != 1:
        many = f"creates {len(found)} and runs none of them" if found else "creates none"
        raise UserError(f"{path} must create an App and call its run(), but it {many}.")
    with launching(launch):
        found[0].run()
    return found


def _execute(path: str, arguments: Sequence[str], launch: Launch) -> dict[str, Any]:
    try:
        source = Path(path).read_bytes()
        code = compile(source, path, "exec")
    except OSError as error:
        raise UserError(f"Cannot read {path}: {(error.strerror or str(error)).lower()}.") from None
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{path} is not a valid Python program: {error}.") from None
    # The module must be __main__, and stay so: cloudpickle then sends its functions to Spark's
    # workers by value.
    module = ModuleType("__main__")
    module.__file__ = path
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    with launching(launch):
        exec(code, module.__dict__)
    return module.__dict__
