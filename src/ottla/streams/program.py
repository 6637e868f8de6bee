"""Programs that build an `App` and may call its `run`, for `ottla run app.py`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ottla.base.errors import UserError
from ottla.streams.app import App
from ottla.streams.launch import Launch, Launchable, launching


def run_program(path: str, arguments: Sequence[str], launch: Launch) -> Sequence[Launchable]:
    """Run a program as `python PATH ARGUMENTS…` would.

    If the program builds one application and runs none, run that one.

    Returns:
        The applications whose `run` was called.
    """
    names = _execute(path, arguments, launch)
    if launch.started:
        return launch.started
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
