"""Exactly-once writing of a stream's batches to topics, with ordinary Kafka transactions.

    driver   prepare   become the query's only driver (InitProducerId with its name fences every
                       other run), read its last decision, abort what dead tasks left open
    tasks    stage     each attempt writes in its own transaction and leaves it open
    driver   commit    write the decision, which lists the transactions of this batch, then commit
                       them all
    restart            Spark reruns the last batch. If it is decided, its tasks write nothing and
                       only commit the transactions that are still open; otherwise they write again

Between the decision and the commits, a transaction can time out (`transaction.timeout.ms`, at most
the broker's `transaction.max.timeout.ms`) if the driver dies and does not return in time. Then its
task writes again, and its rows must match the fingerprint in the decision. If the task produces
other rows or no longer exists, the query fails with an explanation, because neither writing nor
skipping would be correct. The same happens if brokers have forgotten the transactional ID
(`transactional.id.expiration.ms`).

Readers with read_committed see the transactions of a batch one after another, not all at once.

Names: NAME is the driver's transactional ID, NAME/task/attempt those of the tasks."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Iterable
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, UserError
from ottla.base.types import TopicPartition
from ottla.client.admin.partitions import IsolationLevel, OffsetSpec, list_offsets
from ottla.client.admin.topics import NewTopic, create_topics
from ottla.client.admin.transactions import describe_transactions
from ottla.client.cluster import Cluster
from ottla.client.consumer.fetch_request import FetchLimits, fetch_partition
from ottla.client.errors import OffsetOutOfRange, UnknownTopic
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.transaction_coordinator import ProducerIdentity
from ottla.spark.decisions import Decision, DecisionLog, StagedTransaction
from ottla.spark.open_transactions import open_transactions
from ottla.spark.options import SinkOptions
from ottla.spark.record_writer import write_record
from ottla.spark.shared_client import SharedClient, shared_client
from ottla.spark.transactions import EndResult, end_transaction, init_producer
from ottla.wire.records.crc import Buffer

logger = logging.getLogger(__name__)

DECISION_TIMEOUT_MS = 60_000
"""Timeout of the driver's own transaction, which covers a single write."""
FETCH_BYTES = 8 * 1024 * 1024
FETCH_LIMITS = FetchLimits(
    max_wait_ms=100,
    min_bytes=1,
    max_bytes=FETCH_BYTES,
    partition_max_bytes=FETCH_BYTES,
    isolation=int(IsolationLevel.READ_UNCOMMITTED),
)
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
}
"""Small segments, because only closed segments are compacted and a starting driver reads all."""

_logs: dict[tuple[int, str, str], DecisionLog] = {}


class PreparedBatch(NamedTuple):
    """State of the driver when it sent out the tasks of a batch."""

    driver: ProducerIdentity
    decision: Decision | None


class BatchUndecidable(UserError):
    """A batch can neither be completed nor written again without losing or duplicating rows."""


def sink_client(options: SinkOptions) -> SharedClient:
    return shared_client(ProducerConfig, options.client, auto_create=True)


# ------------------------------------------------------------------------------------ preparation


def prepare(options: SinkOptions) -> PreparedBatch:
    client = sink_client(options)
    return client.run(_prepare, client.cluster, options)


async def _prepare(cluster: Cluster, options: SinkOptions) -> PreparedBatch:
    # Each batch waits for these requests, so they run concurrently.
    (driver, decision), left_open = await asyncio.gather(
        _take_over(cluster, options), _open_tasks(cluster, options)
    )
    await _abort_open(cluster, options, await _without_decided(cluster, left_open, decision))
    return PreparedBatch(driver, decision)


async def _take_over(
    cluster: Cluster, options: SinkOptions
) -> tuple[ProducerIdentity, Decision | None]:
    """Fence every other driver of the query, and only then read its last decision."""
    await _ensure_topic(cluster, options.commit_topic)
    driver = await init_producer(cluster, _transactional_id(options), DECISION_TIMEOUT_MS)
    return driver, await _last_decision(cluster, options)


def _transactional_id(options: SinkOptions) -> str:
    assert options.transactional_id is not None
    return options.transactional_id


def task_id(options: SinkOptions, task: int, attempt: int) -> str:
    return f"{_transactional_id(options)}/{task}/{attempt}"


async def _ensure_topic(cluster: Cluster, topic: str) -> None:
    if topic in cluster.metadata.topics:
        return
    await cluster.refresh([topic])
    if topic in cluster.metadata.topics:
        return
    made = await create_topics(
        cluster, [NewTopic(topic, 1, configs=TOPIC_CONFIGS)], validate_only=False
    )
    for error in made.errors.values():
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise UserError(
                f"Cannot create topic '{topic}', which stores commits of exactly-once queries: "
                f"{error}. Create it with cleanup.policy=compact, or set the option "
                "commitTopic to another topic."
            ) from error
    await cluster.topic(topic)


async def _commit_partition(cluster: Cluster, options: SinkOptions) -> TopicPartition:
    count = (await cluster.topic(options.commit_topic)).partition_count
    if count == 1:
        return TopicPartition(options.commit_topic, 0)
    from ottla.wire.murmur2 import partition_for_key

    chosen = partition_for_key(_transactional_id(options).encode(), count)
    return TopicPartition(options.commit_topic, chosen)


async def _last_decision(cluster: Cluster, options: SinkOptions) -> Decision | None:
    """Return the last decision, reading on from where this process stopped before."""
    tp = await _commit_partition(cluster, options)
    key = (
        os.getpid(),
        ",".join(cluster.config.bootstrap_servers),
        f"{tp}/{_transactional_id(options)}",
    )
    log = _logs.setdefault(key, DecisionLog(_transactional_id(options).encode()))
    # Do not rely on the high watermark of a fetch response: a new leader may not know it yet, and
    # a missed decision would mean a batch written twice. ListOffsets waits until it is known.
    end = await _list_offset(cluster, tp, OffsetSpec.LATEST)
    if log.position > end:  # the topic was recreated
        log = _logs[key] = DecisionLog(
            log.key, await _list_offset(cluster, tp, OffsetSpec.EARLIEST)
        )
    loop = asyncio.get_running_loop()
    timeout_s = cluster.config.default_api_timeout_ms / 1000
    moved_at = loop.time()
    while log.position < end:
        before = log.position
        try:
            log.read(await _fetch_records(cluster, tp, log.position))
        except OffsetOutOfRange:  # the records were deleted
            log = _logs[key] = DecisionLog(
                log.key, await _list_offset(cluster, tp, OffsetSpec.EARLIEST)
            )
        if log.position != before:
            moved_at = loop.time()
        elif loop.time() - moved_at > timeout_s:
            raise UserError(
                f"Topic '{options.commit_topic}', which stores commits of exactly-once queries, "
                f"ends at offset {end} according to its leader, but no record can be read "
                f"at offset {before}. The last committed batch is unknown, so nothing is written."
            )
        else:
            await asyncio.sleep(0.01)
    return log.decision


async def _fetch_records(cluster: Cluster, tp: TopicPartition, offset: int) -> Buffer:
    def fetch() -> Awaitable[Any]:
        return fetch_partition(cluster, tp, offset, FETCH_LIMITS)

    partition = await cluster.retrying(fetch, what=f"reading {tp}")
    return partition.records or b""


async def _list_offset(cluster: Cluster, tp: TopicPartition, spec: OffsetSpec) -> int:
    listed = await list_offsets(cluster, {tp: spec}, IsolationLevel.READ_UNCOMMITTED)
    return listed.checked(False)[tp].offset or 0


# -------------------------------------------------------------------------- leftover transactions


async def _open_tasks(cluster: Cluster, options: SinkOptions) -> list[str]:
    """Return the transactional IDs of open transactions that tasks of the query started."""
    ours = re.compile(rf"{re.escape(_transactional_id(options))}/\d+/\d+")
    return [name for name in await open_transactions(cluster) if ours.fullmatch(name)]


async def _without_decided(
    cluster: Cluster, names: list[str], decision: Decision | None
) -> list[str]:
    """Leave out transactions that a decision lists, which must be committed instead.

    IDs are reused, so the producer ID and epoch must match as well."""
    decided = {} if decision is None else {
        each.producer.transactional_id: each.producer for each in decision.transactions
    }  # fmt: skip
    doubtful = [name for name in names if name in decided]
    if not doubtful:
        return names
    described = await describe_transactions(cluster, doubtful)
    kept = {
        name
        for name, description in described.items()
        if (description.producer_id, description.producer_epoch) == decided[name][1:]
    }
    return [name for name in names if name not in kept]


async def _abort_open(cluster: Cluster, options: SinkOptions, names: Iterable[str]) -> None:
    timeout_ms = int(options.client["transaction.timeout.ms"])
    await asyncio.gather(*(init_producer(cluster, name, timeout_ms) for name in names))


# ----------------------------------------------------------------------------------------- commit


def commit(
    options: SinkOptions,
    driver: ProducerIdentity,
    decision: Decision,
    *,
    only: Iterable[int] | None = None,
) -> None:
    """Write the decision, then commit the batch's transactions (of some tasks, with `only`)."""
    client = sink_client(options)
    client.run(_commit, client, options, driver, decision, None if only is None else set(only))


async def _commit(
    client: SharedClient,
    options: SinkOptions,
    driver: ProducerIdentity,
    decision: Decision,
    only: set[int] | None,
) -> None:
    cluster = client.cluster
    listing = asyncio.ensure_future(_open_tasks(cluster, options))  # concurrently
    try:
        if not await _write_decision(client, options, driver, decision):
            raise UserError(
                f"Another run of query '{driver.transactional_id}' has taken over. This run does "
                f"not commit batch {decision.batch}."
            )
        to_end = [each for each in decision.transactions if only is None or each.task in only]
        await commit_all(cluster, decision, to_end)
        # This run's tasks have just staged these transactions: they are not leftovers.
        decided = {each.producer.transactional_id for each in decision.transactions}
        leftovers = [name for name in await listing if name not in decided]
    finally:
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)
    await _abort_open(cluster, options, leftovers)


async def commit_all(cluster: Cluster, decision: Decision, staged: list[StagedTransaction]) -> None:
    """Commit transactions that a decision lists; raise if one of them was aborted meanwhile."""
    ends = await asyncio.gather(
        *(end_transaction(cluster, each.producer, commit=True) for each in staged)
    )
    lost = [each for each, end in zip(staged, ends, strict=True) if end is not EndResult.COMPLETED]
    if lost:
        raise UserError(
            f"Batch {decision.batch} is decided, but {len(lost)} of its {len(staged)} transactions "
            f"were aborted before the commit (the first: {lost[0].producer.transactional_id}). "
            "transaction.timeout.ms may be shorter than the batch. Start the query again to write "
            "the missing rows."
        )


async def _write_decision(
    client: SharedClient, options: SinkOptions, driver: ProducerIdentity, decision: Decision
) -> bool:
    """Write the decision; return False if this driver is fenced."""
    tp = await _commit_partition(client.cluster, options)
    key = _transactional_id(options).encode()
    await write_record(client.cluster, options.config(), driver, tp, key, decision.to_bytes())
    return await end_transaction(client.cluster, driver, commit=True) is EndResult.COMPLETED


def finish_replay(
    options: SinkOptions,
    driver: ProducerIdentity,
    batch: int,
    rewritten: list[StagedTransaction],
    done: set[int],
) -> None:
    """Complete a decided batch that was rerun: commit what none of its tasks committed."""
    client = sink_client(options)
    decision = client.run(_last_decision, client.cluster, options)
    assert decision is not None, "only a decided batch is replayed"
    handled = done | {each.task for each in rewritten}
    for each in decision.transactions:
        if each.task in handled:
            continue
        end = client.run(end_transaction, client.cluster, each.producer, commit=True)
        if end is not EndResult.COMPLETED:
            raise undecidable(batch, each, end, "and the batch no longer has this task")
    if rewritten:
        by_task = {each.task: each for each in rewritten}
        listed = tuple(by_task.get(each.task, each) for each in decision.transactions)
        commit(options, driver, Decision(decision.query, batch, listed), only=by_task)


def finish_previous_query(options: SinkOptions) -> None:
    """Complete the last batch of a previous query with the same name."""
    client = sink_client(options)
    decision = client.run(_last_decision, client.cluster, options)
    for each in () if decision is None else decision.transactions:
        end = client.run(end_transaction, client.cluster, each.producer, commit=True)
        if end is EndResult.LOST:
            logger.info(
                "transaction %s of the previous query has ended already",
                each.producer.transactional_id,
            )


def finish_task(options: SinkOptions, staged: StagedTransaction) -> EndResult:
    """Commit a decided transaction, on an executor."""
    client = sink_client(options)
    return client.run(end_transaction, client.cluster, staged.producer, commit=True)


def undecidable(
    batch: int, staged: StagedTransaction, end: EndResult, reason: str
) -> BatchUndecidable:
    return BatchUndecidable(
        f"Batch {batch} is only partly committed: transaction {staged.producer.transactional_id} "
        f"of task {staged.task} ({staged.rows} rows) {end.value}, {reason}. To continue without "
        "these rows, or to write the whole batch again and duplicate the others, start the query "
        "with another kafka.transactional.id."
    )


def abort(options: SinkOptions, staged: Iterable[StagedTransaction]) -> None:
    """Abort the transactions of a failed batch."""
    client = sink_client(options)

    async def end_each() -> None:
        await asyncio.gather(
            *(end_transaction(client.cluster, each.producer, commit=False) for each in staged)
        )

    client.run(end_each)


def abort_all(options: SinkOptions) -> None:
    """Abort all other open transactions of the batch's tasks, except those that are decided."""
    client = sink_client(options)
    client.run(_abort_undecided, client.cluster, options)


async def _abort_undecided(cluster: Cluster, options: SinkOptions) -> None:
    try:
        decision = await _last_decision(cluster, options)
    except UnknownTopic:
        decision = None
    left_open = await _open_tasks(cluster, options)
    await _abort_open(cluster, options, await _without_decided(cluster, left_open, decision))
