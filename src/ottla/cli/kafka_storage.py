"""`kafka-storage`: format data directories before the first start, and add the first users."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

import click

from ottla.base.errors import UserError
from ottla.cli.output import Output, output_option
from ottla.cli.tool import Tool, ToolGroup, run_tool

if TYPE_CHECKING:
    from ottla.base.config.broker import BrokerConfig
    from ottla.storage.log_dirs import DirectoryOwner

FORMAT_EXAMPLES = """
kafka-storage format --config server.properties --cluster-id "$(kafka-storage random-uuid)"
kafka-storage format -c server.properties -t ID --add-scram 'SCRAM-SHA-512=[name=admin,password=x]'
"""

config_option = click.option(
    "--config",
    "-c",
    "config_file",
    required=True,
    metavar="server.properties",
    help="Configuration of the broker.",
)


@click.group(cls=ToolGroup)
def kafka_storage() -> None:
    """Format data directories, add first users."""


@kafka_storage.command("format", cls=Tool, examples=FORMAT_EXAMPLES)
@config_option
@click.option("--cluster-id", "-t", required=True, metavar="ID", help="ID of the cluster.")
@click.option(
    "--standalone",
    "-s",
    is_flag=True,
    help="Require that the broker keeps its metadata itself: zookeeper.connect must not be set.",
)
@click.option(
    "--ignore-formatted",
    "-g",
    is_flag=True,
    help="Skip directories that are formatted already, instead of failing.",
)
@click.option(
    "--add-scram",
    "-S",
    "users",
    multiple=True,
    metavar="MECHANISM=[name=…,password=…]",
    help="First user, who exists before the broker opens a listener. Can be repeated.",
)
@output_option
def format_directories(
    config_file: str,
    cluster_id: str,
    standalone: bool,
    ignore_formatted: bool,
    users: tuple[str, ...],
    output: Output,
) -> None:
    """Format the data directories, and add the first users.

    Formatting is optional: a broker formats new directories itself when it starts. Use it to choose
    the cluster ID, and to add users to a cluster whose listeners require authentication. With
    zookeeper.connect, the users are added to ZooKeeper, where all brokers of the cluster find them.
    """
    import asyncio

    from ottla.broker.storage_format import format_storage
    from ottla.cli.first_users import first_users

    config = _config(config_file)
    if standalone and config.zookeeper_connect:
        raise click.UsageError("--standalone cannot be used with zookeeper.connect.")
    found = first_users(users)
    done = asyncio.run(format_storage(config, cluster_id, found, ignore_formatted=ignore_formatted))

    def lines() -> Iterator[str]:
        if not done.directories:
            yield "All of the log directories are already formatted."
        for user in done.users:
            yield f"Added user {user} with {', '.join(each.sasl_name for each in found[user])}."
        yield from (f"Formatted data directory {each}." for each in done.directories)

    output.show(done, lines)


@kafka_storage.command("info", cls=Tool, examples="kafka-storage info --config server.properties")
@config_option
@output_option
def info(config_file: str, output: Output) -> int:
    """Show the data directories, whom they belong to, and problems."""
    from ottla.broker.storage_format import formatted_directories

    found = formatted_directories(_config(config_file))
    problems = list(_problems(found))

    def lines() -> Iterator[str]:
        yield from _directory_lines(found)
        yield from _owner_lines(found)
        if problems:
            yield "Found problem:" if len(problems) == 1 else "Found problems:"
            yield from (f"  {problem}" for problem in problems)
            yield ""

    output.show({"directories": found, "problems": problems}, lines)
    return 1 if problems else 0


@kafka_storage.command("random-uuid", cls=Tool, examples="kafka-storage random-uuid")
@output_option
def random_uuid(output: Output) -> None:
    """Print a random UUID, which can be used as a cluster ID."""
    from ottla.base.types import format_uuid, new_uuid

    uuid = format_uuid(new_uuid())
    output.show({"uuid": uuid}, lambda: [uuid])


def _config(config_file: str) -> BrokerConfig:
    from ottla.base.config.broker import BrokerConfig
    from ottla.base.config.definition import ConfigError
    from ottla.cli.start import load_launch

    try:
        return BrokerConfig.from_properties(load_launch(config_file, ()).properties)
    except ConfigError as error:
        raise UserError(str(error)) from None


def _directory_lines(found: Mapping[str, DirectoryOwner | None]) -> Iterator[str]:
    existing = [path for path in sorted(found) if os.path.isdir(path)]
    if existing:
        yield "Found log directory:" if len(existing) == 1 else "Found log directories:"
        yield from (f"  {path}" for path in existing)
        yield ""


def _owner_lines(found: Mapping[str, DirectoryOwner | None]) -> Iterator[str]:
    owner = next((each for _, each in sorted(found.items()) if each is not None), None)
    if owner is not None:
        yield (
            f"Found metadata: {{cluster.id={owner.cluster_id}, directory.id={owner.directory_id}, "
            f"node.id={owner.node_id}, version=1}}"
        )
        yield ""


def _problems(found: Mapping[str, DirectoryOwner | None]) -> Iterator[str]:
    first: DirectoryOwner | None = None
    for path, owner in sorted(found.items()):
        if not os.path.isdir(path):
            yield f"{path} {'is not a directory' if os.path.exists(path) else 'does not exist'}"
        elif owner is None:
            yield f"{path} is not formatted."
        elif first is None:
            first = owner
        elif owner.cluster_id != first.cluster_id:
            yield "Mismatched cluster IDs between storage directories."
        elif owner.node_id != first.node_id:
            yield "Mismatched node IDs between storage directories."


def main() -> NoReturn:
    run_tool("kafka-storage", kafka_storage)
