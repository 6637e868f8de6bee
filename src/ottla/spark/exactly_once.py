"""A stream's batches into topics, each exactly once, by ordinary Kafka transactions.

    driver   prepare   become the query's one driver (InitProducerId of its name: every other run of
                       it is locked out), read its last decision, abort what dead tasks left open
    tasks    stage     each attempt writes in a transaction of its own and leaves it open
    driver   commit    write the decision: this batch is these transactions. Then end them all
    restart            Spark runs the last batch again. If it is decided, its tasks write nothing:
                       they finish the transactions that are still open. If not, it is written anew

What can happen between the decision and the ends is that a transaction times out
(`transaction.timeout.ms`, at most the broker's `transaction.max.timeout.ms`): the driver died and
did not come back in time. Then its task writes again, and is held to the fingerprint that the
decision has of its rows; a task that gives other rows, or is not there any more, ends the query
with a sentence, for then neither writing nor not writing would be right. The same if brokers have
forgotten the transactional id (`transactional.id.expiration.ms`).

Readers with read_committed see a batch's transactions one after another, not at one moment.

Names: NAME is the driver's transactional id, NAME/task/attempt those of the tasks."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Iterable
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, UserError
from ottla.base.types import TopicPartition
from ottla.client.admin.partitions import IsolationLevel, OffsetSpec, list_offsets
from ottla.client.admin.topics import NewTopic, create_topics
from ottla.client.admin.transactions import describe_transactions
from ottla.client.cluster import Cluster
from ottla.client.errors import OffsetOutOfRange, UnknownTopic
from ottla.client.producer.config import ProducerConfig
from ottla.spark.decisions import Decision, DecisionLog, Staged
from ottla.spark.fetch import fetch_partition
from ottla.spark.open_transactions import open_transactions
from ottla.spark.options import SinkOptions
from ottla.spark.record_writer import Outgoing, RecordWriter
from ottla.spark.shared_client import SharedClient, shared_client
from ottla.spark.transactions import Ended, Producer, end_transaction, init_producer
from ottla.wire.records.builder import build_batch
from ottla.wire.records.crc import Buffer

logger = logging.getLogger(__name__)

DECISION_TIMEOUT_MS = 60_000
"""Of the driver's own transaction: it is open for one write."""
FETCH_BYTES = 8 * 1024 * 1024
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
}
"""Small segments: only closed ones are compacted, and a driver that starts reads all there is."""

_logs: dict[tuple[int, str, str], DecisionLog] = {}


class Run(NamedTuple):
    """What the driver knew when it sent out a batch's tasks."""

    driver: Producer
    decision: Decision | None


class BatchUndecidable(UserError):
    """A batch can neither be finished nor written again without loss or repetition."""


def sink_client(options: SinkOptions) -> SharedClient:
    return shared_client(ProducerConfig, options.client, auto_create=True)


# ------------------------------------------------------------------------------------ preparation


def prepare(options: SinkOptions) -> Run:
    client = sink_client(options)
    return client.run(_prepared(client.cluster, options))


async def _prepared(cluster: Cluster, options: SinkOptions) -> Run:
    await _ensure_topic(cluster, options.commit_topic)
    driver = await init_producer(cluster, _name(options), DECISION_TIMEOUT_MS)
    # Each batch waits for this, so what can be asked at once is.
    decision, left_open = await asyncio.gather(
        _last_decision(cluster, options), _open_tasks(cluster, options)
    )
    await _abort_open(cluster, options, await _without_decided(cluster, left_open, decision))
    return Run(driver, decision)


def _name(options: SinkOptions) -> str:
    assert options.transactional_id is not None
    return options.transactional_id


def task_id(options: SinkOptions, task: int, attempt: int) -> str:
    return f"{_name(options)}/{task}/{attempt}"


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
                f"The topic {topic}, where an exactly-once query keeps what is committed, could "
                f"not be created: {error}. Create it with cleanup.policy=compact, or name another "
                "with commitTopic."
            ) from error
    await cluster.topic(topic)


async def _commit_partition(cluster: Cluster, options: SinkOptions) -> TopicPartition:
    count = (await cluster.topic(options.commit_topic)).partition_count
    if count == 1:
        return TopicPartition(options.commit_topic, 0)
    from ottla.wire.murmur2 import partition_for_key

    chosen = partition_for_key(_name(options).encode(), count)
    return TopicPartition(options.commit_topic, chosen)


async def _last_decision(cluster: Cluster, options: SinkOptions) -> Decision | None:
    """Read on from where this process read to last."""
    tp = await _commit_partition(cluster, options)
    key = (os.getpid(), ",".join(cluster.config.bootstrap_servers), f"{tp}/{_name(options)}")
    log = _logs.setdefault(key, DecisionLog(_name(options).encode()))
    # Not the watermark that a fetch tells: a leader that is new may not know yet how far it goes,
    # and a decision that is overlooked is a batch written twice. Asked for the end, it waits.
    end = await _offset(cluster, tp, OffsetSpec.LATEST)
    if log.position > end:  # the topic was made anew
        log = _logs[key] = DecisionLog(log.key, await _offset(cluster, tp, OffsetSpec.EARLIEST))
    loop = asyncio.get_running_loop()
    patience_s = cluster.config.default_api_timeout_ms / 1000
    moved_at = loop.time()
    while log.position < end:
        before = log.position
        try:
            log.read(await _fetched(cluster, tp, log.position))
        except OffsetOutOfRange:  # what was to be read is gone
            log = _logs[key] = DecisionLog(log.key, await _offset(cluster, tp, OffsetSpec.EARLIEST))
        if log.position != before:
            moved_at = loop.time()
        elif loop.time() - moved_at > patience_s:
            raise UserError(
                f"The topic {options.commit_topic}, where an exactly-once query keeps what is "
                f"committed, ends at offset {end} by its leader's word, but nothing can be read at "
                f"{before}. What was committed last is not known, so nothing is written."
            )
        else:
            await asyncio.sleep(0.01)
    return log.decision


async def _fetched(cluster: Cluster, tp: TopicPartition, offset: int) -> Buffer:
    def fetch() -> Awaitable[Any]:
        isolation = int(IsolationLevel.READ_UNCOMMITTED)
        return fetch_partition(
            cluster, tp, offset, max_bytes=FETCH_BYTES, max_wait_ms=100, isolation=isolation
        )

    told = await cluster.retrying(fetch, what=f"reading {tp}")
    return told.records or b""


async def _offset(cluster: Cluster, tp: TopicPartition, spec: OffsetSpec) -> int:
    listed = await list_offsets(cluster, {tp: spec}, IsolationLevel.READ_UNCOMMITTED)
    return listed.checked(False)[tp].offset or 0


# ------------------------------------------------------------------------------ what is left open


async def _open_tasks(cluster: Cluster, options: SinkOptions) -> list[str]:
    """The names of open transactions that tasks of the query began."""
    ours = re.compile(rf"{re.escape(_name(options))}/\d+/\d+")
    return [name for name in await open_transactions(cluster) if ours.fullmatch(name)]


async def _without_decided(
    cluster: Cluster, names: list[str], decision: Decision | None
) -> list[str]:
    """Less those that a decision has, which are to be finished; a name may be used anew."""
    decided = {} if decision is None else {
        each.producer.transactional_id: each.producer for each in decision.transactions
    }  # fmt: skip
    doubtful = [name for name in names if name in decided]
    if not doubtful:
        return names
    described = await describe_transactions(cluster, doubtful)
    kept = {
        name
        for name, told in described.items()
        if (told.producer_id, told.producer_epoch) == decided[name][1:]
    }
    return [name for name in names if name not in kept]


async def _abort_open(cluster: Cluster, options: SinkOptions, names: Iterable[str]) -> None:
    timeout_ms = int(options.client["transaction.timeout.ms"])
    await asyncio.gather(*(init_producer(cluster, name, timeout_ms) for name in names))


# ------------------------------------------------------------------------------------- the commit


def commit(
    options: SinkOptions, driver: Producer, decision: Decision, *, only: Iterable[int] | None = None
) -> None:
    """Decide, and end the batch's transactions (of some tasks only, if the rest are ended)."""
    client = sink_client(options)
    client.run(_commit(client, options, driver, decision, None if only is None else set(only)))


async def _commit(
    client: SharedClient,
    options: SinkOptions,
    driver: Producer,
    decision: Decision,
    only: set[int] | None,
) -> None:
    cluster = client.cluster
    listing = asyncio.ensure_future(_open_tasks(cluster, options))  # meanwhile
    try:
        if not await _decide(client, options, driver, decision):
            raise UserError(
                f"Another run of the query {driver.transactional_id} has taken over: batch "
                f"{decision.batch} is not committed by this one."
            )
        to_end = [each for each in decision.transactions if only is None or each.task in only]
        await end_all(cluster, decision, to_end)
        # What tasks of this run have just staged has these names: none of them is left over.
        decided = {each.producer.transactional_id for each in decision.transactions}
        leftovers = [name for name in await listing if name not in decided]
    finally:
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)
    await _abort_open(cluster, options, leftovers)


async def end_all(cluster: Cluster, decision: Decision, staged: list[Staged]) -> None:
    """Commit transactions that must be committed."""
    ends = await asyncio.gather(
        *(end_transaction(cluster, each.producer, commit=True) for each in staged)
    )
    lost = [each for each, end in zip(staged, ends, strict=True) if end is not Ended.AS_ASKED]
    if lost:
        raise UserError(
            f"Batch {decision.batch} is decided, and {len(lost)} of its {len(staged)} transactions "
            f"ended too early ({lost[0].producer.transactional_id}): was transaction.timeout.ms "
            "shorter than the batch? Start the query again: it writes what is missing."
        )


async def _decide(
    client: SharedClient, options: SinkOptions, driver: Producer, decision: Decision
) -> bool:
    """Write the decision, by hand: the kernels would take longer to load. False: locked out."""
    tp = await _commit_partition(client.cluster, options)
    batch = build_batch(
        [(_name(options).encode(), decision.to_bytes(), (), time.time_ns() // 1_000_000)],
        producer_id=driver.producer_id,
        producer_epoch=driver.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    writer = RecordWriter(client, options.config(), driver)
    await writer.deliver([Outgoing(tp, memoryview(batch), 0)])
    return await end_transaction(client.cluster, driver, commit=True) is Ended.AS_ASKED


def finish_replay(
    options: SinkOptions, driver: Producer, batch: int, rewritten: list[Staged], done: set[int]
) -> None:
    """A batch that was decided before was run again: finish what no task of it finished."""
    client = sink_client(options)
    decision = client.run(_last_decision(client.cluster, options))
    assert decision is not None, "a batch is only a replay of what is decided"
    handled = done | {each.task for each in rewritten}
    for each in decision.transactions:
        if each.task in handled:
            continue
        end = client.run(end_transaction(client.cluster, each.producer, commit=True))
        if end is not Ended.AS_ASKED:
            raise undecidable(batch, each, end, "and the batch now has no such task")
    if rewritten:
        by_task = {each.task: each for each in rewritten}
        listed = tuple(by_task.get(each.task, each) for each in decision.transactions)
        commit(options, driver, Decision(decision.query, batch, listed), only=by_task)


def finish_last(options: SinkOptions) -> None:
    """Finish what is left of the last batch of a query that had this name and will not be back."""
    client = sink_client(options)
    decision = client.run(_last_decision(client.cluster, options))
    for each in () if decision is None else decision.transactions:
        end = client.run(end_transaction(client.cluster, each.producer, commit=True))
        if end is Ended.LOST:
            logger.info("%s had ended before", each.producer.transactional_id)


def finish_task(options: SinkOptions, staged: Staged) -> Ended:
    """On an executor: finish a decided transaction."""
    client = sink_client(options)
    return client.run(end_transaction(client.cluster, staged.producer, commit=True))


def undecidable(batch: int, staged: Staged, end: Ended, why: str) -> BatchUndecidable:
    return BatchUndecidable(
        f"Batch {batch} was committed in part: the transaction {staged.producer.transactional_id} "
        f"of its task {staged.task} ({staged.rows} rows) is {end.value}, {why}. To go on without "
        "these rows, or to write the batch again and so repeat others, start the query with "
        "another kafka.transactional.id."
    )


def abort(options: SinkOptions, staged: Iterable[Staged]) -> None:
    """A batch has failed: nothing of it is to be seen."""
    client = sink_client(options)

    async def end_each() -> None:
        await asyncio.gather(
            *(end_transaction(client.cluster, each.producer, commit=False) for each in staged)
        )

    client.run(end_each())


def abort_all(options: SinkOptions) -> None:
    """The same for whatever the batch's tasks left, decided transactions apart."""
    client = sink_client(options)
    client.run(_abort_undecided(client.cluster, options))


async def _abort_undecided(cluster: Cluster, options: SinkOptions) -> None:
    try:
        decision = await _last_decision(cluster, options)
    except UnknownTopic:
        decision = None
    left_open = await _open_tasks(cluster, options)
    await _abort_open(cluster, options, await _without_decided(cluster, left_open, decision))
