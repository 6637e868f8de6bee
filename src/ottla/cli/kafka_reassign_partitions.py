"""`kafka-reassign-partitions`: move partition replicas between brokers.

    --generate   propose an assignment for the replicas of topics
    --execute    start a reassignment; prints the current assignment, for a rollback
    --verify     show the progress; the exit code is 1 until the reassignment is complete
    --cancel     cancel the reassignment and restore the original replicas
    --list       list all reassignments in progress

--throttle limits the replication traffic of the reassignment on each broker (KIP-73). --execute
sets the throttles of brokers and topics, --execute --additional changes them, and --verify removes
them when the reassignment is complete, as does --cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.partial_failure import fail_if_any
from ottla.cli.tool import Tool, action_option, run_tool

if TYPE_CHECKING:
    from ottla.cli.replica_plan import Assignment
    from ottla.client.admin import Admin

EXAMPLES = """
kafka-reassign-partitions --generate --topics-to-move-json-file t.json --broker-list 1,2,3
kafka-reassign-partitions --execute --reassignment-json-file plan.json
kafka-reassign-partitions --verify --reassignment-json-file plan.json
"""
ACTIONS = ("generate", "execute", "verify", "cancel", "list")


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@action_option("generate", "Propose a new assignment of replicas to brokers.")
@action_option("execute", "Start the reassignment described by the file.")
@action_option("verify", "Check whether the reassignment described by the file is complete.")
@action_option("cancel", "Cancel the reassignment described by the file.")
@action_option("list", "List the reassignments in progress.")
@click.option(
    "--reassignment-json-file",
    "file",
    metavar="FILE",
    help="JSON file with the replicas of each partition, for --execute, --verify and --cancel.",
)
@click.option(
    "--topics-to-move-json-file",
    "topics_file",
    metavar="FILE",
    help="JSON file with the topics to reassign, for --generate.",
)
@click.option(
    "--broker-list", metavar="1,2,…", help="IDs of the brokers to assign, for --generate."
)
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks, with --generate.")
@click.option(
    "--additional",
    is_flag=True,
    help="Start the reassignment in addition to those in progress, with --execute.",
)
@click.option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="Reject a reassignment that changes the number of replicas, with --execute.",
)
@click.option(
    "--preserve-throttles", is_flag=True, help="Keep the throttles, with --verify and --cancel."
)
@click.option(
    "--throttle",
    type=click.IntRange(min=-1),
    metavar="BYTES",
    default=-1,
    help="Maximum replication traffic in bytes per second, with --execute. -1 sets no limit.",
)
@output_option
def kafka_reassign_partitions(
    cluster: ClusterOptions,
    output: Output,
    actions: tuple[str, ...],
    file: str | None,
    topics_file: str | None,
    broker_list: str | None,
    disable_rack_aware: bool,
    additional: bool,
    disallow_replication_factor_change: bool,
    preserve_throttles: bool,
    throttle: int,
) -> None:
    """Move partition replicas between brokers."""
    if len(actions) != 1:
        raise click.UsageError(f"Give exactly one of {', '.join(f'--{each}' for each in ACTIONS)}.")
    (action,) = actions
    if action in ("execute", "verify", "cancel") and file is None:
        raise click.UsageError(f"--{action} requires --reassignment-json-file.")
    if action == "generate" and (topics_file is None or broker_list is None):
        raise click.UsageError("--generate requires --topics-to-move-json-file and --broker-list.")
    with cluster.admin() as admin:
        if action == "generate":
            _generate(admin, output, str(topics_file), str(broker_list), disable_rack_aware)
        elif action == "list":
            _list(admin, output)
        else:
            options = ExecuteOptions(additional, not disallow_replication_factor_change, throttle)
            _act(admin, output, action, str(file), options, preserve_throttles)


class ExecuteOptions(NamedTuple):
    additional: bool
    may_change_factor: bool
    throttle: int
    """Maximum number of bytes per second; negative for no limit."""


def _act(
    admin: Admin,
    output: Output,
    action: str,
    file: str,
    options: ExecuteOptions,
    preserve_throttles: bool,
) -> None:
    from ottla.cli.partition_files import read_assignment

    assignment = read_assignment(file)
    if action == "execute":
        _execute(admin, output, assignment, options)
    elif action == "verify":
        _verify(admin, output, assignment, preserve_throttles)
    else:
        _cancel(admin, output, assignment, preserve_throttles)


def present_assignment(
    admin: Admin, topics: list[str], *, return_errors: bool = False
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the current replicas of all partitions of the given topics."""
    described = admin.describe_topics(*topics, return_errors=return_errors)
    return {
        TopicPartition(name, each.partition): each.replicas
        for name in sorted(described)
        for each in described[name].partitions
    }


def _generate(
    admin: Admin, output: Output, topics_file: str, broker_list: str, ignore_racks: bool
) -> None:
    from ottla.cli.partition_files import as_json, read_topics
    from ottla.cli.replica_plan import spread

    ids = broker_list.split(",")
    if not all(id.strip().isdecimal() for id in ids):
        raise UserError(f"--broker-list {broker_list} must be a list of broker IDs such as 1,2,3.")
    nodes = admin.describe_cluster().nodes
    brokers = list(dict.fromkeys(map(int, ids)))
    missing = [id for id in brokers if id not in nodes]
    if missing:
        there = ", ".join(map(str, sorted(nodes)))
        raise UserError(f"Broker {missing[0]} does not exist. The brokers of the cluster: {there}.")
    knows_racks = not ignore_racks and all(nodes[id].rack for id in brokers)
    racks = {id: nodes[id].rack if knows_racks else None for id in brokers}
    present = present_assignment(admin, read_topics(topics_file))
    proposed = spread({key: len(replicas) for key, replicas in present.items()}, racks)
    output.show(
        {"present": _plain(present), "proposed": _plain(proposed)},
        lambda: [
            "Current partition replica assignment",
            as_json(present),
            "",
            "Proposed partition reassignment configuration",
            as_json(proposed),
        ],
    )


def _execute(admin: Admin, output: Output, wanted: Assignment, options: ExecuteOptions) -> None:
    from ottla.cli.partition_files import as_json
    from ottla.cli.reassignment_throttle import limit

    if not options.additional and admin.list_partition_reassignments():
        raise UserError(
            "There is an existing assignment running. Use --additional to add to it, or --cancel."
        )
    present = present_assignment(admin, sorted({key.topic for key in wanted}))
    before = {key: present[key] for key in wanted if key in present}
    if options.throttle >= 0:
        limit(admin, options.throttle, before, wanted)
    results = admin.alter_partition_reassignments(
        wanted, may_change_factor=options.may_change_factor, return_errors=True
    )
    begun = [str(key) for key in results]
    output.show(
        {"before": _plain(before), "started": begun},
        lambda: [
            "Current partition replica assignment",
            "",
            as_json(before),
            "",
            "Save this to use as the --reassignment-json-file option during rollback",
            *(
                [
                    "Warning: You must run --verify periodically, until the reassignment "
                    "completes, to ensure the throttle is removed.",
                    f"The inter-broker throttle limit was set to {options.throttle} B/s",
                ]
                if options.throttle >= 0
                else []
            ),
            *(
                [f"Successfully started partition reassignments for {','.join(begun)}"]
                if begun
                else []
            ),
        ],
    )
    fail_if_any(results.errors, "Reassignment of")


def _verify(admin: Admin, output: Output, wanted: Assignment, preserve_throttles: bool) -> None:
    moving = admin.list_partition_reassignments(list(wanted))
    present = present_assignment(admin, sorted({key.topic for key in wanted}), return_errors=True)
    states = {}
    for key, replicas in wanted.items():
        if key in moving:
            states[key] = "is still in progress."
        elif key not in present:
            states[key] = "is for a partition that does not exist."
        elif present[key] == replicas:
            states[key] = "is completed."
        else:
            found = ",".join(map(str, present[key]))
            states[key] = f"has not taken effect: the replicas are {found}."
    cleared = _clear_throttles(admin, wanted, preserve_throttles or bool(moving))
    output.show(
        {str(key): state for key, state in states.items()},
        lambda: [
            "Status of partition reassignment:",
            *(f"Reassignment of partition {key} {state}" for key, state in states.items()),
            *cleared,
        ],
    )
    if any(state != "is completed." for state in states.values()):
        raise click.exceptions.Exit(1)


def _clear_throttles(admin: Admin, wanted: Assignment, preserve: bool) -> list[str]:
    """Remove the throttles unless reassignments are in progress; return Kafka's report lines."""
    from ottla.cli.reassignment_throttle import unlimit

    if preserve or admin.list_partition_reassignments():
        return []
    return unlimit(admin, sorted({key.topic for key in wanted}))


def _cancel(admin: Admin, output: Output, wanted: Assignment, preserve_throttles: bool) -> None:
    moving = admin.list_partition_reassignments(list(wanted))
    results = admin.alter_partition_reassignments(dict.fromkeys(moving), return_errors=True)
    cancelled = [str(key) for key in results]
    cleared = _clear_throttles(admin, wanted, preserve_throttles)
    output.show(
        {"cancelled": cancelled},
        lambda: [
            f"Successfully cancelled partition reassignments for: {','.join(cancelled)}"
            if cancelled
            else "None of the specified partition reassignments are active.",
            *cleared,
        ],
    )
    fail_if_any(results.errors, "Reassignment of")


def _list(admin: Admin, output: Output) -> None:
    moving = admin.list_partition_reassignments()

    def lines() -> list[str]:
        if not moving:
            return ["No partition reassignments found."]
        return [
            "Current partition reassignments:",
            *(
                f"{key}: replicas: {_ids(each.replicas)}. adding: {_ids(each.adding)}. "
                f"removing: {_ids(each.removing)}."
                for key, each in moving.items()
            ),
        ]

    output.show({str(key): each for key, each in moving.items()}, lines)


def _ids(replicas: tuple[int, ...]) -> str:
    return ",".join(map(str, replicas))


def _plain(assignment: Assignment) -> dict[str, list[int]]:
    return {str(key): list(replicas) for key, replicas in assignment.items()}


def main() -> NoReturn:
    run_tool("kafka-reassign-partitions", kafka_reassign_partitions)
