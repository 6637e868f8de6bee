"""Tests of pending broker work when a replica changes its role in the meantime."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.forwarding import forwarding
from ottla.broker.replica_fetcher import ReplicaFetcher, _FollowedPartition
from ottla.broker.replication import Replication
from ottla.broker.replication_throttle import ReplicationThrottle
from ottla.broker.truncation import Truncations
from ottla.wire.compile import Message

EPOCH = 3


class FakeLog:
    def __init__(self, failure: OSError | None = None) -> None:
        self.log_end_offset, self.recovery_point = 10, 10
        self.log_start_offset = 0
        self.directory = "/data/t-0"
        self.is_truncating = False
        self.cut: list[int] = []
        self.fs = SimpleNamespace(remove=lambda path: None)
        self._failure = failure

    def begin_truncation(self) -> None:
        self.is_truncating = True

    def end_truncation(self) -> None:
        self.is_truncating = False

    def end_after_truncation(self, offset: int) -> int:
        return offset

    def truncate_to(self, offset: int, now_ms: int) -> None:
        assert self.is_truncating
        if self._failure is not None:
            raise self._failure
        self.cut.append(offset)

    truncate_fully = truncate_to


class FakePartition:
    def __init__(self, log: FakeLog) -> None:
        self.key = TopicPartition("t", 0)
        self.log = log
        self.is_leader = False
        self.leader_epoch = EPOCH
        self.high_watermark = 0
        self.offline_reason: str | None = None

    def truncated(self) -> None:
        """Ignore the notification that the log has been truncated."""

    def go_offline(self, reason: str) -> None:
        self.offline_reason = reason


class Followers:
    """Fetcher of one partition whose role may change while a checkpoint is written."""

    def __init__(
        self, *, becomes_leader: bool = False, failure: OSError | None = None, full: bool = False
    ) -> None:
        self.log = FakeLog(failure)
        self.partition: Any = FakePartition(self.log)
        self.over: list[bool] = []

        async def write_checkpoints() -> None:
            assert self.log.recovery_point <= 4
            self.partition.is_leader = becomes_leader
            if full:
                raise OSError(errno.ENOSPC, "no room")

        async def run_blocking(work: Callable[[], Any]) -> Any:
            return work()

        logs = SimpleNamespace(
            write_checkpoints=write_checkpoints, disk_watch=SimpleNamespace(rejecting=set())
        )
        clock = SimpleNamespace(time_ms=lambda: 0, monotonic=lambda: 0.0)
        config = SimpleNamespace(
            replica_fetch_backoff_ms=100, follower_replication_throttled_rate=1
        )
        broker: Any = SimpleNamespace(
            logs=logs, clock=clock, config=config, node_id=1, run_blocking=run_blocking
        )
        truncations = Truncations(broker, lambda _: self.over.append(self.log.is_truncating))
        self.fetcher = ReplicaFetcher(
            broker, 2, lambda: 0, truncations, ReplicationThrottle(broker)
        )
        self.followed = _FollowedPartition(self.partition, bytes(16))
        self.fetcher._followed[self.partition.key] = self.followed

    async def diverge(self) -> None:
        """Deliver a fetch response in which the leader reports divergence at offset 4."""
        self.log.epochs = SimpleNamespace(  # type: ignore[attr-defined]
            end_offset_for=lambda epoch, end: (epoch, 4)
        )
        data = SimpleNamespace(
            error_code=0, diverging_epoch=SimpleNamespace(epoch=EPOCH - 1, end_offset=4)
        )
        await self.fetcher._process(self.followed, data, EPOCH)


@pytest.mark.parametrize("becomes_leader", [False, True])
@pytest.mark.parametrize("how", ["_truncate", "_truncate_fully"])
def test_a_log_is_cut_only_while_it_follows(how: str, becomes_leader: bool) -> None:
    async def scenario() -> list[int]:
        followers = Followers(becomes_leader=becomes_leader)
        await getattr(followers.fetcher, how)(followers.followed, EPOCH, 4)
        return followers.log.cut

    assert asyncio.run(scenario()) == ([] if becomes_leader else [4])


def test_a_role_that_comes_while_the_log_is_cut_is_taken_afterwards() -> None:
    async def scenario() -> None:
        followers = Followers()
        await followers.diverge()
        assert followers.log.cut == [4]
        assert followers.over == [False], "notified once, when the log is complete"
        replication: Any = Replication(followers.fetcher._broker, lambda: True)
        followers.log.is_truncating = True
        # The role is ignored during truncation; otherwise, None would raise.
        replication.apply_role(followers.partition, None, None)

    asyncio.run(scenario())


def test_a_log_that_cannot_be_cut_is_offline_and_asks_for_nothing() -> None:
    async def scenario() -> None:
        followers = Followers(failure=OSError(errno.EIO, "broken"))
        await followers.diverge()
        assert followers.partition.offline_reason is not None
        assert "broken" in followers.partition.offline_reason
        assert not followers.log.is_truncating
        assert followers.over == [False]
        followers.followed.not_before = 0.0
        async with asyncio.timeout(30):
            # This would try to connect if the partition were still followed.
            await followers.fetcher._once()

    asyncio.run(scenario())


def test_a_full_disk_before_the_log_is_cut_changes_nothing() -> None:
    async def scenario() -> None:
        followers = Followers(full=True)
        await followers.diverge()
        assert followers.partition.offline_reason is None
        assert followers.log.cut == []
        assert followers.followed.not_before > 0, "it is tried again"

    asyncio.run(scenario())


def decoded(fields: dict[str, Any]) -> Message:
    """Return the message that the codec would decode from the encoded fields."""
    message = Message()
    for name, value in fields.items():
        is_array = isinstance(value, list)
        setattr(message, name, [decoded(each) for each in value] if is_array else value)
    return message


NOT_CONTROLLER = {"topics": [{"name": "t", "error_code": 41}]}
CREATED = {"topics": [{"name": "t", "error_code": 0}]}
IN_PART = {"topics": [{"name": "t", "error_code": 41}, {"name": "u", "error_code": 0}]}


@pytest.mark.parametrize("is_controller", [True, False])
@pytest.mark.parametrize(
    ("responses", "timeout_ms", "expected"),
    [
        ([NOT_CONTROLLER, {"error_code": 41}, CREATED], 30_000, CREATED),
        ([IN_PART], 30_000, IN_PART),
        ([NOT_CONTROLLER], 0, NOT_CONTROLLER),
    ],
)
def test_the_controller_is_looked_for_until_the_time_of_the_request_is_over(
    is_controller: bool, responses: list[dict[str, Any]], timeout_ms: int, expected: dict[str, Any]
) -> None:
    left = list(responses)

    async def answer(*_: object) -> dict[str, Any]:
        return left.pop(0)

    async def forwarded(*_: object) -> Message:
        return decoded(left.pop(0))

    async def never(*_: object) -> Any:
        pytest.fail("the wrong one was asked")

    forward, handle = (never, answer) if is_controller else (forwarded, never)
    forwarder = SimpleNamespace(forward=forward)
    broker = SimpleNamespace(
        cluster=SimpleNamespace(is_controller=is_controller, forwarding=forwarder)
    )
    request = SimpleNamespace(timeout_ms=timeout_ms)
    context = RequestContext(19, 7, 1, "app", "PLAINTEXT", "h")

    async def ask() -> Any:
        return await forwarding(handle)(broker, context, request)  # type: ignore[arg-type, misc]

    assert asyncio.run(ask()) == expected
    assert not left
