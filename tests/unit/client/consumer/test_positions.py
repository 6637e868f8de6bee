"""Tests of looking up the positions of partitions."""

from __future__ import annotations

import asyncio
import gc
import warnings

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.consumer.positions import _collect_failure


def test_what_is_cancelled_before_it_begins_leaves_no_coroutine_behind() -> None:
    began = []

    async def look_up(number: int) -> None:
        began.append(number)

    async def cancel_at_once() -> None:
        task = asyncio.create_task(_collect_failure([], look_up, 1))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(cancel_at_once())
        gc.collect()
    assert not began
    assert not warned


def test_a_failure_of_kafkas_is_kept_for_later() -> None:
    failures: list[KafkaError] = []

    async def fail() -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    asyncio.run(_collect_failure(failures, fail))
    assert [error.code for error in failures] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
