"""`ottla zookeeper`: run one ZooKeeper server in the foreground, alone or in an ensemble."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

import click

from ottla.base.errors import UserError
from ottla.cli.tool import Tool

if TYPE_CHECKING:
    from ottla.metadata.zookeeper.ensemble import MemberAddress
    from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity

POLL_S = 0.1
QUORUM_PORT, ELECTION_PORT = 2888, 3888


@click.command(
    cls=Tool,
    examples="""ottla zookeeper --data-dir ./zookeeper
    ottla zookeeper --listen zk1:2181 --secure-dir ./secure
    ottla zookeeper --id 1 --member a:2181:2888:3888 --member … --secure-dir ./secure""",
)
@click.option("--data-dir", metavar="DIR", help="Directory of the server's data.")
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:2181", show_default=True,
    help="Address that brokers connect to, for a server without an ensemble.",
)  # fmt: skip
@click.option(
    "--member",
    "members",
    metavar="HOST:PORT:QUORUM_PORT:ELECTION_PORT",
    multiple=True,
    help="Address of one server of the ensemble. Repeat it for every server, in the same order on "
    "every machine.",
)
@click.option(
    "--id",
    "number",
    default=1,
    show_default=True,
    help="Position of this server in the list of --member options.",
)
@click.option(
    "--secure",
    "--secure-dir",
    "secure_dir",
    metavar="DIR",
    help="Directory of `ottla secure init`: TLS and authentication with its ca.pem, zookeeper.pem "
    "and zookeeper.properties.",
)
@click.option(
    "--tls-keystore",
    metavar="FILE",
    help="PEM file with the server's private key and certificates, instead of --secure-dir.",
)
@click.option(
    "--tls-truststore",
    metavar="FILE",
    help="PEM file with the authorities that sign the certificates of brokers and servers.",
)
@click.option(
    "--auth-file",
    metavar="FILE",
    help="File with zookeeper.auth.user and zookeeper.auth.password, which brokers must know.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow an address that other machines can reach, without encryption or authentication.",
)
def zookeeper(
    data_dir: str | None,
    listen: str,
    members: tuple[str, ...],
    number: int,
    secure_dir: str | None,
    tls_keystore: str | None,
    tls_truststore: str | None,
    auth_file: str | None,
    insecure: bool,
) -> int:
    """Start a ZooKeeper server for the brokers.

    Brokers use it with zookeeper.connect. The server requires Java and ZooKeeper's jars, which are
    taken from ZOOKEEPER_HOME, from an Apache Kafka before 4.0 in KAFKA_HOME, from Debian's package
    zookeeper, or from PySpark. SIGTERM or Ctrl-C stops it.
    """
    from ottla.cli.paths import default_data_directory
    from ottla.metadata.zookeeper.ensemble import EnsembleMember

    addresses = _addresses(members or (f"{listen}:{QUORUM_PORT}:{ELECTION_PORT}",))
    if not 1 <= number <= len(addresses):
        raise UserError(f"--id {number} must be 1 to {len(addresses)}, the number of members.")
    security = _security(secure_dir, tls_keystore, tls_truststore, auth_file)
    if security is None and not insecure:
        _refuse_exposed(addresses[number - 1])
    place = data_dir or f"{default_data_directory()}/zookeeper-{number}"
    member = EnsembleMember(place, number, addresses, security)
    signals: list[int] = []

    def signalled(received: int, frame: FrameType | None) -> None:
        signals.append(received)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signalled)
    try:
        member.start()
    except OSError as error:
        raise UserError(f"Cannot use the data directory {place}: {error.strerror}.") from None
    try:
        if len(addresses) == 1:  # in an ensemble, the server serves once it finds the others
            member.wait_until_serving()
        manner = "" if security is None else " with TLS"
        click.echo(f"ZooKeeper is running{manner}; zookeeper.connect={member.connect}")
        while not signals and member.is_running:
            time.sleep(POLL_S)
    finally:
        member.stop()
    if not signals:
        raise UserError(f"ZooKeeper exited unexpectedly. See {place}/member.log.")
    return 0


def _security(
    directory: str | None, keystore: str | None, truststore: str | None, credentials: str | None
) -> EnsembleSecurity | None:
    from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity

    files = (keystore, truststore, credentials)
    if directory is not None:
        if any(files):
            raise UserError("--secure-dir cannot be used with --tls-… options or --auth-file.")
        return EnsembleSecurity.from_directory(directory)
    if keystore and truststore and credentials:
        return EnsembleSecurity.from_files(keystore, truststore, credentials)
    if any(files):
        raise UserError("--tls-keystore, --tls-truststore and --auth-file must be used together.")
    return None


def _refuse_exposed(address: MemberAddress) -> None:
    from ottla.cli.listening import is_loopback

    if not is_loopback(address.host):
        raise UserError(
            f"{address.host}:{address.client_port} is open to other machines, without encryption "
            "or authentication. Create certificates and a password with `ottla secure init` and "
            "use --secure-dir, listen on 127.0.0.1, or add --insecure if that is intended."
        )


def _addresses(members: Sequence[str]) -> list[MemberAddress]:
    from ottla.metadata.zookeeper.ensemble import MemberAddress

    found = []
    for member in members:
        host, *ports = member.rsplit(":", 3)
        if len(ports) != 3 or not host or not all(_is_port(port) for port in ports):
            raise UserError(
                f"--member {member} must look like HOST:PORT:QUORUM_PORT:ELECTION_PORT."
            )
        found.append(MemberAddress(host, *map(int, ports)))
    return found


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) < 65536
