"""Functions by their names, for connectors that are nothing more."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def function_of(name: str) -> Callable[..., Any]:
    """Raises ValueError, a sentence."""
    module, colon, attribute = name.partition(":")
    if not colon:
        module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"there is no function {name}: {error}") from None
    if not callable(found):
        raise ValueError(f"{name} is no function")
    made: Callable[..., Any] = found
    return made
