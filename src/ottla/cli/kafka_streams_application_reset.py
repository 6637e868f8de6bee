"""`kafka-streams-application-reset`: reset a stopped application to start from scratch.

Options and output are those of Kafka's tool; `--state-dir` and `--json` are Ottla's. The tool
resets the offsets of input topics and deletes internal topics. Unlike Kafka's tool it also deletes
the checkpoints and state on this machine, because an application with a checkpoint ignores the
committed offsets. It works for Kafka Streams applications as well, which have no such files."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.errors import ErrorCode, UserError
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.options import reset_target_options
from ottla.cli.output import Output, output_option
from ottla.cli.tool import Tool, run_tool

if TYPE_CHECKING:
    from ottla.cli.group_reset import Plan, Target
    from ottla.client.admin import Admin

NO_MEMBERS = ("Empty", "Dead")
TARGETS = (
    *("to_earliest", "to_latest", "to_offset", "shift_by", "to_datetime", "by_duration"),
    "from_file",
)
EXAMPLES = """
kafka-streams-application-reset --application-id orders --input-topics orders --dry-run
kafka-streams-application-reset --application-id orders --input-topics orders,clicks
kafka-streams-application-reset --application-id orders --input-topics orders --by-duration PT1H
"""


@dataclass(frozen=True)
class ResetSummary:
    """Changes that the reset has made, or would make with `--dry-run`."""

    offsets: dict[str, Plan]
    """New offsets by group."""
    missing_topics: list[str]
    deleted_topics: list[str]
    deleted_files: list[str]


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options(config_names=("--command-config", "--config-file"))
@click.option(
    "--application-id",
    required=True,
    metavar="ID",
    help="Name of the application (application.id).",
)
@click.option(
    "--input-topics",
    metavar="LIST",
    help="Comma-separated input topics, whose offsets are reset.",
)
@click.option(
    "--intermediate-topics",
    metavar="LIST",
    help="Comma-separated topics that the application writes and reads, whose offsets are set to "
    "the end.",
)
@click.option(
    "--internal-topics",
    metavar="LIST",
    help="Comma-separated internal topics to delete.  [default: all]",
)
@click.option(
    "--to-earliest", is_flag=True, help="Reset offsets to the log start offset (the default)."
)
@click.option("--to-latest", is_flag=True, help="Reset offsets to the log end offset.")
@reset_target_options
@click.option(
    "--from-file",
    metavar="FILE",
    help="Reset offsets to those of a CSV file with lines topic,partition,offset.",
)
@click.option(
    "--state-dir",
    metavar="DIR",
    help="State directory of the application.  [default: the default of stream applications]",
)
@click.option("--force", is_flag=True, help="Remove active members from the consumer group.")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@output_option
def kafka_streams_application_reset(
    cluster: ClusterOptions, output: Output, application_id: str, **option_values: Any
) -> int:
    """Reset a stream application's offsets and state.

    Resets the offsets of input topics, and deletes the application's internal topics, checkpoints
    and local state. Stop all instances of the application first.
    """
    from ottla.cli.group_reset import Target

    chosen = [name for name in TARGETS if option_values[name] not in (None, False)]
    if len(chosen) > 1:
        raise click.UsageError(
            f"--{chosen[0].replace('_', '-')} and --{chosen[1].replace('_', '-')} cannot be "
            "combined."
        )
    if not chosen:
        option_values["to_earliest"] = True
    target = Target(
        **{
            each.name: option_values[each.name]
            for each in fields(Target)
            if each.name in option_values
        }
    )
    target.timestamp_ms(0)  # report a malformed time before connecting to a broker
    state_dir = _state_dir(option_values["state_dir"])
    with _locked(state_dir, application_id), cluster.admin() as admin:
        done = _reset(admin, application_id, target, state_dir, option_values, output)
    output.show(done, lambda: _lines(application_id, done, is_dry=option_values["dry_run"]))
    return 1 if done.missing_topics else 0


def _state_dir(state_dir: str | None) -> str:
    from ottla.streams.checkpoint import default_state_dir, is_remote

    if state_dir is not None and is_remote(state_dir):
        raise UserError(
            f"The state directory {state_dir} is not on this machine. Call app.reset() in the "
            "application to delete remote state with Spark."
        )
    return state_dir or str(default_state_dir())


class _locked:  # noqa: N801 - used like a function, in a with statement
    """Context manager that holds the application's lock, if the application has run here."""

    def __init__(self, state_dir: str, name: str) -> None:
        from ottla.streams.checkpoint import AppLock

        self._lock = AppLock(state_dir, name)

    def __enter__(self) -> None:
        if self._lock.path.exists():
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def _reset(
    admin: Admin,
    name: str,
    target: Target,
    state_dir: str,
    option_values: dict[str, Any],
    output: Output,
) -> ResetSummary:
    from ottla.streams import reset as streams_reset
    from ottla.streams.checkpoint import LocalFiles
    from ottla.streams.internal_topics import internal_topics_of

    is_dry = option_values["dry_run"]
    inputs, between = (
        _split_names(option_values["input_topics"]),
        _split_names(option_values["intermediate_topics"]),
    )
    there = admin.list_topics()
    missing = [topic for topic in (*inputs, *between) if topic not in there]
    sinks = streams_reset.sink_topics(state_dir, name, LocalFiles())
    groups = _groups(admin, name, sinks)
    for group in groups:
        _check_members(admin, group, force=option_values["force"], is_dry=is_dry)
    internal = internal_topics_of(name, there, (*inputs, *between), sinks)
    internal = _chosen(name, internal, _split_names(option_values["internal_topics"]))
    plans = {}
    for group in groups:
        plans[group] = _plan(
            admin, group, [topic for topic in inputs if topic in there], target, output
        ) | streams_reset.end_offsets(admin, [topic for topic in between if topic in there])
    files = streams_reset.files_of(state_dir, name, LocalFiles())
    if not is_dry:
        for group, plan in plans.items():
            if plan:
                admin.alter_group_offsets(group, plan)
        streams_reset.delete_topics(admin, internal)
        streams_reset.delete_files(state_dir, name, LocalFiles())
    return ResetSummary(plans, missing, internal, files)


def _split_names(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def _groups(admin: Admin, name: str, sinks: list[str]) -> list[str]:
    """Return the application's consumer groups. With several sinks, each query has its own."""
    if len(sinks) < 2:
        return [name]
    wanted = [f"{name}-{topic}" for topic in sinks]
    there = admin.list_groups()
    return [each for each in wanted if each in there] or wanted


def _check_members(admin: Admin, group: str, *, force: bool, is_dry: bool) -> None:
    found = admin.describe_groups(group, return_errors=True)
    error = found.errors.get(group)
    if error is not None and error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        raise error
    if group not in found or not found[group].members:
        return
    members = found[group].members
    if not force:
        raise UserError(
            f"Consumer group '{group}' is still active and has {len(members)} members. Stop all "
            "instances of the application first, or remove the members with --force."
        )
    if not is_dry:
        admin.remove_members_from_group(
            group,
            [each.group_instance_id for each in members if each.group_instance_id],
            member_ids=[each.member_id for each in members if not each.group_instance_id],
            reason="kafka-streams-application-reset --force",
        )


def _chosen(name: str, internal: list[str], chosen: list[str]) -> list[str]:
    wrong = [topic for topic in chosen if topic not in internal]
    if wrong:
        raise UserError(
            f"--internal-topics: {wrong[0]} is not an internal topic of {name}. Its internal "
            f"topics: {', '.join(internal) or 'none'}."
        )
    return chosen or internal


def _plan(admin: Admin, group: str, topics: list[str], target: Target, output: Output) -> Plan:
    from ottla.cli import group_reset

    if not topics:
        return {}
    partitions = group_reset.partitions_of(admin, topics)
    if target.from_file is not None:
        plan = group_reset.read_plans(target.from_file, [group]).get(group, {})
        missing = [each for each in partitions if each not in plan]
        if missing:
            raise UserError(f"{target.from_file} has no offset for partition {missing[0]}.")
        wanted = {each: plan[each] for each in partitions}
        return group_reset.clamp_to_log(admin, wanted, output.note)
    return group_reset.make_plan(admin, group, partitions, target, output.note)


def _lines(name: str, done: ResetSummary, *, is_dry: bool) -> list[str]:
    would = "would be" if is_dry else "were"
    lines = []
    if is_dry:
        lines.append("Dry run: nothing was changed. A run without --dry-run makes these changes.")
    if done.missing_topics:
        lines.append("Following topics are not found, skipping them")
        lines += [f"Topic: {topic}" for topic in done.missing_topics]
    for group, plan in done.offsets.items():
        if not plan:
            lines.append("No input or intermediate topics specified. Skipping seek.")
            continue
        lines.append(f"Offsets {would} reset to (for consumer group {group})")
        lines += [
            f"Topic: {tp.topic} Partition: {tp.partition} Offset: {offset}"
            for tp, offset in sorted(plan.items())
        ]
    lines.append(f"Internal topics that {would} deleted: [{', '.join(done.deleted_topics)}]")
    lines.append(f"Files that {would} deleted: [{', '.join(done.deleted_files)}]")
    return [*lines, "Done."]


def main() -> NoReturn:
    run_tool("kafka-streams-application-reset", kafka_streams_application_reset)
