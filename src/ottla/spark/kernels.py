"""Compilation of the kernels that tasks need, before they need them."""

from __future__ import annotations

import threading


def compile_in_background() -> None:
    """Compile the kernels in a thread, unless this machine has done it.

    The processes of the first tasks would otherwise do it all at the same time."""
    from ottla.wire.records.columnar.warm_up import are_compiled, warm_up

    if not are_compiled():
        threading.Thread(target=warm_up, name="kernels", daemon=True).start()
