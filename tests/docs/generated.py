"""The modules that make the documentation's generated pages; they are no package of Ottla's."""

from __future__ import annotations

import sys
from types import ModuleType

from tests.docs.blocks import ROOT


def generator(name: str) -> ModuleType:
    """Import a module of docs/generator."""
    from importlib import import_module

    if str(ROOT / "docs") not in sys.path:
        sys.path.append(str(ROOT / "docs"))
    return import_module(f"generator.{name}")
