"""Kernels are compiled ahead of time only where this has not been done."""

from __future__ import annotations

import threading

import pytest

from ottla.spark.kernels import compile_in_background
from ottla.wire.records.columnar import warm_up


@pytest.mark.parametrize("are_compiled", [True, False])
def test_kernels_are_compiled_in_a_thread_unless_they_are(
    are_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = threading.Event()
    monkeypatch.setattr(warm_up, "are_compiled", lambda: are_compiled)
    monkeypatch.setattr(warm_up, "warm_up", called.set)
    compile_in_background()
    for thread in threading.enumerate():
        if thread.name == "kernels":
            thread.join()
    assert called.is_set() != are_compiled
