"""Distribution of a request about many keys to the brokers that are responsible for them.

Each key (a topic, a group, a partition) has a broker that must be asked: the controller, a
coordinator, a leader, a particular broker, or any. `dispatch` determines it, sends one request per
broker for all of its keys, and retries the keys that failed because the broker was the wrong one or
temporarily unable to respond, with backoff, until `default.api.timeout.ms` has passed. The outcome
of one key never affects another.

A request for a topic that does not exist is retried only for UNKNOWN_TOPIC_GRACE_S, and only if the
leaders of its partitions are needed, because the topic may just have been created. (Kafka's own
client retries for the whole timeout.)"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

from ottla.base import notebook
from ottla.base.errors import RETRIABLE, ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.backoff import Backoff
from ottla.client.cluster import ANY_NODE, LOST_COORDINATOR, Cluster, CoordinatorType
from ottla.client.errors import (
    ClientError,
    ConnectionLost,
    KafkaTimeout,
    UnknownTopic,
    error_for,
    timed_out,
    unfinished,
)

K = TypeVar("K")
V = TypeVar("V")

UNKNOWN_TOPIC_GRACE_S = 2.0
UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NOT_TRANSIENT = UNKNOWN_TOPIC | {ErrorCode.ELECTION_NOT_NEEDED}
"""Codes that are retriable for other clients, but final results for an admin client."""

Ask = Callable[[int, list[K]], Awaitable[Mapping[K, "V | ClientError"]]]
"""Function that sends a request about some keys to one broker and returns each key's outcome."""


class Listing(dict[K, V]):
    """A dict that notebooks show as a table."""

    def _repr_html_(self) -> str:
        return notebook.mapping_table(self, caption=f"{len(self):,} found")


class Results(Listing[K, V]):
    """Results by the key that was asked for.

    With `return_errors=True`, `errors` holds the failures by key; otherwise the call raises the
    first one."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[K, ClientError] = {}

    def checked(self, return_errors: bool) -> Results[K, V]:
        """Return the results, or raise the first failure unless `return_errors` is set."""
        if self.errors and not return_errors:
            raise next(iter(self.errors.values()))
        return self

    def _repr_html_(self) -> str:
        found = super()._repr_html_()
        if not self.errors:
            return found
        failed = {key: str(error) for key, error in self.errors.items()}
        return found + notebook.mapping_table(failed, caption=f"{len(failed):,} failed")


class Lookup(ABC, Generic[K]):
    """Lookup of the broker that must be asked for each key."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @abstractmethod
    async def nodes(self, keys: list[K]) -> Mapping[K, int | ClientError]:
        """Return the broker for each key, or the reason why there is none."""

    def failed(self, key: K, error: ClientError) -> None:
        """Discard cached state that a transient error shows to be stale."""

    def grace_s(self, error: ClientError) -> float | None:
        """Return the seconds to retry after an error: 0 for no retry, None until the timeout."""
        return None if is_transient(error) else 0.0


class AtController(Lookup[K]):
    async def nodes(self, keys: list[K]) -> Mapping[K, int | ClientError]:
        return dict.fromkeys(keys, self.cluster.controller)

    def failed(self, key: K, error: ClientError) -> None:
        self.cluster.request_refresh()


class AtBrokers(Lookup[K]):
    """Lookup by a function from key to broker; ANY_NODE if every broker can answer."""

    def __init__(self, cluster: Cluster, place: Callable[[K], int]) -> None:
        super().__init__(cluster)
        self._place = place

    async def nodes(self, keys: list[K]) -> Mapping[K, int | ClientError]:
        places = {key: self._place(key) for key in keys}
        if not self._are_known(places.values()):
            await self.cluster.refresh()
        return {
            key: node if self._are_known([node]) else self._unknown(node)
            for key, node in places.items()
        }

    def _are_known(self, nodes: Iterable[int]) -> bool:
        known = self.cluster.metadata.nodes
        return all(node == ANY_NODE or node in known for node in nodes)

    def _unknown(self, node: int) -> ClientError:
        there = ", ".join(map(str, sorted(self.cluster.metadata.nodes)))
        return ClientError(
            f"broker {node} does not exist; the cluster has {there}",
            code=ErrorCode.BROKER_NOT_AVAILABLE,
        )

    def failed(self, key: K, error: ClientError) -> None:
        self.cluster.request_refresh()


class AtCoordinators(Lookup[str]):
    def __init__(self, cluster: Cluster, kind: CoordinatorType) -> None:
        super().__init__(cluster)
        self._kind = kind

    async def nodes(self, keys: list[str]) -> Mapping[str, int | ClientError]:
        return await self.cluster.coordinators(self._kind, keys)

    def failed(self, key: str, error: ClientError) -> None:
        if error.code in LOST_COORDINATOR or isinstance(error, ConnectionLost):
            self.cluster.forget_coordinator(self._kind, key)


class AtLeaders(Lookup[TopicPartition]):
    """Lookup of partition leaders. Metadata is refreshed each time, as administrators expect."""

    async def nodes(self, keys: list[TopicPartition]) -> Mapping[TopicPartition, int | ClientError]:
        metadata = await self.cluster.refresh({key.topic for key in keys})
        found: dict[TopicPartition, int | ClientError] = {}
        for key in keys:
            leader = metadata.leader(*key)
            found[key] = leader if leader >= 0 else self._without_leader(key)
        return found

    def _without_leader(self, key: TopicPartition) -> ClientError:
        metadata = self.cluster.metadata
        where = {"topic": key.topic, "partition": key.partition}
        code = metadata.errors.get(key.topic)
        if code is not None and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return error_for(code, **where)  # type: ignore[arg-type]
        topic = metadata.topics.get(key.topic)
        if topic is None:
            return UnknownTopic(f"topic {key.topic!r} does not exist", **where)  # type: ignore[arg-type]
        if not 0 <= key.partition < topic.partition_count:
            return UnknownTopic(
                f"topic {key.topic} has no partition {key.partition}; it has "
                f"{topic.partition_count}",
                **where,  # type: ignore[arg-type]
            )
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, **where)  # type: ignore[arg-type]

    def grace_s(self, error: ClientError) -> float | None:
        return UNKNOWN_TOPIC_GRACE_S if error.code in UNKNOWN_TOPIC else super().grace_s(error)


def is_transient(error: ClientError) -> bool:
    if isinstance(error, ConnectionLost | KafkaTimeout):
        return True
    return error.code in RETRIABLE and error.code not in NOT_TRANSIENT


async def dispatch(
    lookup: Lookup[K], keys: Iterable[K], ask: Ask[K, V], *, what: str
) -> Results[K, V]:
    """Ask about all `keys` and collect the outcomes. `what` is used in error messages."""
    config = lookup.cluster.config
    loop = asyncio.get_running_loop()
    start = loop.time()
    deadline = start + config.default_api_timeout_ms / 1000
    backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
    order = list(dict.fromkeys(keys))
    outcomes: dict[K, V | ClientError] = {}
    pending = order
    while pending:
        outcomes |= await _round(lookup, pending, ask, deadline)
        now = loop.time()
        pending = [key for key in pending if _should_retry(lookup, outcomes[key], now - start)]
        pause_s = backoff.next_s()
        if not pending or now + pause_s >= deadline:
            break
        for key in pending:
            error = outcomes[key]
            assert isinstance(error, ClientError)
            lookup.failed(key, error)
        await asyncio.sleep(pause_s)
    for key in pending:
        error = outcomes[key]
        assert isinstance(error, ClientError)
        outcomes[key] = timed_out(what, config.default_api_timeout_ms, error)
    return _split_outcomes(order, outcomes)


def _split_outcomes(order: list[K], outcomes: Mapping[K, V | ClientError]) -> Results[K, V]:
    results: Results[K, V] = Results()
    for key in order:
        outcome = outcomes[key]
        if isinstance(outcome, ClientError):
            results.errors[key] = outcome
        else:
            results[key] = outcome
    return results


def _should_retry(lookup: Lookup[K], outcome: object, passed_s: float) -> bool:
    if not isinstance(outcome, ClientError):
        return False
    grace_s = lookup.grace_s(outcome)
    return grace_s is None or passed_s < grace_s


async def _round(
    lookup: Lookup[K], keys: list[K], ask: Ask[K, V], deadline: float
) -> dict[K, V | ClientError]:
    """Ask about each key once. A ClientError becomes the outcome of its keys."""
    outcomes: dict[K, V | ClientError] = {}
    by_node: dict[int, list[K]] = {}
    try:
        async with asyncio.timeout_at(deadline):
            for key, node in (await lookup.nodes(keys)).items():
                if isinstance(node, ClientError):
                    outcomes[key] = node
                else:
                    by_node.setdefault(node, []).append(key)
            responses = await asyncio.gather(
                *(_ask_node(node, share, ask) for node, share in by_node.items())
            )
    except TimeoutError as error:
        failure: ClientError = KafkaTimeout(unfinished(error) or "no broker responded")
        if isinstance(error, ClientError):
            failure = error
        return {**dict.fromkeys(keys, failure), **outcomes}
    except ClientError as error:
        return dict.fromkeys(keys, error)
    for response in responses:
        outcomes.update(response)
    for key in keys:
        if key not in outcomes:
            outcomes[key] = ClientError(f"the broker's response does not contain {key}")
    return outcomes


async def _ask_node(node: int, keys: list[K], ask: Ask[K, V]) -> Mapping[K, V | ClientError]:
    try:
        return await ask(node, keys)
    except ClientError as error:
        return dict.fromkeys(keys, error)


def raise_for(code: int, message: str | None = None) -> None:
    if code:
        raise error_for(code, message)


__all__ = [
    "AtBrokers",
    "AtController",
    "AtCoordinators",
    "AtLeaders",
    "KafkaError",
    "Listing",
    "Results",
    "dispatch",
    "raise_for",
]
