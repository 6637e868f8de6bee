"""`kafka-consumer-groups`: list, describe, reset and delete groups and their offsets.

Options and output are those of Kafka's tool; `--json` is Ottla's. If some of the groups fail, the
tool reports each failure and exits with code 1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.errors import ErrorCode, UserError
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.options import reset_target_options
from ottla.cli.output import Output, output_option, table
from ottla.cli.partial_failure import fail_if_any, reasons
from ottla.cli.tool import Tool, action_option, run_tool

if TYPE_CHECKING:
    from ottla.base.types import TopicPartition
    from ottla.cli.group_reset import Plan, Target
    from ottla.client.admin import Admin, GroupDescription
    from ottla.client.errors import ClientError

STATES = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning"),
    *("Reconciling", "NotReady"),
)
TYPES = ("classic", "consumer", "share", "streams")
NO_MEMBERS = ("Empty", "Dead")
TARGETS = (
    *("to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "to_datetime"),
    *("by_duration", "from_file"),
)
EXAMPLES = """
kafka-consumer-groups --list --state
kafka-consumer-groups --describe --group billing
kafka-consumer-groups --describe --all-groups --json
kafka-consumer-groups --describe --group billing --members --verbose
kafka-consumer-groups --reset-offsets --group billing --topic orders --to-earliest
kafka-consumer-groups --reset-offsets --group billing --all-topics --by-duration PT1H --execute
kafka-consumer-groups --reset-offsets --group billing --topic orders:0,1 --to-offset 42 --export
kafka-consumer-groups --delete-offsets --group billing --topic orders
kafka-consumer-groups --delete --group billing
"""


@dataclass(frozen=True)
class Options:
    """The command line without the connection options."""

    action: str
    groups: tuple[str, ...]
    all_groups: bool
    topics: tuple[str, ...]
    all_topics: bool
    offsets: bool
    members: bool
    verbose: bool
    state: str | None
    """Value of `--state`; '' if the option has no value, None if it is not given."""
    type: str | None
    dry_run: bool
    execute: bool
    export: bool
    target: Target


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@action_option("list", "List consumer groups.")
@action_option("describe", "Describe groups: offsets and lag, members, or state.")
@action_option(
    "reset-offsets",
    "Reset the offsets of inactive groups. Only shows the new offsets without --execute.",
)
@action_option("delete-offsets", "Delete the committed offsets of a group for topics.")
@action_option("delete", "Delete inactive groups.")
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Name of a group. May be repeated."
)
@click.option("--all-groups", is_flag=True, help="Select all groups, instead of --group.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1,…]",
    help="Topic, optionally with partitions, whose offsets are reset or deleted. May be repeated.",
)
@click.option(
    "--all-topics", is_flag=True, help="Select all topics with committed offsets of the group."
)
@click.option(
    "--offsets", is_flag=True, help="Show offsets and lag, with --describe (the default)."
)
@click.option("--members", is_flag=True, help="Show the members, with --describe.")
@click.option("--verbose", is_flag=True, help="Show more columns, with --describe.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="Show the state of groups, with --describe or --list. With --list, a comma-separated list "
    "of states selects groups.",
)
@click.option(
    "--type",
    is_flag=False,
    flag_value="",
    metavar="[TYPES]",
    help="Show the type of groups (classic, consumer, …), with --list. A comma-separated list of "
    "types selects groups.",
)
@click.option("--to-earliest", is_flag=True, help="Reset offsets to the log start offset.")
@click.option("--to-latest", is_flag=True, help="Reset offsets to the log end offset.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Reset offsets to the committed offset, or to the log end offset if there is none.",
)
@reset_target_options
@click.option(
    "--from-file", metavar="FILE", help="Reset offsets to those of a file written with --export."
)
@click.option(
    "--dry-run", is_flag=True, help="Show the new offsets without setting them (the default)."
)
@click.option("--execute", is_flag=True, help="Set the new offsets.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV for --from-file.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=int,
    metavar="MS",
    help="Timeout of each request, in milliseconds.  [default: 10000]",
)
@output_option
def kafka_consumer_groups(
    cluster: ClusterOptions,
    output: Output,
    actions: tuple[str, ...],
    timeout_ms: int | None,
    **option_values: Any,
) -> None:
    """Manage consumer groups and their offsets."""
    from ottla.cli.group_reset import Target

    if len(actions) != 1:
        raise click.UsageError(
            "Give exactly one of --list, --describe, --reset-offsets, --delete-offsets and "
            "--delete."
        )
    target = Target(**{field.name: option_values.pop(field.name) for field in fields(Target)})
    options = Options(action=actions[0], target=target, **option_values)
    _check(options)
    with cluster.admin(timeout_ms=timeout_ms) as admin:
        ACTIONS[options.action](admin, options, output)


def _check(options: Options) -> None:
    action = options.action
    if bool(options.groups) == options.all_groups and action != "list":
        raise click.UsageError(f"--{action} requires either --group or --all-groups.")
    if action == "list" and (options.groups or options.all_groups):
        raise click.UsageError("--list always lists all groups. Use --describe with --group.")
    if action == "describe":
        if options.offsets + options.members + (options.state is not None) > 1:
            raise click.UsageError(
                "--describe accepts only one of --offsets, --members and --state."
            )
        if options.state:
            raise click.UsageError("--state takes a value only with --list.")
    elif options.offsets or options.members or options.verbose:
        raise click.UsageError(
            "--offsets, --members and --verbose can only be used with --describe."
        )
    if options.type is not None and action != "list":
        raise click.UsageError("--type can only be used with --list.")
    if options.state is not None and action not in ("list", "describe"):
        raise click.UsageError("--state can only be used with --list or --describe.")
    if action == "delete-offsets" and (len(options.groups) != 1 or not options.topics):
        raise click.UsageError("--delete-offsets requires exactly one --group and a --topic.")
    if action not in ("reset-offsets", "delete-offsets") and (options.topics or options.all_topics):
        raise click.UsageError(
            "--topic and --all-topics can only be used with --reset-offsets or --delete-offsets."
        )
    _check_reset(options)


def _check_reset(options: Options) -> None:
    target = options.target
    flags = [
        f"--{name.replace('_', '-')}"
        for name in TARGETS
        if getattr(target, name) not in (None, False)
    ]
    if options.action != "reset-offsets":
        flags += [f"--{each}" for each in ("execute", "export") if getattr(options, each)]
        if flags or options.dry_run:
            name = (flags or ["--dry-run"])[0]
            raise click.UsageError(f"{name} can only be used with --reset-offsets.")
        return
    if len(flags) != 1:
        all_of_them = ", ".join(f"--{name.replace('_', '-')}" for name in TARGETS)
        raise click.UsageError(f"--reset-offsets requires exactly one of {all_of_them}.")
    if options.dry_run and options.execute:
        raise click.UsageError("--dry-run and --execute cannot be combined.")
    if target.from_file is None and bool(options.topics) == options.all_topics:
        raise click.UsageError("--reset-offsets requires either --topic or --all-topics.")
    # Report a malformed time before connecting to a broker.
    target.timestamp_ms(0)


# ---------------------------------------------------------------------------------------- list


def _list(admin: Admin, options: Options, output: Output) -> None:
    states = _chosen(options.state, STATES, "states")
    types = _chosen(options.type, TYPES, "types")
    listed = admin.list_groups(states=states, types=types).values()
    # Groups with other protocol types, such as Connect workers, are not consumer groups.
    groups = [each for each in listed if each.protocol_type in ("", "consumer")]
    columns = ["GROUP", *(["TYPE"] if options.type is not None else [])]
    columns += ["STATE"] if options.state is not None else []
    names = {"GROUP": "group_id", "TYPE": "type", "STATE": "state"}
    output.show(
        groups,
        lambda: (
            [each.group_id for each in groups]
            if len(columns) == 1
            else table(
                columns, ([getattr(each, names[name]) for name in columns] for each in groups)
            )
        ),
    )


def _chosen(text: str | None, known: Iterable[str], what: str) -> list[str]:
    if not text:
        return []
    by_lower = {each.lower(): each for each in known}
    chosen = []
    for word in text.split(","):
        found = by_lower.get(word.strip().lower())
        if found is None:
            raise click.UsageError(
                f"Unknown {what} {word.strip()!r}. Use any of {', '.join(by_lower.values())}."
            )
        chosen.append(found)
    return chosen


# ------------------------------------------------------------------------------------ describe


def _describe(admin: Admin, options: Options, output: Output) -> None:
    from ottla.cli import group_tables

    groups, errors = _described(admin, options)
    for group in groups:
        if group.state == "Empty":
            output.warning(f"Consumer group '{group.group_id}' has no active members.")
        elif group.state not in ("Stable", "Dead"):
            output.warning(f"Consumer group '{group.group_id}' is rebalancing.")
    failed = reasons(errors)
    if options.members:
        output.show(
            {"groups": groups, "errors": failed},
            lambda: _blocks(
                group_tables.members_table(each, verbose=options.verbose)
                for each in groups
                if each.members
            ),
        )
    elif options.state is not None:
        output.show(
            {"groups": [_without_members(each) for each in groups], "errors": failed},
            lambda: group_tables.state_table(groups, verbose=options.verbose) if groups else [],
        )
    else:
        rows = {each.group_id: group_tables.offset_rows(admin, each) for each in groups}
        output.show(
            {
                "groups": [
                    {**_without_members(each), "partitions": rows[each.group_id]} for each in groups
                ],
                "errors": failed,
            },
            lambda: _blocks(
                group_tables.offsets_table(each, verbose=options.verbose)
                for each in rows.values()
                if each
            ),
        )
    fail_if_any(errors, "Consumer group")


def _described(
    admin: Admin, options: Options
) -> tuple[list[GroupDescription], dict[str, ClientError]]:
    found = admin.describe_groups(*_names(admin, options), return_errors=True)
    return [found[name] for name in sorted(found)], found.errors


def _names(admin: Admin, options: Options) -> list[str]:
    if not options.all_groups:
        return list(options.groups)
    listed = admin.list_groups().values()
    return [each.group_id for each in listed if each.protocol_type in ("", "consumer")]


def _without_members(group: GroupDescription) -> dict[str, object]:
    value = {field.name: getattr(group, field.name) for field in fields(group)}
    value["members"] = len(group.members)
    return value


def _blocks(tables: Iterable[list[str]]) -> list[str]:
    """Return the lines of all tables, with an empty line between tables."""
    lines: list[str] = []
    for each in tables:
        lines += ["", *each] if lines else each
    return lines


# --------------------------------------------------------------------------------------- reset


def _reset(admin: Admin, options: Options, output: Output) -> None:
    from ottla.cli import group_reset, group_tables

    found = admin.describe_groups(*_names(admin, options), return_errors=True)
    errors: dict[str, Exception] = {}
    plans: dict[str, Plan] = {}
    for name in _names(admin, options):
        try:
            _check_inactive(name, found.get(name), found.errors.get(name))
            plans[name] = _plan(admin, name, options, output)
        except UserError as error:
            errors[name] = error
    if options.execute:
        for name, plan in list(plans.items()):
            results = admin.alter_group_offsets(name, plan, return_errors=True)
            for partition, failure in results.errors.items():
                errors[f"{name} {partition}"] = failure
                del plan[partition]
    else:
        output.note("Dry run: no offsets were changed. Add --execute to set these offsets.")
    if options.export and not output.as_json:
        single = len(options.groups) == 1
        for line in group_reset.export(plans, with_group=not single):
            click.echo(line)
    else:
        output.show(
            {"executed": options.execute, "offsets": _as_values(plans), "errors": reasons(errors)},
            lambda: group_tables.plans_table(plans) if any(plans.values()) else [],
        )
    fail_if_any(errors, "Group")


def _check_inactive(name: str, group: GroupDescription | None, error: ClientError | None) -> None:
    """Raise UserError if the group has members. A group that does not exist is inactive."""
    if error is not None and error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        raise UserError(str(error)) from error
    if group is not None and group.state not in NO_MEMBERS:
        raise UserError(
            f"offsets can only be reset if group '{name}' is inactive, and it is {group.state}"
        )


def _plan(admin: Admin, name: str, options: Options, output: Output) -> Plan:
    from ottla.base.errors import KafkaError
    from ottla.cli import group_reset

    try:
        if options.target.from_file is not None:
            plans = group_reset.read_plans(options.target.from_file, options.groups)
            if name not in plans:
                raise UserError(f"{options.target.from_file} has no offsets for group {name}")
            return group_reset.clamp_to_log(admin, plans[name], output.note)
        if options.all_topics:
            partitions = list(admin.list_group_offsets(name)[name])
            if not partitions:
                raise UserError(
                    f"group {name} has no committed offsets, so name the topics with --topic"
                )
        else:
            partitions = group_reset.partitions_of(admin, options.topics)
        return group_reset.make_plan(admin, name, partitions, options.target, output.note)
    except KafkaError as error:
        raise UserError(str(error)) from error


def _as_values(plans: dict[str, Plan]) -> list[dict[str, object]]:
    return [
        {"group": group, "topic": topic, "partition": partition, "new_offset": offset}
        for group, plan in plans.items()
        for (topic, partition), offset in plan.items()
    ]


# -------------------------------------------------------------------------------------- delete


def _delete_offsets(admin: Admin, options: Options, output: Output) -> None:
    from ottla.cli.group_reset import partitions_of

    (group,) = options.groups
    partitions: list[TopicPartition] = partitions_of(admin, options.topics)
    results = admin.delete_group_offsets(group, partitions, return_errors=True)
    failed = reasons(results.errors)
    output.show(
        {"group": group, "deleted": list(results), "errors": failed},
        lambda: table(
            ("TOPIC", "PARTITION", "STATUS"),
            (
                (*each, "Successful" if each in results else f"Error: {failed[str(each)]}")
                for each in partitions
            ),
        ),
    )
    fail_if_any(results.errors, f"Group {group}")


def _delete(admin: Admin, options: Options, output: Output) -> None:
    results = admin.delete_groups(*_names(admin, options), return_errors=True)
    names = ", ".join(f"'{name}'" for name in results)
    output.show(
        {"deleted": list(results), "errors": reasons(results.errors)},
        lambda: (
            [f"Deletion of requested consumer groups ({names}) was successful."] if results else []
        ),
    )
    fail_if_any(results.errors, "Group")


ACTIONS = {
    "list": _list,
    "describe": _describe,
    "reset-offsets": _reset,
    "delete-offsets": _delete_offsets,
    "delete": _delete,
}


def main() -> NoReturn:
    run_tool("kafka-consumer-groups", kafka_consumer_groups)
