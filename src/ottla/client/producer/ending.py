"""Waiting for whole batches, which may be split on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from ottla.client.producer.batch import ProducerBatch


def ends(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """What became of batches that were split, in their order."""
    found: list[ProducerBatch] = []
    for batch in batches:
        if batch.parts is None:
            found.append(batch)
        else:
            found += ends([part for _, part in batch.parts])
    return found


def when_ended(batches: list[ProducerBatch], callback: Callable[[], object]) -> None:
    """Call back when the fate of every record is known: at once, or in the producer's thread."""
    while True:
        waiting = [batch for batch in ends(batches) if not batch.is_done]
        if not waiting:
            callback()
            return
        # The last record of the last batch is the likeliest to be last of all.
        last = waiting[-1]
        if last.add_callback(max(last.count - 1, 0), partial(when_ended, waiting, callback)):
            return


async def all_ended(batches: list[ProducerBatch]) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    when_ended(batches, lambda: call_soon(loop, wake))
    await ended


def call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """From any thread."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        pass  # the loop was closed: nobody waits any more
