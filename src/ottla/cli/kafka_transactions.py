"""`kafka-transactions`: list and describe transactions, and find and abort hanging ones.

As in Kafka's tool, connection options precede the action
(`kafka-transactions --bootstrap-server … list`); they are accepted after it as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option, table
from ottla.cli.tool import Tool, ToolGroup, run_tool

if TYPE_CHECKING:
    from ottla.client.admin import AbortTransaction, Admin

DEFAULT_MAX_TIMEOUT_MIN = 15


@click.group(cls=ToolGroup)
@cluster_options()
@click.pass_context
def kafka_transactions(context: click.Context, cluster: ClusterOptions) -> None:
    """List, describe and abort transactions."""
    context.obj = cluster


def _action(name: str, *, examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Register a subcommand. Its connection options override those before the subcommand."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @click.pass_context
        def call(context: click.Context, /, cluster: ClusterOptions, **rest: Any) -> Any:
            outer = context.obj
            if isinstance(outer, ClusterOptions):
                cluster = ClusterOptions(
                    cluster.bootstrap or outer.bootstrap, cluster.config_file or outer.config_file
                )
            return function(cluster, **rest)

        # Keep the options that the decorators below this one have added.
        call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        call.__doc__ = function.__doc__
        call.__name__ = function.__name__
        command = kafka_transactions.command(name, cls=Tool, examples=examples)
        return command(cluster_options()(output_option(call)))

    return decorate


def _topic_partition(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--partition", type=int, required=True, help="Number of the partition."
    )(function)
    return click.option("--topic", required=True, help="Topic of the partition.")(function)


@_action("list", examples="kafka-transactions list --duration-filter 60000")
@click.option(
    "--duration-filter",
    type=int,
    metavar="MS",
    help="List only transactions that have been running for longer than this, in milliseconds. A "
    "negative value lists all.",
)
@click.option(
    "--transactional-id-pattern",
    metavar="REGEX",
    help="List only transactional IDs that match this regular expression.",
)
def list_(
    cluster: ClusterOptions,
    output: Output,
    duration_filter: int | None,
    transactional_id_pattern: str | None,
) -> None:
    """List transactional IDs with their states."""
    if duration_filter is not None and duration_filter < 0:
        duration_filter = None
    with cluster.admin() as admin:
        found = list(
            admin.list_transactions(
                longer_than_ms=duration_filter, pattern=transactional_id_pattern
            ).values()
        )
    output.show(
        found,
        lambda: table(
            ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
            (
                (each.transactional_id, each.coordinator, each.producer_id, each.state)
                for each in found
            ),
        ),
    )


@_action("describe", examples="kafka-transactions describe --transactional-id billing-1")
@click.option(
    "--transactional-id", required=True, metavar="ID", help="Transactional ID to describe."
)
def describe(cluster: ClusterOptions, output: Output, transactional_id: str) -> None:
    """Show the state of a transactional ID."""
    with cluster.admin() as admin:
        found = admin.describe_transactions(transactional_id)[transactional_id]
    start = found.start_time_ms
    duration_ms = None if start is None else int(time.time() * 1000) - start
    columns = (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TopicPartitions",
    )
    row = (
        *(found.coordinator, found.transactional_id, found.producer_id, found.producer_epoch),
        *(found.state, found.timeout_ms, _or_none(start), _or_none(duration_ms)),
        ",".join(map(str, found.partitions)),
    )
    output.show(found, lambda: table(columns, [row]))


@_action(
    "describe-producers",
    examples="kafka-transactions describe-producers --topic orders --partition 0",
)
@_topic_partition
@click.option("--broker-id", type=int, help="Broker whose state to show.  [default: the leader]")
def describe_producers(
    cluster: ClusterOptions, output: Output, topic: str, partition: int, broker_id: int | None
) -> None:
    """Show the active producers of a partition."""
    key = TopicPartition(topic, partition)
    with cluster.admin() as admin:
        found = admin.describe_producers(key, broker=broker_id)[key]
    output.show(
        found,
        lambda: table(
            (
                *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence"),
                *("LastTimestamp", "CurrentTransactionStartOffset"),
            ),
            (
                (
                    *(each.producer_id, each.producer_epoch),
                    -1 if each.coordinator_epoch is None else each.coordinator_epoch,
                    *(each.last_sequence, each.last_timestamp),
                    _or_none(each.current_txn_start_offset),
                )
                for each in found
            ),
        ),
    )


def _or_none(number: int | None) -> str:
    return "None" if number is None else str(number)


@_action(
    "find-hanging",
    examples="""
    kafka-transactions find-hanging --broker-id 1
    kafka-transactions find-hanging --topic orders --max-transaction-timeout 60
    """,
)
@click.option("--broker-id", type=int, help="Broker whose partitions to search.")
@click.option("--topic", help="Topic to search.")
@click.option("--partition", type=int, help="Partition of the topic to search.  [default: all]")
@click.option(
    "--max-transaction-timeout",
    "max_timeout_min",
    type=int,
    default=DEFAULT_MAX_TIMEOUT_MIN,
    show_default=True,
    metavar="MINUTES",
    help="Maximum transaction timeout in minutes. Only transactions that have been open for "
    "longer are considered hanging.",
)
def find_hanging(
    cluster: ClusterOptions,
    output: Output,
    broker_id: int | None,
    topic: str | None,
    partition: int | None,
    max_timeout_min: int,
) -> None:
    """Find hanging transactions.

    A transaction hangs if it is open on a partition and no transaction coordinator will end it.
    """
    from ottla.cli import hanging_transactions as hanging

    if topic is None and broker_id is None:
        raise click.UsageError("find-hanging requires --topic or --broker-id.")
    if partition is not None and topic is None:
        raise click.UsageError("--partition requires --topic.")
    with cluster.admin() as admin:
        found = hanging.find_hanging(
            admin,
            _partitions_to_search(admin, broker_id, topic, partition),
            broker=broker_id,
            max_timeout_ms=max_timeout_min * 60_000,
            now_ms=int(time.time() * 1000),
        )
    output.show(
        found,
        lambda: table(
            (
                *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch"),
                *("StartOffset", "LastTimestamp", "Duration(min)"),
            ),
            (
                (
                    *(each.topic, each.partition, each.producer_id, each.producer_epoch),
                    *(each.coordinator_epoch, each.start_offset, each.last_timestamp),
                    each.duration_minutes,
                )
                for each in found
            ),
        ),
    )


def _partitions_to_search(
    admin: Admin, broker: int | None, topic: str | None, partition: int | None
) -> list[TopicPartition]:
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    names = [topic] if topic is not None else list(admin.list_topics(include_internal=True))
    return [
        TopicPartition(each.name, number.partition)
        for each in admin.describe_topics(*names).values()
        for number in each.partitions
        if broker is None or broker in number.replicas
    ]


@_action(
    "abort",
    examples="kafka-transactions abort --topic orders --partition 0 --start-offset 42",
)
@_topic_partition
@click.option(
    "--start-offset", type=int, help="Offset of the transaction's first record in the partition."
)
@click.option(
    "--producer-id",
    type=int,
    help="Producer ID, instead of --start-offset. Required for brokers before 3.0.",
)
@click.option("--producer-epoch", type=int, help="Producer epoch. Requires --producer-id.")
@click.option(
    "--coordinator-epoch",
    type=int,
    help="Coordinator epoch, as shown by describe-producers. Requires --producer-id.",
)
def abort(
    cluster: ClusterOptions,
    output: Output,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction.

    The transaction is identified by its start offset, or by its producer.
    """
    from ottla.client.admin import AbortTransaction

    key = TopicPartition(topic, partition)
    by_producer = (producer_id, producer_epoch, coordinator_epoch)
    if start_offset is None and None in by_producer:
        raise click.UsageError(
            "abort requires --start-offset, or --producer-id, --producer-epoch and "
            "--coordinator-epoch."
        )
    with cluster.admin() as admin:
        if start_offset is not None:
            spec = _transaction_at(admin, key, start_offset)
        else:
            spec = AbortTransaction(
                key, producer_id or 0, producer_epoch or 0, max(coordinator_epoch or 0, 0)
            )
        admin.abort_transaction(spec)
    output.show({"aborted": spec}, list)


def _transaction_at(admin: Admin, key: TopicPartition, start_offset: int) -> AbortTransaction:
    from ottla.client.admin import AbortTransaction

    for each in admin.describe_producers(key)[key]:
        if each.current_txn_start_offset == start_offset:
            return AbortTransaction(
                key, each.producer_id, each.producer_epoch, each.coordinator_epoch or 0
            )
    raise UserError(
        f"No open transaction starts at offset {start_offset} of partition {key}. List the open "
        "transactions with describe-producers."
    )


@_action(
    "force-terminate",
    examples="kafka-transactions force-terminate --transactional-id billing-1",
)
@click.option(
    "--transactional-id", required=True, metavar="ID", help="Transactional ID to terminate."
)
def force_terminate(cluster: ClusterOptions, output: Output, transactional_id: str) -> None:
    """Abort the open transaction and fence the producer.

    Affects the producer that currently uses the transactional ID.
    """
    with cluster.admin() as admin:
        admin.fence_producers(transactional_id)
    output.show({"terminated": transactional_id}, list)


def main() -> NoReturn:
    run_tool("kafka-transactions", kafka_transactions)
