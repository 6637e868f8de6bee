"""Lookup of the functions that function connectors call."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def function_of(name: str) -> Callable[..., Any]:
    """Return a function by name; raise ValueError if it does not exist."""
    module, colon, attribute = name.partition(":")
    if not colon:
        module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"function {name} does not exist: {error}") from None
    if not callable(found):
        raise ValueError(f"{name} is not a function")
    made: Callable[..., Any] = found
    return made
