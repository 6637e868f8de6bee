"""`kafka-acls`: add, remove and list ACLs.

The output is that of Kafka 4.3, in a stable order. As there, `--remove` without a principal removes
all ACLs of the resources, whatever --operation and the hosts are."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.errors import KafkaError, UserError
from ottla.cli.acl_texts import (
    binding_text,
    entry_lines,
    operation_name,
    parse_operation,
    resource_text,
)
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.failure import sentence
from ottla.cli.output import Output, output_option
from ottla.cli.tool import Tool, action_option, run_tool

if TYPE_CHECKING:
    from ottla.client.admin import Admin

EXAMPLES = """
kafka-acls --add --allow-principal User:alice --producer --topic orders
kafka-acls --add --allow-principal User:bob --consumer --topic orders --group billing
kafka-acls --add --allow-principal User:bob --operation Read --topic audit- --resource-pattern-type prefixed
kafka-acls --list --topic orders --resource-pattern-type match
kafka-acls --remove --allow-principal User:alice --producer --topic orders --force
"""  # noqa: E501
_OPERATIONS = [operation_name(each) for each in AclOperation if each > AclOperation.ANY]
_PATTERNS = [each.name for each in PatternType if each]
_EXCLUSIONS = (
    (
        "list",
        ("producer", "consumer", "allow_host", "allow_principal", "deny_host", "deny_principal"),
    ),
    ("producer", ("operation", "deny_principal", "deny_host")),
    ("consumer", ("operation", "deny_principal", "deny_host")),
)
"""Options, each with those that cannot be used with it."""
_PRODUCER_TOPIC = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
_PRODUCER_TRANSACTIONAL_ID = (AclOperation.WRITE, AclOperation.DESCRIBE)
_CONSUMER_TOPIC = (AclOperation.READ, AclOperation.DESCRIBE)
_CONSUMER_GROUP = (AclOperation.READ,)
_YES = "y"


@dataclass(frozen=True)
class Options:
    """Values of the options."""

    topic: tuple[str, ...]
    group: tuple[str, ...]
    cluster: bool
    transactional_id: tuple[str, ...]
    delegation_token: tuple[str, ...]
    user_principal: tuple[str, ...]
    resource_pattern_type: str
    operation: tuple[str, ...]
    allow_principal: tuple[str, ...]
    deny_principal: tuple[str, ...]
    allow_host: tuple[str, ...]
    deny_host: tuple[str, ...]
    principal: tuple[str, ...]
    producer: bool
    consumer: bool
    idempotent: bool
    force: bool


@dataclass(frozen=True)
class Resources:
    """Resources that options name: a type, a name and how names are compared with it."""

    type: AclResourceType
    name: str
    pattern: PatternType

    @property
    def filter(self) -> AclFilter:
        """A filter of all ACLs of the resources."""
        return AclFilter(self.type, self.pattern, self.name)


CLUSTER = Resources(AclResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def _names(*names: str, help: str) -> Callable[..., Any]:
    return click.option(*names, multiple=True, metavar="NAME", help=help)


def _principals(*names: str, help: str, **more: Any) -> Callable[..., Any]:
    return click.option(*names, multiple=True, metavar="TYPE:NAME", help=help, **more)


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@click.option(
    "--bootstrap-controller",
    metavar="HOST:PORT,…",
    help="Rejected: controllers have no addresses of their own. Use --bootstrap-server.",
)
@action_option("add", "Add ACLs.")
@action_option("remove", "Remove ACLs.")
@action_option("list", "List the ACLs of the given resources, or all ACLs.")
@_names("--topic", help="Topic, or * for all topics. May be repeated.")
@_names("--group", help="Group, or * for all groups. May be repeated.")
@click.option("--cluster", "cluster_resource", is_flag=True, help="The cluster itself.")
@_names("--transactional-id", help="Transactional ID, or * for all. May be repeated.")
@_names("--delegation-token", help="ID of a delegation token, or * for all. May be repeated.")
@_principals(
    "--user-principal",
    help="User as a resource, for whom others may create or describe delegation tokens. May be "
    "repeated.",
)
@click.option(
    "--resource-pattern-type",
    type=click.Choice(_PATTERNS, case_sensitive=False),
    default=PatternType.LITERAL.name,
    show_default=True,
    help="Comparison of names. With --add: literal, or prefixed for all names that begin with "
    "it. With --list and --remove also: any for ACLs with this name, literal or prefixed; match "
    "for all ACLs that apply to the resource.",
)
@click.option(
    "--operation",
    multiple=True,
    metavar="OPERATION",
    help=f"Operation that is allowed or denied: {', '.join(_OPERATIONS)}. May be repeated.  "
    "[default: All]",
)
@_principals(
    "--allow-principal",
    help="Principal that is allowed the operations, such as User:alice, or User:* for everybody. "
    "May be repeated.",
)
@_principals(
    "--deny-principal",
    help="Principal that is denied the operations. A denial overrides every permission. May be "
    "repeated.",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="ADDRESS",
    help="Address, or range of addresses, of the clients of --allow-principal. May be repeated.  "
    "[default: *]",
)
@click.option(
    "--deny-host",
    multiple=True,
    metavar="ADDRESS",
    help="Address, or range of addresses, of the clients of --deny-principal. May be repeated.  "
    "[default: *]",
)
@_principals(
    "--principal",
    help="List only the ACLs of this principal. May be repeated.",
    is_flag=False,
    flag_value="",
)
@click.option(
    "--producer",
    is_flag=True,
    help="Write, Describe and Create on --topic; Write and Describe on --transactional-id.",
)
@click.option("--consumer", is_flag=True, help="Read and Describe on --topic, and Read on --group.")
@click.option(
    "--idempotent",
    is_flag=True,
    help="IdempotentWrite on the cluster, for producers with brokers older than Kafka 2.8. "
    "Requires --producer.",
)
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
@output_option
def kafka_acls(
    cluster: ClusterOptions,
    output: Output,
    actions: tuple[str, ...],
    bootstrap_controller: str | None,
    cluster_resource: bool,
    **option_values: Any,
) -> None:
    """Manage ACLs.

    An ACL allows or denies an operation on a resource, such as a topic, to a principal.
    """
    if bootstrap_controller is not None:
        raise click.UsageError(
            "--bootstrap-controller is not supported, because every broker accepts changes of "
            "ACLs. Use --bootstrap-server."
        )
    if len(actions) != 1:
        raise click.UsageError("Command must include exactly one action: --list, --add, --remove.")
    options = Options(cluster=cluster_resource, **option_values)
    _check(actions[0], options)
    try:
        _ACTIONS[actions[0]](cluster, options, output)
    except KafkaError as error:
        raise UserError(f"Error while executing ACL command: {sentence(error)}") from error


def _check(action: str, options: Options) -> None:
    given = {name for name, value in vars(options).items() if value} | {action}
    for option, others in _EXCLUSIONS:
        for other in others:
            if {option, other} <= given:
                shown = other.replace("_", "-")
                raise click.UsageError(
                    f'Option "[{option}]" can\'t be used with option "[{shown}]"'
                )
    if options.principal and action != "list":
        raise click.UsageError("The --principal option is only available if --list is set")
    if options.producer and not options.topic:
        raise click.UsageError("With --producer you must specify a --topic")
    if options.idempotent and not options.producer:
        raise click.UsageError("The --idempotent option is only available if --producer is set")
    has_others = not options.producer and (options.cluster or options.transactional_id)
    if options.consumer and (not options.topic or not options.group or has_others):
        raise click.UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )


# ----------------------------------------------------------------------------------------- actions


def _add(cluster: ClusterOptions, options: Options, output: Output) -> None:
    pattern = PatternType[options.resource_pattern_type]
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise click.UsageError(
            f"A '--resource-pattern-type' value of '{pattern.name}' is not valid when adding acls."
        )
    wanted = _acls(options)
    if not all(wanted.values()):
        raise click.UsageError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    added: list[AclBinding] = []
    existing: list[AclBinding] = []
    with cluster.admin() as admin:
        for resources, acls in wanted.items():
            found = set(admin.describe_acls(resources.filter))
            existing += [each for each in acls if each in found]
            new = [each for each in acls if each not in found]
            if not output.as_json:
                _show_added(resources, acls, new)
            if new:
                admin.create_acls(new)
                added += new
    if output.as_json:
        output.show({"added": added, "existing": existing}, list)


def _show_added(
    resources: Resources, acls: Sequence[AclBinding], new: Sequence[AclBinding]
) -> None:
    for each in acls:
        if each not in new:
            click.echo(f"Acl {binding_text(each)} already exists.")
    if new:
        click.echo(f"Adding ACLs for resource `{resource_text(resources.filter)}`: ")
        click.echo(_indented(new) + "\n")


def _remove(cluster: ClusterOptions, options: Options, output: Output) -> None:
    wanted = _acls(options)
    removed: list[AclBinding] = []
    with cluster.admin() as admin:
        for resources, acls in wanted.items():
            if options.force or _confirm(resources, acls, output):
                filters: list[AclFilter | AclBinding] = [*acls] if acls else [resources.filter]
                for found in admin.delete_acls(filters).values():
                    removed += found
    if output.as_json:
        output.show({"removed": list(dict.fromkeys(removed))}, list)


def _confirm(resources: Resources, acls: Sequence[AclBinding], output: Output) -> bool:
    filter = resource_text(resources.filter)
    if acls:
        question = (
            f"Are you sure you want to remove ACLs: \n{_indented(acls)}\n"
            f" from resource filter `{filter}`? (y/n)"
        )
    else:
        question = f"Are you sure you want to delete all ACLs for resource filter `{filter}`? (y/n)"
    # JSON is all that the standard output has with --json.
    click.echo(question, err=output.as_json)
    answer = sys.stdin.readline()
    return answer.strip().lower() == _YES


def _list(cluster: ClusterOptions, options: Options, output: Output) -> None:
    principals = [_principal(each) for each in options.principal if each]
    filters = [each.filter for each in _resources(options)] or [AclFilter()]
    with cluster.admin() as admin:
        found = _described(admin, filters)
    if principals:
        chosen = [each for each in found if each.principal in principals]
        output.show(chosen, lambda: _lists_of(principals, chosen))
    else:
        output.show(found, lambda: _listed(found))


_ACTIONS = {"add": _add, "remove": _remove, "list": _list}


def _described(admin: Admin, filters: Iterable[AclFilter]) -> list[AclBinding]:
    found = {each for filter in filters for each in admin.describe_acls(filter)}
    return sorted(found)


def _lists_of(principals: Iterable[str], acls: Sequence[AclBinding]) -> list[str]:
    lines: list[str] = []
    for principal in principals:
        lines.append(f"ACLs for principal `{principal}`")
        lines += _listed([each for each in acls if each.principal == principal])
    return lines


def _listed(acls: Sequence[AclBinding]) -> list[str]:
    lines: list[str] = []
    for resource, of_resource in itertools.groupby(acls, resource_text):
        lines += [f"Current ACLs for resource `{resource}`:", *entry_lines(of_resource), ""]
    return lines


def _indented(acls: Iterable[AclBinding]) -> str:
    """Return the lines of ACLs; Kafka's tool prints a space before the first one."""
    return " " + "\n".join(entry_lines(acls))


# ---------------------------------------------------------------------------------- ACLs to change


def _acls(options: Options) -> dict[Resources, list[AclBinding]]:
    """Return the ACLs that the options describe, by resources."""
    operations: dict[Resources, dict[AclOperation, None]] = {}
    for resources, wanted in _operations(options):
        operations.setdefault(resources, {}).update(dict.fromkeys(wanted))
    found = {
        resources: [
            AclBinding(
                resources.type,
                resources.pattern,
                resources.name,
                principal,
                host,
                operation,
                permission,
            )
            for permission, principals, hosts in _clients(options)
            for principal, operation, host in itertools.product(principals, wanted, hosts)
        ]
        for resources, wanted in operations.items()
    }
    for acls in found.values():
        _check_operations(acls)
    return found


def _operations(options: Options) -> Iterable[tuple[Resources, Iterable[AclOperation]]]:
    resources = _resources(options)
    if not resources:
        raise click.UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group "
            "<group> or --delegation-token <Delegation Token ID>"
        )
    if not options.producer and not options.consumer:
        wanted = [parse_operation(each) for each in options.operation] or [AclOperation.ALL]
        yield from ((each, wanted) for each in resources)
    for each in resources:
        if options.producer and each.type is AclResourceType.TOPIC:
            yield each, _PRODUCER_TOPIC
        if options.producer and each.type is AclResourceType.TRANSACTIONAL_ID:
            yield each, _PRODUCER_TRANSACTIONAL_ID
        if options.consumer and each.type is AclResourceType.TOPIC:
            yield each, _CONSUMER_TOPIC
        if options.consumer and each.type is AclResourceType.GROUP:
            yield each, _CONSUMER_GROUP
    if options.idempotent:
        yield CLUSTER, (AclOperation.IDEMPOTENT_WRITE,)


def _resources(options: Options) -> list[Resources]:
    pattern = PatternType[options.resource_pattern_type]
    named = (
        (AclResourceType.TOPIC, options.topic),
        (AclResourceType.GROUP, options.group),
        (AclResourceType.TRANSACTIONAL_ID, options.transactional_id),
        (AclResourceType.DELEGATION_TOKEN, options.delegation_token),
        (AclResourceType.USER, options.user_principal),
    )
    found = [Resources(type, each.strip(), pattern) for type, names in named for each in names]
    if pattern is PatternType.LITERAL and (options.cluster or options.idempotent):
        found.append(CLUSTER)
    return list(dict.fromkeys(found))


def _clients(options: Options) -> list[tuple[AclPermission, list[str], list[str]]]:
    """Return the permissions with the principals and the hosts that have them."""
    return [
        (permission, list(map(_principal, principals)), [each.strip() for each in hosts])
        for permission, principals, hosts in (
            (AclPermission.ALLOW, options.allow_principal, options.allow_host or (WILDCARD,)),
            (AclPermission.DENY, options.deny_principal, options.deny_host or (WILDCARD,)),
        )
    ]


def _principal(text: str) -> str:
    kind, _, name = text.strip().partition(":")
    if not kind or not name:
        raise UserError(
            "Error while executing ACL command: expected a string in format "
            f"principalType:principalName but got {text.strip()}"
        )
    return text.strip()


def _check_operations(acls: Iterable[AclBinding]) -> None:
    from ottla.core.security.authorizer import OPERATIONS

    for each in acls:
        valid = (*OPERATIONS[each.resource_type], AclOperation.ALL)
        if each.operation not in valid:
            names = ", ".join(operation.name for operation in sorted(valid))
            raise click.UsageError(
                f"ResourceType {each.resource_type.name} only supports operations [{names}]"
            )


def main() -> NoReturn:
    run_tool("kafka-acls", kafka_acls)
