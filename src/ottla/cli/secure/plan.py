"""The brokers that `ottla secure init` prepares: where they listen, and the names they have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.base.config.listener import Listener
from ottla.base.errors import UserError
from ottla.cli.listening import is_loopback, split_address
from ottla.cli.secure.texts import PROTOCOL

HOST = "127.0.0.1"
FIRST_PORT = 9092
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names that every certificate has, so that clients on the same machine can use them."""


@dataclass(frozen=True)
class BrokerPlan:
    """The addresses of one broker."""

    id: int
    listener: Listener
    advertised: Listener
    hosts: tuple[str, ...]
    """Host names and addresses of its certificate."""


def plan_brokers(
    advertise: Sequence[str],
    brokers: int | None = None,
    more_hosts: Iterable[str] = (),
    *,
    first_port: int = FIRST_PORT,
) -> list[BrokerPlan]:
    """Return the brokers for the options of a command line.

    Without an advertised address, the brokers listen on the loopback interface. With one address,
    all of them run on that machine, on consecutive ports. Otherwise there is one address for each.

    Args:
        advertise: Addresses in the form HOST or HOST:PORT.
        brokers: Number of brokers; None for one per address, and at least one.
        more_hosts: Further host names and addresses for all certificates.
        first_port: Port of the first broker, unless its address has one.

    Raises:
        UserError: An address cannot be parsed, or their number does not fit.
    """
    count = brokers or max(1, len(advertise))
    if len(advertise) not in (0, 1, count):
        raise UserError(
            f"--advertise was given {len(advertise)} times for {count} brokers. Give it once for "
            "brokers on one machine, or once for each broker."
        )
    addresses = [split_address(each) for each in advertise] or [(HOST, None)]
    if len(addresses) < count:
        host, port = addresses[0]
        start = first_port if port is None else port
        addresses = [(host, start + index) for index in range(count)]
    advertised = [
        Listener(PROTOCOL, host, first_port if port is None else port) for host, port in addresses
    ]
    if len(set(advertised)) < len(advertised):
        raise UserError("--advertise must be a different address for each broker.")
    more = tuple(more_hosts)
    return [
        BrokerPlan(
            id,
            Listener(PROTOCOL, HOST if is_loopback(each.host) else "", each.port),
            each,
            _unique([each.host, *more, *LOOPBACK]),
        )
        for id, each in enumerate(advertised, start=1)
    ]


def zookeeper_hosts(connect: str) -> list[str]:
    """Return the hosts of a `zookeeper.connect`.

    Raises:
        UserError: It cannot be parsed.
    """
    from ottla.metadata.zookeeper.store import parse_connect

    servers, _ = parse_connect(connect)
    return [host for host, _ in servers]


def _unique(hosts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hosts))
