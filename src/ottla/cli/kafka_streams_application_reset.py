"""`kafka-streams-application-reset`: make a stopped application begin anew.

Options and output are those of Kafka's tool; `--state-dir` and `--json` are ours. It sets the
offsets of input topics, deletes internal topics and, unlike Kafka's, the checkpoints and state that
are on this machine: an application with a checkpoint goes on from there, whatever its group says.
It serves applications of Kafka Streams too, which have no such files."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.errors import ErrorCode, UserError
from ottla.cli.connection_options import ClusterOptions, cluster_options
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
class Done:
    """What was done, or would be."""

    offsets: dict[str, Plan]
    """By group."""
    missing_topics: list[str]
    deleted_topics: list[str]
    deleted_files: list[str]


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options(config_names=("--command-config", "--config-file"))
@click.option("--application-id", required=True, metavar="ID", help="The application's name.")
@click.option("--input-topics", metavar="LIST", help="Topics, with commas: to their beginning, "
              "or as another option says.")  # fmt: skip
@click.option("--intermediate-topics", metavar="LIST", help="Topics that it writes and reads "
              "again: to their end.")  # fmt: skip
@click.option("--internal-topics", metavar="LIST", help="Of the internal topics, delete only "
              "these.")  # fmt: skip
@click.option("--to-earliest", is_flag=True, help="To the first record there is (the default).")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", type=int, help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="So much on, or back if it is negative.")
@click.option("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss", help="To the first record that "
              "is not older.")  # fmt: skip
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To what came in since then.")
@click.option("--from-file", metavar="FILE", help="As a CSV file of topic,partition,offset says.")
@click.option("--state-dir", metavar="DIR", help="Where its checkpoints are.  [default: that of "
              "applications which name none]")  # fmt: skip
@click.option("--force", is_flag=True, help="Put members out of the group.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@output_option
def kafka_streams_application_reset(
    cluster: ClusterOptions, output: Output, application_id: str, **given: Any
) -> int:
    """Reset a stream application: its offsets, its internal topics, its state."""
    from ottla.cli.group_reset import Target

    chosen = [name for name in TARGETS if given[name] not in (None, False)]
    if len(chosen) > 1:
        raise click.UsageError(
            f"--{chosen[0].replace('_', '-')} and --{chosen[1].replace('_', '-')} exclude "
            "each other."
        )
    if not chosen:
        given["to_earliest"] = True
    target = Target(
        **{each.name: given[each.name] for each in fields(Target) if each.name in given}
    )
    target.timestamp_ms(0)  # what cannot be read is said before a broker is asked
    state_dir = _state_dir(given["state_dir"])
    with _locked(state_dir, application_id), cluster.admin() as admin:
        done = _reset(admin, application_id, target, state_dir, given, output)
    output.show(done, lambda: _lines(application_id, done, is_dry=given["dry_run"]))
    return 1 if done.missing_topics else 0


def _state_dir(given: str | None) -> str:
    from ottla.streams.checkpoint import default_state_dir, is_remote

    if given is not None and is_remote(given):
        raise UserError(
            f"{given} is not on this machine: call app.reset(), and Spark deletes what is there."
        )
    return given or str(default_state_dir())


class _locked:  # noqa: N801 - a context, not a thing
    """No run of the application may be under way; one that never ran here has no lock."""

    def __init__(self, state_dir: str, name: str) -> None:
        from ottla.streams.checkpoint import AppLock

        self._lock = AppLock(state_dir, name)

    def __enter__(self) -> None:
        if self._lock.path.exists():
            self._lock.take()

    def __exit__(self, *error: object) -> None:
        self._lock.free()


def _reset(
    admin: Admin,
    name: str,
    target: Target,
    state_dir: str,
    given: dict[str, Any],
    output: Output,
) -> Done:
    from ottla.streams import reset as streams_reset
    from ottla.streams.checkpoint import LocalFiles

    is_dry = given["dry_run"]
    inputs, between = _listed(given["input_topics"]), _listed(given["intermediate_topics"])
    there = admin.list_topics()
    missing = [topic for topic in (*inputs, *between) if topic not in there]
    sinks = streams_reset.sink_topics(state_dir, name, LocalFiles())
    groups = _groups(admin, name, sinks)
    for group in groups:
        _check_members(admin, group, force=given["force"], is_dry=is_dry)
    internal = streams_reset.internal_topics(name, there, (*inputs, *between), sinks)
    internal = _chosen(name, internal, _listed(given["internal_topics"]))
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
    return Done(plans, missing, internal, files)


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def _groups(admin: Admin, name: str, sinks: list[str]) -> list[str]:
    """The application's own; with several sinks, its queries have one each."""
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
            f"Consumer group '{group}' is still active and has {len(members)} members: stop all "
            "instances of the application first, or put them out with --force."
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
            f"--internal-topics: {wrong[0]} is no internal topic of {name}; there are "
            f"{', '.join(internal) or 'none'}."
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
            raise UserError(f"{target.from_file} says nothing of {missing[0]}.")
        wanted = {each: plan[each] for each in partitions}
        return group_reset.within(admin, wanted, output.note)
    return group_reset.make_plan(admin, group, partitions, target, output.note)


def _lines(name: str, done: Done, *, is_dry: bool) -> list[str]:
    would = "would be" if is_dry else "were"
    lines = []
    if is_dry:
        lines.append("Nothing was changed: this is what would be done.")
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
