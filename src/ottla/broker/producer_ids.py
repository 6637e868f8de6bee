"""Producer IDs for idempotent producers, taken from blocks that brokers reserve in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator


class ProducerIds:
    """An allocator of producer IDs; it reserves a new block when the current one is used up."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block: Iterator[int] = iter(())
        self._refilling = asyncio.Lock()

    async def next(self) -> int:
        """Return an unused producer ID. Raises KafkaError if no block can be reserved."""
        producer_id = next(self._block, None)
        while producer_id is None:
            async with self._refilling:
                producer_id = next(self._block, None)
                if producer_id is None:
                    self._block = iter(await self._allocate())
                    producer_id = next(self._block, None)
        return producer_id
