"""`kafka-topics`: list, create, describe, alter and delete topics.

Options, output and exit codes are those of Kafka's tool. `--json` is Ottla's. So are `--config` and
`--delete-config` with `--alter`, which Kafka moved to `kafka-configs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.tool import Tool, action_option, run_tool
from ottla.cli.topic_patterns import matching, parse_assignment, parse_configs

if TYPE_CHECKING:
    from ottla.client.admin import Admin, ConfigEntry, PartitionDescription, TopicDescription
    from ottla.client.errors import ClientError

MIN_ISR = "min.insync.replicas"
MAX_REPLICATION_FACTOR = 2**15 - 1
EXAMPLES = """
kafka-topics --list
kafka-topics --create --topic orders --partitions 6 --replication-factor 3
kafka-topics --create --topic prices --config cleanup.policy=compact
kafka-topics --describe --topic orders --bootstrap-server broker1:9092
kafka-topics --describe --under-replicated-partitions
kafka-topics --alter --topic orders --partitions 12
kafka-topics --delete --topic 'test-.*' --if-exists
"""


@dataclass(frozen=True)
class Options:
    """The command line without the connection options."""

    action: str
    topic: str | None
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    configs: tuple[str, ...]
    delete_configs: tuple[str, ...]
    if_exists: bool
    if_not_exists: bool
    exclude_internal: bool
    under_replicated: bool
    unavailable: bool
    under_min_isr: bool
    at_min_isr: bool
    with_overrides: bool

    @property
    def changes_configs(self) -> bool:
        return bool(self.configs or self.delete_configs)

    @property
    def by_state(self) -> bool:
        """Whether only partitions in a certain state are requested."""
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@action_option("list", "List topics.")
@action_option("create", "Create a topic.")
@action_option("describe", "Describe topics and their partitions.")
@action_option("alter", "Add partitions to topics, or change their configuration.")
@action_option("delete", "Delete topics.")
@click.option(
    "--topic",
    metavar="NAME",
    help="Name of the topic. With --list, --describe, --alter and --delete, a regular expression.",
)
@click.option("--topic-id", metavar="ID", help="ID of the topic, for --describe.")
@click.option(
    "--partitions",
    type=int,
    help="Number of partitions of a new topic, or new total number of partitions with --alter.",
)
@click.option(
    "--replication-factor", type=int, help="Number of replicas of each partition of a new topic."
)
@click.option(
    "--replica-assignment",
    metavar="B1:B2,…",
    help="Broker IDs of the replicas of partition 0, of partition 1, …: 1:2,2:3.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Configuration property of the topic. May be repeated.",
)
@click.option(
    "--delete-config",
    "delete_configs",
    multiple=True,
    metavar="NAME",
    help="Configuration property to reset to its default, for --alter. May be repeated.",
)
@click.option(
    "--if-exists", is_flag=True, help="Succeed without doing anything if no topic matches."
)
@click.option(
    "--if-not-exists", is_flag=True, help="Succeed without doing anything if the topic exists."
)
@click.option(
    "--exclude-internal", is_flag=True, help="Exclude internal topics from --list and --describe."
)
@click.option(
    "--under-replicated-partitions",
    "under_replicated",
    is_flag=True,
    help="Describe only partitions with replicas that are not in sync.",
)
@click.option(
    "--unavailable-partitions",
    "unavailable",
    is_flag=True,
    help="Describe only partitions whose leader is not available.",
)
@click.option(
    "--under-min-isr-partitions",
    "under_min_isr",
    is_flag=True,
    help=f"Describe only partitions with fewer in-sync replicas than {MIN_ISR}.",
)
@click.option(
    "--at-min-isr-partitions",
    "at_min_isr",
    is_flag=True,
    help=f"Describe only partitions with exactly as many in-sync replicas as {MIN_ISR}.",
)
@click.option(
    "--topics-with-overrides",
    "with_overrides",
    is_flag=True,
    help="Describe only topics that override a configuration default.",
)
@output_option
def kafka_topics(
    cluster: ClusterOptions, output: Output, actions: tuple[str, ...], **option_values: Any
) -> None:
    """List, create, describe, alter or delete topics."""
    if len(actions) != 1:
        raise click.UsageError(
            "Give exactly one of --list, --create, --describe, --alter and --delete."
        )
    options = Options(action=actions[0], **option_values)
    _check(options)
    with cluster.admin() as admin:
        ACTIONS[options.action](admin, options, output)


def _check(options: Options) -> None:
    action = options.action
    if action in ("create", "alter", "delete") and not options.topic:
        raise click.UsageError(f"--{action} requires --topic.")
    numbers = (options.partitions, options.replication_factor)
    if action == "alter" and not (options.partitions or options.changes_configs):
        raise click.UsageError("--alter requires --partitions, --config or --delete-config.")
    if options.replica_assignment and action == "create" and numbers != (None, None):
        raise click.UsageError(
            "--replica-assignment cannot be combined with --partitions or --replication-factor."
        )
    if options.partitions is not None and options.partitions < 1:
        raise click.UsageError("--partitions must be greater than 0.")
    if options.replication_factor is not None and not (
        1 <= options.replication_factor <= MAX_REPLICATION_FACTOR
    ):
        raise click.UsageError(f"--replication-factor must be 1 to {MAX_REPLICATION_FACTOR}.")
    for name, allowed in ALLOWED.items():
        if getattr(options, name) and action not in allowed:
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            raise click.UsageError(
                f"{flag} can only be used with {' or '.join(f'--{each}' for each in allowed)}, "
                f"not with --{action}."
            )


ALLOWED = {
    "topic_id": ("describe",),
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    "configs": ("create", "alter"),
    "delete_configs": ("alter",),
    "if_exists": ("describe", "alter", "delete"),
    "if_not_exists": ("create",),
    "exclude_internal": ("list", "describe"),
    "under_replicated": ("describe",),
    "unavailable": ("describe",),
    "under_min_isr": ("describe",),
    "at_min_isr": ("describe",),
    "with_overrides": ("describe",),
}
"""Actions that each option may be used with."""
FLAGS = {
    "configs": "--config",
    "delete_configs": "--delete-config",
    "under_replicated": "--under-replicated-partitions",
    "unavailable": "--unavailable-partitions",
    "under_min_isr": "--under-min-isr-partitions",
    "at_min_isr": "--at-min-isr-partitions",
    "with_overrides": "--topics-with-overrides",
}


# -------------------------------------------------------------------------------- the actions


def _list(admin: Admin, options: Options, output: Output) -> None:
    names = _names(admin, options)
    output.show(names, lambda: names)


def _create(admin: Admin, options: Options, output: Output) -> None:
    from ottla.client.admin import NewTopic

    assert options.topic is not None
    assignment = parse_assignment(options.replica_assignment) if options.replica_assignment else []
    topic = NewTopic(
        options.topic,
        -1 if options.partitions is None else options.partitions,
        -1 if options.replication_factor is None else options.replication_factor,
        parse_configs(options.configs),
        assignment,
    )
    if "." in topic.name and "_" in topic.name:
        output.warning(
            f"The topic name '{topic.name}' contains '.' and '_', so its metrics can collide with "
            "those of another topic. Use only one of the two characters."
        )
    try:
        created = admin.create_topics(topic)[topic.name]
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        if not options.if_not_exists:
            raise UserError(f"Topic '{topic.name}' already exists.") from error
        output.show({"topic": topic.name, "created": False}, list)
        return
    result = {"topic": topic.name, "created": True, **created._asdict()}
    output.show(result, lambda: [f"Created topic {topic.name}."])


def _alter(admin: Admin, options: Options, output: Output) -> None:
    names = _existing(admin, options)
    failed: dict[str, ClientError] = {}
    if options.changes_configs:
        failed |= _alter_configs(admin, options, names)
    if options.partitions is not None:
        wanted = dict.fromkeys((name for name in names if name not in failed), options.partitions)
        assignments = {}
        if options.replica_assignment:
            assignment = parse_assignment(options.replica_assignment)
            for name, topic in admin.describe_topics(*wanted).items():
                assignments[name] = assignment[len(topic.partitions) :]
        results = admin.create_partitions(wanted, assignments=assignments, return_errors=True)
        failed |= results.errors
    _report(output, "altered", [name for name in names if name not in failed], failed)


def _alter_configs(admin: Admin, options: Options, names: list[str]) -> dict[str, ClientError]:
    from ottla.client.admin import ConfigResource, ResourceType

    changes: dict[str, str | None] = dict.fromkeys(options.delete_configs)
    changes.update(parse_configs(options.configs))
    results = admin.alter_configs(
        {ConfigResource(ResourceType.TOPIC, name): changes for name in names}, return_errors=True
    )
    return {resource.name: error for resource, error in results.errors.items()}


def _delete(admin: Admin, options: Options, output: Output) -> None:
    results = admin.delete_topics(*_existing(admin, options), return_errors=True)
    _report(output, "deleted", list(results), results.errors)


def _report(output: Output, done: str, names: list[str], failed: Mapping[str, ClientError]) -> None:
    """Print the result as JSON if requested, and raise UserError if a topic failed."""
    from ottla.cli.failure import sentence

    reasons = {name: sentence(error) for name, error in failed.items()}
    output.show({done: names, "errors": reasons}, list)
    if reasons:
        raise UserError("\n".join(reasons.values()))


def _names(admin: Admin, options: Options) -> list[str]:
    known = admin.list_topics(include_internal=not options.exclude_internal)
    return matching(options.topic, known)


def _existing(admin: Admin, options: Options) -> list[str]:
    names = _names(admin, options)
    if not names and options.topic and not options.if_exists:
        raise UserError(f"Topic '{options.topic}' does not exist as expected.")
    return names


# ------------------------------------------------------------------------------------ describe


def _describe(admin: Admin, options: Options, output: Output) -> None:
    topics = _described(admin, options)
    configs = _configs(admin, list(topics))
    live = set(admin.describe_cluster().nodes) if options.unavailable else set()
    shown = []
    for topic in topics.values():
        entries = configs.get(topic.name, {})
        if options.with_overrides and not _overrides(entries):
            continue
        partitions = [
            partition
            for partition in topic.partitions
            if not options.by_state or _is_wanted(partition, entries, live, options)
        ]
        if partitions or not options.by_state:
            shown.append((topic, entries, partitions))
    output.show(
        [_as_value(topic, entries, partitions) for topic, entries, partitions in shown],
        lambda: [
            line
            for topic, entries, partitions in shown
            for line in _as_text(topic, entries, partitions, options)
        ],
    )


def _described(admin: Admin, options: Options) -> dict[str, TopicDescription]:
    if options.topic_id is None:
        found = admin.describe_topics(*_existing(admin, options), return_errors=True)
        for name, error in found.errors.items():
            # The topic may have been deleted since it was listed.
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UserError(f"Cannot describe topic '{name}': {error}.") from error
        return dict(sorted(found.items()))
    try:
        by_id = admin.describe_topics_by_id(options.topic_id, return_errors=True)
    except ValueError:
        raise click.UsageError(
            f"--topic-id {options.topic_id!r} is not a valid topic ID."
        ) from None
    if by_id.errors and not options.if_exists:
        raise UserError(f"TopicId '{options.topic_id}' does not exist as expected.")
    return {topic.name: topic for topic in by_id.values()}


def _configs(admin: Admin, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
    """Return the configurations of topics, without those that the client may not describe."""
    from ottla.client.admin import ConfigResource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found = admin.describe_configs(*resources, return_errors=True)
    return {resource.name: entries for resource, entries in found.items()}


def _overrides(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """Return the properties that differ from Kafka's built-in defaults."""
    return {name: entry.value for name, entry in sorted(entries.items()) if not entry.is_default}


def _is_wanted(
    partition: PartitionDescription,
    entries: Mapping[str, ConfigEntry],
    live: set[int],
    options: Options,
) -> bool:
    in_sync, leader = len(partition.isr), partition.leader
    entry = entries.get(MIN_ISR)
    min_isr = int(entry.value) if entry is not None and entry.value else 1
    return bool(
        (options.under_replicated and in_sync < len(partition.replicas))
        or (options.unavailable and (leader is None or leader not in live))
        or (options.under_min_isr and (leader is None or in_sync < min_isr))
        or (options.at_min_isr and in_sync == min_isr)
    )


def _as_value(
    topic: TopicDescription,
    entries: Mapping[str, ConfigEntry],
    partitions: list[PartitionDescription],
) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": _overrides(entries),
        "partitions": partitions,
    }


def _as_text(
    topic: TopicDescription,
    entries: Mapping[str, ConfigEntry],
    partitions: list[PartitionDescription],
    options: Options,
) -> Iterator[str]:
    if not options.by_state:
        configs = ",".join(f"{name}={value}" for name, value in _overrides(entries).items())
        parts = [f"Topic: {topic.name}"]
        if topic.topic_id is not None:
            parts.append(f"TopicId: {topic.topic_id}")
        parts.append(f"PartitionCount: {len(topic.partitions)}")
        parts.append(f"ReplicationFactor: {topic.replication_factor}")
        parts.append(f"Configs: {configs}")
        yield "\t".join(parts)
    if options.with_overrides:
        return
    for each in partitions:
        yield "\t" + "\t".join(
            (
                f"Topic: {topic.name}",
                f"Partition: {each.partition}",
                f"Leader: {'none' if each.leader is None else each.leader}",
                f"Replicas: {_numbers(each.replicas)}",
                f"Isr: {_numbers(each.isr)}",
                f"Elr: {_numbers(each.eligible_leader_replicas)}",
                f"LastKnownElr: {_numbers(each.last_known_eligible_leader_replicas)}",
            )
        )


def _numbers(numbers: tuple[int, ...] | None) -> str:
    return "N/A" if numbers is None else ",".join(map(str, numbers))


ACTIONS = {
    "list": _list,
    "create": _create,
    "alter": _alter,
    "delete": _delete,
    "describe": _describe,
}


def main() -> NoReturn:
    run_tool("kafka-topics", kafka_topics)
