"""`kafka-reassign-partitions`: move replicas to other brokers.

    --generate   propose where the replicas of topics could be
    --execute    begin; prints what it was, to be able to go back
    --verify     how far it is; exit code 1 while it is under way
    --cancel     stop, and go back
    --list       all that is under way

With --throttle the replicas that are moved take no more than so many bytes a second, on each broker
(KIP-73): the brokers' and topics' limits are set when it begins, changed by another --execute with
--additional, and taken away by --verify when all is done, and by --cancel."""

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
@action_option("generate", "Propose an assignment.")
@action_option("execute", "Begin to move replicas as the file says.")
@action_option("verify", "Tell whether what the file says is done.")
@action_option("cancel", "Stop what the file says.")
@action_option("list", "Show what is under way.")
@click.option("--reassignment-json-file", "file", metavar="FILE", help="Which replicas go where.")
@click.option("--topics-to-move-json-file", "topics_file", metavar="FILE", help="For --generate.")
@click.option("--broker-list", metavar="1,2,…", help="For --generate: the brokers to use.")
@click.option("--disable-rack-aware", is_flag=True, help="Do not look at racks.")
@click.option("--additional", is_flag=True, help="Beside what is under way already.")
@click.option(
    "--disallow-replication-factor-change", is_flag=True, help="Refuse more or fewer replicas."
)
@click.option("--preserve-throttles", is_flag=True, help="Leave the limits as they are.")
@click.option(
    "--throttle",
    type=click.IntRange(min=-1),
    metavar="BYTES",
    default=-1,
    help="For --execute: at most so many bytes a second between brokers; -1 for no limit.",
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
    """Move replicas of partitions to other brokers."""
    if len(actions) != 1:
        raise click.UsageError(f"give exactly one of {', '.join(f'--{each}' for each in ACTIONS)}.")
    (action,) = actions
    if action in ("execute", "verify", "cancel") and file is None:
        raise click.UsageError(f"--{action} needs --reassignment-json-file.")
    if action == "generate" and (topics_file is None or broker_list is None):
        raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list.")
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
    """Bytes a second; negative for no limit."""


def _act(
    admin: Admin,
    output: Output,
    action: str,
    file: str,
    options: ExecuteOptions,
    preserve_throttles: bool,
) -> None:
    from ottla.cli.reassignment_file import read_assignment

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
    described = admin.describe_topics(*topics, return_errors=return_errors)
    return {
        TopicPartition(name, each.partition): each.replicas
        for name in sorted(described)
        for each in described[name].partitions
    }


def _generate(
    admin: Admin, output: Output, topics_file: str, broker_list: str, ignore_racks: bool
) -> None:
    from ottla.cli.reassignment_file import as_json, read_topics
    from ottla.cli.replica_plan import spread

    ids = broker_list.split(",")
    if not all(id.strip().isdecimal() for id in ids):
        raise UserError(f"--broker-list {broker_list} must be ids of brokers: 1,2,3.")
    nodes = admin.describe_cluster().nodes
    brokers = list(dict.fromkeys(map(int, ids)))
    missing = [id for id in brokers if id not in nodes]
    if missing:
        raise UserError(f"There is no broker {missing[0]} in the cluster.")
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
    from ottla.cli.reassignment_file import as_json
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
            states[key] = "is of a partition that does not exist."
        elif present[key] == replicas:
            states[key] = "is completed."
        else:
            found = ",".join(map(str, present[key]))
            states[key] = f"is not there: the replicas are {found}."
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
    """What was done, in Kafka's words."""
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
