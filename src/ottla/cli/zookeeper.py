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

POLL_S = 0.1
QUORUM_PORT, ELECTION_PORT = 2888, 3888


@click.command(
    cls=Tool,
    examples="""ottla zookeeper --data-dir ./zookeeper
    ottla zookeeper --id 1 --member a:2181:2888:3888 --member b:2181:2888:3888 --member …""",
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
def zookeeper(data_dir: str | None, listen: str, members: tuple[str, ...], number: int) -> int:
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
    place = data_dir or f"{default_data_directory()}/zookeeper-{number}"
    member = EnsembleMember(place, number, addresses)
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
        click.echo(f"ZooKeeper is running; zookeeper.connect={member.connect}")
        while not signals and member.is_running:
            time.sleep(POLL_S)
    finally:
        member.stop()
    if not signals:
        raise UserError(f"ZooKeeper exited unexpectedly. See {place}/member.log.")
    return 0


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
