"""Access to the modules that generate pages of the documentation; no package contains them."""

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
