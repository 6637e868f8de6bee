from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

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
        assert thread.run(Deferred(answer)) == 42
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
