"""Listeners of the form `NAME://host:port`, as in `listeners` and `advertised.listeners`.

Names are compared and stored in upper case. An empty host in `listeners` means every interface, and
the broker advertises the name of the machine for it. Port 0 means any free port. Two listeners can
share a port only if one uses IPv4 and the other IPv6.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.base.config.definition import ConfigError, split_list

_LISTENER = re.compile(r"([^:/]+)://(\[[0-9a-zA-Z:%.]*\]|[0-9a-zA-Z\-._]*):([0-9]{1,5})")


class SecurityProtocol(Enum):
    """How the connections of a listener are secured."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Listener(NamedTuple):
    """The name and the address of a listener."""

    name: str
    host: str
    port: int

    @property
    def is_on_every_interface(self) -> bool:
        """Whether the host is empty, 0.0.0.0 or ::."""
        return not self.host or _is_unspecified(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(name: str, items: Sequence[str]) -> list[Listener]:
    """Parse the items of a listener property.

    Args:
        name: Name of the property, for error messages.
        items: The items of the property.

    Raises:
        ConfigError: A listener cannot be parsed, or two listeners have the same name.
    """
    listeners = [_parse(name, item) for item in items]
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise ConfigError(name, ",".join(items), "must give each listener a unique name")
    return listeners


def client_listeners(name: str, items: Sequence[str], for_controllers: str) -> list[Listener]:
    """Return the listeners of the property `name`, without those of KRaft controllers.

    Args:
        name: `listeners` or `advertised.listeners`, for the error message.
        items: The items of the property.
        for_controllers: The value of `controller.listener.names`.

    Raises:
        ConfigError: A listener cannot be parsed, or two listeners have the same name.
    """
    ignored = split_list(for_controllers.upper())
    return [each for each in parse_listeners(name, items) if each.name not in ignored]


def check_ports(name: str, listeners: Iterable[Listener]) -> None:
    """Raise ConfigError if two listeners would bind the same port."""
    families: dict[int, list[int]] = {}
    for listener in listeners:
        if listener.port:
            families.setdefault(listener.port, []).append(_ip_version(listener.host))
    for port, versions in families.items():
        if len(versions) > 1 and sorted(versions) != [4, 6]:
            raise ConfigError(name, port, "must not use the same port for two listeners")


def check_advertised(listeners: Sequence[Listener], advertised: Iterable[Listener]) -> None:
    """Raise ConfigError if clients would be sent to an address that cannot work."""
    names = [listener.name for listener in listeners]
    for listener in advertised:
        if _is_unspecified(listener.host):
            # Kafka rejects these, too. It replaces an empty host by the name of the machine.
            allowed = "must be an address that clients can reach; set advertised.listeners to it"
            raise ConfigError("advertised.listeners", listener, allowed)
        if listener.name not in names:
            allowed = f"must use the names in listeners ({', '.join(names)})"
            raise ConfigError("advertised.listeners", listener, allowed)


def parse_protocols(
    listeners: Iterable[Listener], protocol_map: str
) -> dict[str, SecurityProtocol]:
    """Return the security protocol of each listener.

    Raises:
        ConfigError: The map cannot be parsed, or has no known protocol for a listener.
    """
    property_name = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for item in split_list(protocol_map):
        listener_name, colon, protocol = item.partition(":")
        if not colon:
            allowed = "must be a list of LISTENER:PROTOCOL pairs"
            raise ConfigError(property_name, protocol_map, allowed)
        protocols[listener_name.strip().upper()] = protocol.strip().upper()
    found = {}
    for listener in listeners:
        protocol = protocols.get(listener.name, "")
        if protocol not in SecurityProtocol.__members__:
            allowed = f"must name a security protocol for the listener {listener.name}"
            raise ConfigError(property_name, protocol_map, allowed)
        found[listener.name] = SecurityProtocol[protocol]
    return found


def _parse(name: str, item: str) -> Listener:
    match = _LISTENER.fullmatch(item.strip())
    if match is None or int(match[3]) > 65535:
        raise ConfigError(name, item, "must look like NAME://host:port, with a port up to 65535")
    return Listener(match[1].strip().upper(), match[2].strip("[]"), int(match[3]))


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _ip_version(host: str) -> int:
    """Return 4 or 6, or 0 for a host name, which may resolve to either."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0
