"""Waiting for whole batches, which may be split before they are acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from ottla.client.producer.batch import ProducerBatch


def final_batches(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """Replace each batch that was split by its parts, recursively and in order."""
    found: list[ProducerBatch] = []
    for batch in batches:
        if batch.parts is None:
            found.append(batch)
        else:
            found += final_batches([part for _, part in batch.parts])
    return found


def call_when_complete(batches: list[ProducerBatch], callback: Callable[[], object]) -> None:
    """Call back when every record is acknowledged or has failed.

    If nothing is pending, the callback runs at once, otherwise in the producer's thread."""
    while True:
        waiting = [batch for batch in final_batches(batches) if not batch.is_done]
        if not waiting:
            callback()
            return
        # The last record of the last batch is likely to complete last.
        last = waiting[-1]
        if last.add_callback(
            max(last.count - 1, 0), partial(call_when_complete, waiting, callback)
        ):
            return


async def wait_until_complete(batches: list[ProducerBatch]) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    call_when_complete(batches, lambda: call_soon(loop, wake))
    await ended


def call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Schedule a callback on a loop, from any thread."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        pass  # the loop is closed, so there is nothing to wake
