"""`kafka-configs`: describe and alter the configuration of topics, brokers, loggers and groups.

Options and output are those of Kafka's tool; `--json` is Ottla's. Quotas and SCRAM credentials are
implemented in `quota_configs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.errors import UserError
from ottla.cli.config_entities import (
    OF_QUOTAS,
    SHORT,
    SHORT_DEFAULTS,
    TYPES,
    Entity,
    check_names,
    parse_additions,
    parse_entities,
)
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.partial_failure import fail_if_any, reasons
from ottla.cli.tool import Tool, action_option, run_tool

if TYPE_CHECKING:
    from ottla.client.admin import Admin, ConfigEntry, ConfigResource, ConfigSource

EXAMPLES = """
kafka-configs --describe --topic orders
kafka-configs --describe --entity-type brokers --entity-name 1 --all
kafka-configs --alter --topic orders --add-config flush.ms=9,cleanup.policy=[compact,delete]
kafka-configs --alter --topic orders --delete-config retention.ms
kafka-configs --alter --broker-defaults --add-config-file broker.properties
kafka-configs --alter --broker-logger 1 --add-config ottla.broker=DEBUG
kafka-configs --alter --client mirror --add-config producer_byte_rate=1048576
kafka-configs --alter --user alice --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'
"""


def _collect(kind: str) -> Any:
    """Return a callback that collects names and defaults in the order of the command line."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        options = value if isinstance(value, tuple) else ("",) * int(value)
        context.ensure_object(list).extend((kind, each) for each in options)

    return callback


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@action_option("describe", "Show the configuration of an entity.")
@action_option("alter", "Change the configuration of an entity.")
@click.option("--topic", metavar="NAME", help="Name of a topic.")
@click.option("--broker", metavar="ID", help="ID of a broker.")
@click.option("--broker-defaults", is_flag=True, help="Dynamic defaults of all brokers.")
@click.option("--broker-logger", metavar="ID", help="ID of a broker, to configure its log levels.")
@click.option("--group", metavar="NAME", help="Name of a group.")
@click.option("--client-metrics", metavar="NAME", help="Name of a client metrics subscription.")
@click.option("--user", metavar="NAME", help="User with quotas or SCRAM credentials.")
@click.option("--user-defaults", is_flag=True, help="Default quotas of users.")
@click.option("--client", metavar="ID", help="Client ID with quotas. Can be combined with --user.")
@click.option("--client-defaults", is_flag=True, help="Default quotas of client IDs.")
@click.option("--ip", metavar="ADDRESS", help="IP address with a connection quota.")
@click.option("--ip-defaults", is_flag=True, help="Default connection quota of IP addresses.")
@click.option(
    "--entity-type",
    "types",
    multiple=True,
    metavar="TYPE",
    help=f"Type of the entity: {', '.join(TYPES[:-1])} or {TYPES[-1]}.",
)
@click.option(
    "--entity-name",
    multiple=True,
    metavar="NAME",
    expose_value=False,
    callback=_collect("name"),
    help="Name of the entity of that type.  [default: all entities of the type]",
)
@click.option(
    "--entity-default",
    count=True,
    expose_value=False,
    callback=_collect("default"),
    help="Default configuration of the entity type, instead of a name.",
)
@click.option("--all", "show_all", is_flag=True, help="Include default values, with --describe.")
@click.option(
    "--add-config",
    metavar="A=1,B=[X,Y]",
    help="Properties to set, with --alter. Put lists in brackets.",
)
@click.option("--add-config-file", metavar="FILE", help="File of properties to set, with --alter.")
@click.option(
    "--delete-config",
    multiple=True,
    metavar="A,B",
    help="Properties to reset to their defaults, with --alter.",
)
@click.option(
    "--force", is_flag=True, help="Accepted and ignored: the tool never asks for confirmation."
)
@output_option
@click.pass_context
def kafka_configs(
    context: click.Context,
    /,
    cluster: ClusterOptions,
    output: Output,
    actions: tuple[str, ...],
    types: tuple[str, ...],
    show_all: bool,
    add_config: str | None,
    add_config_file: str | None,
    delete_config: tuple[str, ...],
    force: bool,
    **options: Any,
) -> None:
    """Show and change configurations and quotas.

    Works on topics, brokers, log levels of brokers, groups and client metrics subscriptions, and on
    the quotas and SCRAM credentials of users, clients and IP addresses.
    """
    if len(actions) != 1:
        raise click.UsageError("Give exactly one of --describe and --alter.")
    entities = parse_entities(
        types,
        context.obj or [],
        {each: options[each] for each in SHORT},
        {each: options[each] for each in SHORT_DEFAULTS},
    )
    entity = entities[0]
    of_quotas = entity.type in OF_QUOTAS
    changes = _changes(add_config, add_config_file, delete_config)
    if actions[0] == "describe" and changes:
        raise click.UsageError("--add-config and --delete-config can only be used with --alter.")
    if actions[0] == "alter":
        if not changes:
            raise click.UsageError(
                "--alter requires --add-config, --add-config-file or --delete-config."
            )
        if entity.name is None and not of_quotas:
            raise click.UsageError(
                f"--alter requires --entity-name with --entity-type {entity.type}."
            )
        if show_all:
            raise click.UsageError("--all can only be used with --describe.")
    with cluster.admin() as admin:
        if of_quotas:
            from ottla.cli import quota_configs

            if actions[0] == "alter":
                quota_configs.alter(admin, entities, changes, output)
            else:
                quota_configs.describe(admin, entities, output)
        elif actions[0] == "alter":
            _alter(admin, entity, changes, output)
        else:
            _describe(admin, entity, show_all, output)


def _changes(
    add_config: str | None, add_config_file: str | None, delete_config: tuple[str, ...]
) -> dict[str, str | None]:
    """Return the changed properties; None resets a property to its default."""
    from ottla.base.config.properties import load_properties

    deleted = [name.strip() for each in delete_config for name in each.split(",") if name.strip()]
    changes: dict[str, str | None] = dict.fromkeys(deleted)
    if add_config_file is not None:
        changes |= load_properties(add_config_file)
    if add_config is not None:
        changes |= parse_additions(add_config)
    check_names(changes)
    return changes


# --------------------------------------------------------------------------------------- alter


def _alter(admin: Admin, entity: Entity, changes: Mapping[str, str | None], output: Output) -> None:
    resource = _resource(entity, entity.name or "")
    deleted = [name for name, value in changes.items() if value is None]
    if deleted and entity.type != "broker-loggers":
        own = _own_configs(
            admin.describe_configs(resource, include_synonyms=True)[resource], entity
        )
        unset = [name for name in deleted if name not in own]
        if unset:
            raise UserError(f"Invalid config(s): {', '.join(unset)} not set for {resource}.")
    admin.alter_configs({resource: changes})
    whom = (
        f"config for {entity.singular} {entity.name}"
        if entity.name
        else f"default config for {entity.type} in the cluster"
    )
    output.show(
        {"entity_type": entity.type, "entity_name": entity.name, "changed": dict(changes)},
        lambda: [f"Completed updating {whom}."],
    )


def _resource(entity: Entity, name: str) -> ConfigResource:
    from ottla.client.admin import ConfigResource, ResourceType

    kinds = {
        "topics": ResourceType.TOPIC,
        "brokers": ResourceType.BROKER,
        "broker-loggers": ResourceType.BROKER_LOGGER,
        "groups": ResourceType.GROUP,
        "client-metrics": ResourceType.CLIENT_METRICS,
    }
    return ConfigResource(kinds[entity.type], name)


# ------------------------------------------------------------------------------------ describe


def _describe(admin: Admin, entity: Entity, show_all: bool, output: Output) -> None:
    resources = [_resource(entity, name) for name in _names(admin, entity)]
    found = admin.describe_configs(*resources, include_synonyms=True, return_errors=True)
    shown = {
        resource: entries if show_all else _own_configs(entries, Entity(entity.type, resource.name))
        for resource, entries in found.items()
    }
    output.show(
        {
            "entities": [
                {"entity_type": entity.type, "entity_name": resource.name, "configs": entries}
                for resource, entries in shown.items()
            ],
            "errors": reasons(found.errors),
        },
        lambda: [
            line
            for resource, entries in shown.items()
            for line in _as_text(Entity(entity.type, resource.name), entries, show_all)
        ],
    )
    fail_if_any(found.errors, "Configs of")


def _names(admin: Admin, entity: Entity) -> list[str]:
    from ottla.client.admin import ResourceType

    if entity.name is not None:
        return [entity.name]
    if entity.type == "topics":
        return list(admin.list_topics(include_internal=True))
    if entity.type in ("groups", "client-metrics"):
        kind = ResourceType.GROUP if entity.type == "groups" else ResourceType.CLIENT_METRICS
        return [each.name for each in admin.list_config_resources(kind)]
    brokers = [str(each) for each in admin.describe_cluster().nodes]
    return [*brokers, ""] if entity.type == "brokers" else brokers


def _own_configs(entries: Mapping[str, ConfigEntry], entity: Entity) -> dict[str, ConfigEntry]:
    """Return the properties that are set on this entity itself, not inherited."""
    wanted = _source(entity)
    return {
        name: entry
        for name, entry in entries.items()
        if wanted is None
        or entry.source is wanted
        or any(synonym.source is wanted for synonym in entry.synonyms)
    }


def _source(entity: Entity) -> ConfigSource | None:
    from ottla.client.admin import ConfigSource

    if entity.type == "brokers" and not entity.name:
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return {
        "topics": ConfigSource.DYNAMIC_TOPIC_CONFIG,
        "brokers": ConfigSource.DYNAMIC_BROKER_CONFIG,
        "groups": ConfigSource.DYNAMIC_GROUP_CONFIG,
        "client-metrics": ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    }.get(entity.type)


def _as_text(entity: Entity, entries: Mapping[str, ConfigEntry], show_all: bool) -> Iterator[str]:
    if entity.name:
        yield f"{'All' if show_all else 'Dynamic'} configs for {entity.singular} {entity.name} are:"
    else:
        yield f"Default configs for {entity.type} in the cluster are:"
    for name, entry in sorted(entries.items()):
        synonyms = ", ".join(
            f"{each.source.name}:{each.name}={_shown(each.value)}" for each in entry.synonyms
        )
        sensitive = str(entry.is_sensitive).lower()
        yield f"  {name}={_shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def main() -> NoReturn:
    run_tool("kafka-configs", kafka_configs)
