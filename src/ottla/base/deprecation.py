"""Warnings about parts of the public interface that a later version will remove."""

from __future__ import annotations

import warnings


def warn_deprecated(what: str, instead: str) -> None:
    """Warn at the line that called the caller of this function.

    Args:
        what: The deprecated argument or method.
        instead: A sentence about what to use.
    """
    warnings.warn(f"{what} is deprecated. {instead}", DeprecationWarning, stacklevel=3)
