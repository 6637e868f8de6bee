"""All kernels at once, compiled or loaded before they are needed."""

from __future__ import annotations


def warm_up() -> None:
    """Load every kernel: a quarter of a second, or some seconds if this machine has not compiled
    them yet. Call it in a thread; others may run meanwhile."""
    from ottla.wire.records.columnar import decode, encode, partition  # noqa: F401
