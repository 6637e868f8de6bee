"""Loading of all kernels ahead of time."""

from __future__ import annotations

from pathlib import Path


def are_compiled() -> bool:
    """Return whether numba has kept compiled kernels next to the sources."""
    return any((Path(__file__).parent / "__pycache__").glob("*.nbi"))


def warm_up() -> None:
    """Load every kernel, and compile those that are not cached.

    This takes a quarter of a second, or several seconds if this machine has not compiled the
    kernels yet. Call it in a thread; other threads continue to run.
    """
    from ottla.wire.records.columnar import decode, encode, partition  # noqa: F401
