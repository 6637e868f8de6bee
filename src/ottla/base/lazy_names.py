"""Names of a package that are imported when they are first used.

Importing a package stays light, although its face has names from heavy modules:

    __getattr__ = lazy_names(__name__, {"session": "ottla.spark.spark_session"})

`ottla` itself has a function of its own, because importing it loads no other module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module-level `__getattr__` for `package` (PEP 562).

    Args:
        package: The package that has the names.
        modules: Name to the module that defines it.
    """

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
