"""What a broker was about to do when its role, or another's, changed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.forwarding import forwarding
from ottla.broker.replica_fetcher import ReplicaFetcher, _Followed

EPOCH = 3


class FakeLog:
    def __init__(self) -> None:
        self.log_end_offset, self.recovery_point = 10, 10
        self.cut: list[int] = []

    def kept_below(self, offset: int) -> int:
        return offset

    def truncate_to(self, offset: int, now_ms: int) -> None:
        self.cut.append(offset)

    truncate_fully = truncate_to


def following(becomes_leader: bool) -> tuple[ReplicaFetcher, _Followed, FakeLog]:
    """A fetcher whose partition may become the leader while its checkpoint is written."""
    log = FakeLog()
    partition: Any = SimpleNamespace(
        key=TopicPartition("t", 0),
        log=log,
        is_leader=False,
        leader_epoch=EPOCH,
        high_watermark=0,
        truncated=lambda: None,
    )

    async def write_checkpoints() -> None:
        partition.is_leader = becomes_leader

    logs = SimpleNamespace(write_checkpoints=write_checkpoints)
    clock = SimpleNamespace(time_ms=lambda: 0)
    broker: Any = SimpleNamespace(logs=logs, clock=clock, node_id=1)
    fetcher = ReplicaFetcher(broker, 2, lambda: 0)
    followed = fetcher._followed[partition.key] = _Followed(partition, bytes(16))
    return fetcher, followed, log


@pytest.mark.parametrize("becomes_leader", [False, True])
@pytest.mark.parametrize("how", ["_truncate", "_truncate_fully"])
def test_a_log_is_cut_only_while_it_follows(how: str, becomes_leader: bool) -> None:
    async def scenario() -> list[int]:
        fetcher, followed, log = following(becomes_leader)
        await getattr(fetcher, how)(followed, EPOCH, 4)
        return log.cut

    assert asyncio.run(scenario()) == ([] if becomes_leader else [4])


def test_what_a_broker_has_passed_on_is_not_passed_on_again() -> None:
    passed_on = []

    async def forward(*_: object) -> dict[str, Any]:
        passed_on.append(True)
        return {"by": "the controller"}

    cluster = SimpleNamespace(is_controller=False, forwarding=SimpleNamespace(forward=forward))
    broker = SimpleNamespace(cluster=cluster)
    handle = forwarding(lambda *_: {"by": "this broker"})

    async def ask(client_id: str) -> Any:
        answer = handle(broker, RequestContext(19, 7, 1, client_id, "PLAINTEXT", "h"), {})
        return answer if isinstance(answer, dict) else await answer  # type: ignore[misc]

    assert asyncio.run(ask("app")) == {"by": "the controller"}
    assert asyncio.run(ask("broker-2")) == {"by": "this broker"}
    assert len(passed_on) == 1


NOT_CONTROLLER = {"topics": [{"name": "t", "error_code": 41}]}
CREATED = {"topics": [{"name": "t", "error_code": 0}]}
IN_PART = {"topics": [{"name": "t", "error_code": 41}, {"name": "u", "error_code": 0}]}


@pytest.mark.parametrize("is_controller", [True, False])
@pytest.mark.parametrize(
    ("answers", "timeout_ms", "told"),
    [
        ([NOT_CONTROLLER, {"error_code": 41}, CREATED], 30_000, CREATED),
        ([IN_PART], 30_000, IN_PART),
        ([NOT_CONTROLLER], 0, NOT_CONTROLLER),
    ],
)
def test_the_controller_is_looked_for_until_the_time_of_the_request_is_over(
    is_controller: bool, answers: list[dict[str, Any]], timeout_ms: int, told: dict[str, Any]
) -> None:
    left = list(answers)

    async def answer(*_: object) -> dict[str, Any]:
        return left.pop(0)

    async def never(*_: object) -> dict[str, Any]:
        pytest.fail("the wrong one was asked")

    forward, handle = (never, answer) if is_controller else (answer, never)
    forwarder = SimpleNamespace(forward=forward)
    broker = SimpleNamespace(
        cluster=SimpleNamespace(is_controller=is_controller, forwarding=forwarder)
    )
    request = SimpleNamespace(timeout_ms=timeout_ms)
    context = RequestContext(19, 7, 1, "app", "PLAINTEXT", "h")

    async def ask() -> Any:
        return await forwarding(handle)(broker, context, request)  # type: ignore[arg-type, misc]

    assert asyncio.run(ask()) == told
    assert not left
