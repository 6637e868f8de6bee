"""Listener options of a broker: the advertised address, and whether other machines reach it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping

from ottla.base.config.broker import BROKER
from ottla.base.config.definition import split_list
from ottla.base.config.listener import Listener, client_listeners
from ottla.base.errors import UserError

_ROUTED = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses reserved for documentation (RFC 5737, RFC 3849). No packet is sent to them."""
_ANY_PORT = 9


def advertised_as(properties: Mapping[str, str], address: str) -> str:
    """Return the `advertised.listeners` for `--advertise HOST[:PORT]`.

    Without a port, clients use the port of the listener.

    Raises:
        ConfigError: `listeners` cannot be parsed.
        UserError: The address cannot be parsed, or there is more than one listener.
    """
    host, port = split_address(address)
    listeners = configured_listeners(properties)
    if len(listeners) != 1:
        names = ", ".join(listener.name for listener in listeners)
        raise UserError(
            f"--advertise sets the address of one listener, but there are {len(listeners)} "
            f"({names}). Set advertised.listeners instead."
        )
    return str(Listener(listeners[0].name, host, listeners[0].port if port is None else port))


def advertised_by_default(properties: Mapping[str, str]) -> str | None:
    """Return the `advertised.listeners` for listeners on all interfaces, or None without one.

    The host becomes the address of this machine on the network of its default route. Other machines
    on that network can connect to it even if they cannot resolve the machine's name, which is
    common for laptops and containers."""
    listeners = configured_listeners(properties)
    if not any(listener.is_on_every_interface for listener in listeners):
        return None
    return ",".join(
        str(each._replace(host=_machine_address(each.host)) if each.is_on_every_interface else each)
        for each in listeners
    )


def advertised_host(host: str) -> str:
    """Return the host that clients connect to if a broker listens on a host."""
    is_everywhere = Listener("", host, 0).is_on_every_interface
    return _machine_address(host) if is_everywhere else host


def exposed(listeners: Iterable[Listener]) -> list[Listener]:
    """Return the listeners that other machines can connect to."""
    return [listener for listener in listeners if not is_loopback(listener.host)]


def configured_listeners(properties: Mapping[str, str]) -> list[Listener]:
    listeners = properties.get("listeners")
    items = BROKER["listeners"].default if listeners is None else split_list(listeners)
    assert isinstance(items, list)
    return client_listeners("listeners", items, properties.get("controller.listener.names", ""))


def split_address(address: str) -> tuple[str, int | None]:
    """Return host and port of an `--advertise HOST[:PORT]`; the port is None if it has none.

    Raises:
        UserError: The address cannot be parsed.
    """
    try:
        return str(ipaddress.ip_address(address.strip("[]"))), None
    except ValueError:
        pass
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, ""
    is_port = port.isdecimal() and 0 < int(port) < 65536
    if not host or (colon and not is_port) or "/" in host or any(map(str.isspace, host)):
        raise UserError(f"--advertise {address!r} must look like HOST or HOST:PORT.")
    return host.strip("[]"), int(port) if colon else None


def _machine_address(listening: str) -> str:
    families = {"": (socket.AF_INET, socket.AF_INET6), "0.0.0.0": (socket.AF_INET,)}
    for family in families.get(listening, (socket.AF_INET6,)):
        try:
            # Connecting a datagram socket only selects an interface; it sends no packet.
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((_ROUTED[family], _ANY_PORT))
                return str(probe.getsockname()[0])
        except OSError:  # no route
            continue
    return socket.gethostname()


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can connect to a host."""
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the broker reports the error when it binds
        return False
    return all(ipaddress.ip_address(each[4][0]).is_loopback for each in found)
