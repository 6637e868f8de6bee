"""`kafka-consumer-groups`: list, describe, reset and delete groups and their offsets.

Options and output are those of Kafka's tool; `--json` is ours. It ends with exit code 1 when any of
the groups failed, and says which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.errors import ErrorCode, UserError
from ottla.cli.connection_options import ClusterOptions, cluster_options
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
    """The command line, but for where to send it."""

    action: str
    groups: tuple[str, ...]
    all_groups: bool
    topics: tuple[str, ...]
    all_topics: bool
    offsets: bool
    members: bool
    verbose: bool
    state: str | None
    """"" where it is given without a value."""
    type: str | None
    dry_run: bool
    execute: bool
    export: bool
    target: Target


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@action_option("list", "List the groups.")
@action_option("describe", "Show groups: their offsets with the lag, unless told otherwise.")
@action_option(
    "reset-offsets", "Plan new offsets for groups without members, or set them (--execute)."
)
@action_option("delete-offsets", "Delete what a group has committed for topics.")
@action_option("delete", "Delete groups without members.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="May be given again.")
@click.option("--all-groups", is_flag=True, help="Instead of --group: all of them.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1,…]",
    help="Of which topics, or of which of their partitions; may be given again.",
)
@click.option("--all-topics", is_flag=True, help="All topics for which the group has committed.")
@click.option("--offsets", is_flag=True, help="With --describe: the offsets (the default).")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option("--verbose", is_flag=True, help="With --describe: more of it.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="With --describe: the group's state. With --list: show states, of some states only.",
)
@click.option(
    "--type",
    is_flag=False,
    flag_value="",
    metavar="[TYPES]",
    help="With --list: show types (classic, consumer, …), of some types only.",
)
@click.option("--to-earliest", is_flag=True, help="To the first record there is.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To what is committed; else to the end.")
@click.option("--to-offset", type=int, help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="So much on, or back if it is negative.")
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDTHH:mm:SS.sss",
    help="To the first record that is not older.",
)
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To what came in since then.")
@click.option("--from-file", metavar="FILE", help="As a file says that --export wrote.")
@click.option("--dry-run", is_flag=True, help="Only show the plan (the default).")
@click.option("--execute", is_flag=True, help="Set the offsets.")
@click.option("--export", is_flag=True, help="Print the plan as CSV, for --from-file.")
@click.option("--timeout", "timeout_ms", type=int, metavar="MS", help="For each question.")
@output_option
def kafka_consumer_groups(
    cluster: ClusterOptions,
    output: Output,
    actions: tuple[str, ...],
    timeout_ms: int | None,
    **given: Any,
) -> None:
    """List, describe, reset and delete consumer groups and their offsets."""
    from ottla.cli.group_reset import Target

    if len(actions) != 1:
        raise click.UsageError(
            "Give exactly one of --list, --describe, --reset-offsets, --delete-offsets, --delete."
        )
    target = Target(**{field.name: given.pop(field.name) for field in fields(Target)})
    options = Options(action=actions[0], target=target, **given)
    _check(options)
    with cluster.admin(timeout_ms=timeout_ms) as admin:
        ACTIONS[options.action](admin, options, output)


def _check(options: Options) -> None:
    action = options.action
    if bool(options.groups) == options.all_groups and action != "list":
        raise click.UsageError(f"--{action} needs --group or --all-groups, and not both.")
    if action == "list" and (options.groups or options.all_groups):
        raise click.UsageError("--list shows all groups; --describe takes --group.")
    if action == "describe":
        if options.offsets + options.members + (options.state is not None) > 1:
            raise click.UsageError("--describe takes one of --offsets, --members and --state.")
        if options.state:
            raise click.UsageError("--state takes a value only with --list.")
    elif options.offsets or options.members or options.verbose:
        raise click.UsageError("--offsets, --members and --verbose go with --describe.")
    if options.type is not None and action != "list":
        raise click.UsageError("--type goes with --list.")
    if options.state is not None and action not in ("list", "describe"):
        raise click.UsageError("--state goes with --list and --describe.")
    if action == "delete-offsets" and (len(options.groups) != 1 or not options.topics):
        raise click.UsageError("--delete-offsets needs one --group and a --topic.")
    if action not in ("reset-offsets", "delete-offsets") and (options.topics or options.all_topics):
        raise click.UsageError("--topic goes with --reset-offsets and --delete-offsets.")
    _check_reset(options)


def _check_reset(options: Options) -> None:
    target = options.target
    given = [
        f"--{name.replace('_', '-')}"
        for name in TARGETS
        if getattr(target, name) not in (None, False)
    ]
    if options.action != "reset-offsets":
        given += [f"--{each}" for each in ("execute", "export") if getattr(options, each)]
        if given or options.dry_run:
            raise click.UsageError(f"{(given or ['--dry-run'])[0]} goes with --reset-offsets.")
        return
    if len(given) != 1:
        all_of_them = ", ".join(f"--{name.replace('_', '-')}" for name in TARGETS)
        raise click.UsageError(f"--reset-offsets needs one of {all_of_them}.")
    if options.dry_run and options.execute:
        raise click.UsageError("--dry-run and --execute exclude each other.")
    if target.from_file is None and bool(options.topics) == options.all_topics:
        raise click.UsageError("--reset-offsets needs --topic or --all-topics, and not both.")
    # What cannot be read is said before a broker is asked.
    target.timestamp_ms(0)


# ---------------------------------------------------------------------------------------- list


def _list(admin: Admin, options: Options, output: Output) -> None:
    states = _chosen(options.state, STATES, "states")
    types = _chosen(options.type, TYPES, "types")
    listed = admin.list_groups(states=states, types=types).values()
    # Groups of other protocols (Connect's workers) are not consumers'.
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
                f"There are no {what} {word.strip()!r}; there are {', '.join(by_lower.values())}."
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
    """Tables under each other, an empty line between them."""
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
        output.note("Nothing was changed: --execute sets these offsets.")
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
    """A group that does not exist yet may be given offsets to begin with."""
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
                raise UserError(f"there is no plan for group {name} in the file")
            return group_reset.within(admin, plans[name], output.note)
        if options.all_topics:
            partitions = list(admin.list_group_offsets(name)[name])
            if not partitions:
                raise UserError(f"group {name} has committed nothing: name the topics with --topic")
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
