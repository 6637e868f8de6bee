"""Module attributes that are imported on first use.

A package stays cheap to import even if it exports names from expensive modules:

    __getattr__ = lazy_names(__name__, {"session": "ottla.spark.spark_session"})

`ottla` itself has its own function, because importing it loads no other module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module-level `__getattr__` for `package` (PEP 562).

    Args:
        package: Name of the package that exports the names.
        modules: Maps each name to the module that defines it.
    """

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
