"""`ottla secure explain` and `ottla secure check`, which change nothing."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.secure.layout import SecureDirectory
from ottla.cli.secure.options import as_administrator, dir_option
from ottla.cli.tool import Tool

DENIED = 1
"""Exit code of `explain` if the operation is denied."""
SEVERE = 1
"""Exit code of `check` if there are findings of high severity."""


@click.command(
    "explain",
    cls=Tool,
    examples="""ottla secure explain User:alice WRITE topic orders
    ottla secure explain User:alice READ group billing --host 10.0.0.7
    ottla secure explain User:alice CREATE cluster""",
)
@click.argument("principal")
@click.argument("operation")
@click.argument("resource_type", metavar="RESOURCE_TYPE")
@click.argument("name", required=False)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Address of the client. Without it, only ACLs for all hosts apply.",
)
@click.option(
    "--config",
    "configuration",
    metavar="FILE",
    help="Configuration of a broker, with super.users.  [default: as a broker describes it]",
)
@dir_option
@cluster_options()
@output_option
def explain(
    cluster: ClusterOptions,
    output: Output,
    principal: str,
    operation: str,
    resource_type: str,
    name: str | None,
    host: str | None,
    configuration: str | None,
    directory: str,
) -> None:
    """Explain why a principal may do something, or not.

    Prints the rule that decides on OPERATION (READ, WRITE, CREATE, …) on a resource of the type
    RESOURCE_TYPE (topic, group, cluster, transactional-id, delegation-token, user). The exit code
    is 0 if it is allowed, and 1 if it is denied.
    """
    from ottla.base.config.properties import load_properties
    from ottla.cli.secure.explain import explain, filters_of, parse_question
    from ottla.cli.secure.permissions import describe_acls
    from ottla.cli.secure.policy import Policy, described_policy

    question = parse_question(principal, operation, resource_type, name, host)
    policy = None
    if configuration is not None:
        policy = Policy.of_properties(load_properties(configuration), is_complete=True)
    with as_administrator(cluster, SecureDirectory(directory)).admin() as admin:
        found = [describe_acls(admin, each) for each in filters_of(question)]
        if policy is None:
            policy = described_policy(admin)
    # The filters find nothing at all, not even an empty list, if there is no authorizer.
    acls = None if None in found else [acl for each in found for acl in each or ()]
    explained = explain(question, acls, policy)
    verdict = "Allowed" if explained.allowed else "Denied"
    output.show(
        explained,
        lambda: [f"{verdict}: {principal} {question.action}.", explained.reason],
    )
    if not explained.allowed:
        click.get_current_context().exit(DENIED)


@click.command(
    "check",
    cls=Tool,
    examples="""ottla secure check
    ottla secure check --config /etc/ottla/server.properties --command-config admin.properties
    ottla secure check --config server.properties --files-only --json""",
)
@click.option(
    "--config",
    "configurations",
    metavar="FILE",
    multiple=True,
    help="Configuration of a broker. May be repeated.  [default: those in --dir]",
)
@click.option("--files-only", is_flag=True, help="Check files only, without connecting to brokers.")
@dir_option
@cluster_options()
@output_option
def check(
    cluster: ClusterOptions,
    output: Output,
    configurations: tuple[str, ...],
    files_only: bool,
    directory: str,
) -> None:
    """Find weaknesses in the security of a cluster.

    Checks listeners, the authorizer, ACLs, users, certificates and the modes of files: in the
    running cluster, in the files of --dir, and in the given configurations. The exit code is 1 if
    there is a finding of high severity.
    """
    from ottla.base.errors import UserError
    from ottla.cli.secure.check import check_cluster, check_files
    from ottla.cli.secure.findings import Severity

    place = SecureDirectory(directory)
    files = [*map(Path, configurations)] or place.servers()
    if files_only and not files and not place.exists:
        raise UserError(
            f"There are no files to check: {place.path} is not a directory of `ottla secure init`. "
            "Name another one with --dir, or the configuration of a broker with --config."
        )
    found = [*check_files(place, files)]
    if not files_only:
        options = as_administrator(cluster, place)
        protocol = options.profile().get("security.protocol", "").upper()
        with options.admin() as admin:
            found += check_cluster(admin, has_tls=protocol.endswith("SSL"))
    found.sort(key=lambda each: [*Severity].index(each.severity))
    severe = [each for each in found if each.severity is Severity.HIGH]
    output.show(
        {"findings": [{**each._asdict(), "severity": each.severity.value} for each in found]},
        lambda: [
            *(f"{each.severity.name.ljust(6)} {each.subject}: {each.text}" for each in found),
            f"{_count(len(found))}, {len(severe)} of high severity." if found else "No findings.",
        ],
    )
    if severe:
        click.get_current_context().exit(SEVERE)


def _count(findings: int) -> str:
    return "1 finding" if findings == 1 else f"{findings} findings"
