from __future__ import annotations

import ast
import asyncio
import gc
import importlib
import inspect
import threading
import warnings
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla import AsyncConsumer, Consumer, UserError
from ottla.client.blocking import Deferred, LoopThread


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_a_deferred_coroutine_that_never_runs_leaves_nothing_behind() -> None:
    """Ctrl-C may strike before the loop has the coroutine."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Deferred(answer)
        gc.collect()


def test_a_deferred_coroutine_returns_the_result_of_the_one_it_creates() -> None:
    thread = LoopThread("test")
    try:
        assert thread.run(answer) == 42
    finally:
        thread.close()


def test_a_deferred_coroutine_can_be_cancelled_before_and_after_its_start() -> None:
    async def main() -> None:
        early = asyncio.ensure_future(Deferred(answer))
        early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early
        late = asyncio.ensure_future(Deferred(lambda: asyncio.sleep(60, 0)))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late

    asyncio.run(main())


def test_a_call_that_is_interrupted_as_it_begins_leaves_no_coroutine_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    thread = LoopThread("test")
    try:
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("error")
            patch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
            for call in (lambda: thread.run(answer), lambda: thread.call(gc.collect)):
                with pytest.raises(KeyboardInterrupt):
                    call()
            gc.collect()
        assert thread.run(answer) == 42
    finally:
        thread.close()


def test_coroutines_are_created_in_the_thread_of_the_loop() -> None:
    created_in: list[str] = []

    def create() -> Coroutine[Any, Any, int]:
        created_in.append(threading.current_thread().name)
        return answer()

    thread = LoopThread("test-loop")
    try:
        assert thread.run(create) == 42
    finally:
        thread.close()
    assert created_in == ["test-loop"]


def test_a_blocking_call_from_the_loops_own_thread_is_refused() -> None:
    thread = LoopThread("test")

    async def call_back() -> None:
        thread.run(answer)

    try:
        with pytest.raises(UserError, match="must not call blocking methods"):
            thread.run(call_back)
    finally:
        thread.close()


def test_a_blocking_method_has_the_docstring_of_its_twin_without_await() -> None:
    assert "await consumer.commit(" in (AsyncConsumer.commit.__doc__ or "")
    assert "await" not in (Consumer.commit.__doc__ or "await")
    assert "consumer.commit(" in (Consumer.commit.__doc__ or "")


@pytest.mark.parametrize("module", ["admin.admin", "consumer.consumer", "producer.producer"])
def test_a_blocking_client_uses_no_private_attribute_of_another_object(module: str) -> None:
    source = inspect.getsource(importlib.import_module(f"ottla.client.{module}"))
    foreign = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and ast.unparse(node.value) != "self"
    ]
    assert foreign == []
