"""`zookeeper-security-migration`: close the nodes of a cluster in ZooKeeper, or open them again."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.base.errors import UserError
from ottla.cli.tool import Tool, run_tool

SECURE, UNSECURE = "secure", "unsecure"
DEFAULT_CONNECT = "localhost:2181"
EXAMPLES = """
zookeeper-security-migration --zookeeper.acl secure --zk-tls-config-file server.properties
zookeeper-security-migration --zookeeper.acl unsecure --zookeeper.connect zk1:2181/ottla
"""


@click.command(
    cls=Tool,
    examples=EXAMPLES,
)
@click.option(
    "--zookeeper.acl",
    "acl",
    type=click.Choice([SECURE, UNSECURE]),
    required=True,
    help="Whether only the brokers' user may access the nodes, or everyone.",
)
@click.option(
    "--zookeeper.connect",
    "connect",
    metavar="HOST:PORT[/CHROOT]",
    help="ZooKeeper's servers and the chroot of the cluster.  [default: zookeeper.connect in the "
    f"file of --zk-tls-config-file, or {DEFAULT_CONNECT}]",
)
@click.option(
    "--zookeeper.session.timeout",
    "session_timeout_ms",
    type=click.IntRange(1),
    default=30_000,
    show_default=True,
    help="Timeout of the ZooKeeper session, in milliseconds.",
)
@click.option(
    "--zookeeper.connection.timeout",
    "connect_timeout_ms",
    type=click.IntRange(1),
    default=30_000,
    show_default=True,
    help="Maximum time to wait for the connection, in milliseconds.",
)
@click.option(
    "--enable.path.check",
    "check_paths",
    is_flag=True,
    help="Change nothing if one of the brokers' top nodes does not exist.",
)
@click.option(
    "--zk-tls-config-file",
    "config_file",
    metavar="FILE",
    help="File with zookeeper.ssl and zookeeper.auth properties, such as a broker's "
    "server.properties. Other properties are ignored.",
)
def zookeeper_security_migration(
    acl: str,
    connect: str | None,
    session_timeout_ms: int,
    connect_timeout_ms: int,
    check_paths: bool,
    config_file: str | None,
) -> None:
    """Protect the nodes of a cluster in ZooKeeper.

    Run it after all brokers have been restarted with zookeeper.set.acl=true, so that new nodes are
    protected already.
    """
    import asyncio

    from ottla.base.config.properties import load_properties
    from ottla.base.config.zookeeper_security import parse_zookeeper_security
    from ottla.metadata.zookeeper.migration import migrate
    from ottla.net.client_contexts import ClientContexts

    properties = load_properties(config_file) if config_file else {}
    security = parse_zookeeper_security(properties)
    if acl == SECURE and not security.has_identity:
        raise UserError(
            "ZooKeeper must know the user that the nodes shall belong to. Set zookeeper.auth.user "
            "and zookeeper.auth.password, or zookeeper.ssl.keystore.location with "
            "zookeeper.ssl.client.enable=true, in the file of --zk-tls-config-file."
        )
    contexts = None if security.tls is None else ClientContexts(security.tls, "ZooKeeper")
    place = connect or properties.get("zookeeper.connect") or DEFAULT_CONNECT
    count = asyncio.run(
        migrate(
            place,
            secure=acl == SECURE,
            session_timeout_ms=session_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            tls=None if contexts is None else lambda: asyncio.to_thread(contexts.current),
            credentials=security.credentials,
            check_paths=check_paths,
        )
    )
    access = "the brokers' user only" if acl == SECURE else "everyone"
    click.echo(f"{count} nodes are now accessible to {access}.")


def main() -> NoReturn:
    run_tool("zookeeper-security-migration", zookeeper_security_migration)
