"""The text of the files for brokers and clients.

A profile in the format of Java's clients has the trusted certificates inside, so that one file can
be copied to another machine. Java's tools, Ottla's tools, Spark and Connect read it. librdkafka
cannot: it rejects Java's property names, and kcat reads lines of at most 511 bytes without escapes.
Programs that use librdkafka get a file of their own, which names the file with the trusted
certificates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla.base.config.listener import Listener
from ottla.base.scram import ScramMechanism

ADMIN = "admin"
BROKERS = "broker"
"""User of the connections between brokers."""
PROTOCOL = "SASL_SSL"
MECHANISM = ScramMechanism.SHA_512
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TRUSTED = "ssl.truststore.certificates"
JAAS = "sasl.jaas.config"
BROKERS_JAAS = f"listener.name.{PROTOCOL.lower()}.{MECHANISM.sasl_name.lower()}.{JAAS}"
"""Login of brokers at other brokers."""
_MECHANISMS = ",".join(each.sasl_name for each in (MECHANISM, ScramMechanism.SHA_256))
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


@dataclass(frozen=True)
class Login:
    """A user and how it authenticates. The representation does not contain the password."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = MECHANISM


@dataclass(frozen=True)
class ClusterAccess:
    """Properties of a connection to a cluster that are the same for all users."""

    bootstrap: str
    truststore: Path | None
    """File with the certificates of the trusted authorities."""
    trusted: bytes = b""
    """The certificates themselves, in PEM format."""
    protocol: str = PROTOCOL


@dataclass(frozen=True)
class BrokerFiles:
    """Files that the configuration of a broker names."""

    keystore: str
    truststore: str
    data: str


def server_properties(
    listeners: Sequence[Listener],
    advertised: Sequence[Listener],
    files: BrokerFiles,
    brokers_password: str,
    more: Mapping[str, str],
) -> str:
    """Return the text of a broker's server.properties.

    Args:
        listeners: Listeners of the broker, all with SASL_SSL.
        advertised: Addresses that clients and other brokers connect to.
        files: Files and directories of the broker.
        brokers_password: Password of the user of the connections between brokers.
        more: Further properties, which come first.
    """
    login = Login(BROKERS, brokers_password)
    lines = [
        "# Written by `ottla secure init`. It contains the password that brokers use among",
        "# themselves, so keep it private.",
        *_properties(more),
        *_properties({"log.dirs": files.data}),
        "",
        *_properties(
            {
                "listeners": ",".join(map(str, listeners)),
                "advertised.listeners": ",".join(map(str, advertised)),
                "inter.broker.listener.name": PROTOCOL,
            }
        ),
        "",
        "# Certificates. Brokers load these files again when they change.",
        *_properties(
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": files.keystore,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": files.truststore,
            }
        ),
        "",
        "# Users are part of the cluster's metadata. `ottla secure user` manages them.",
        *_properties(
            {
                "sasl.enabled.mechanisms": _MECHANISMS,
                "sasl.mechanism.inter.broker.protocol": MECHANISM.sasl_name,
                BROKERS_JAAS: jaas(login),
            }
        ),
        "",
        "# What users may do is decided by ACLs. `ottla secure user add` and `kafka-acls` create",
        "# them. Super users need none.",
        *_properties(
            {
                "authorizer.class.name": AUTHORIZER,
                "super.users": f"User:{ADMIN};User:{BROKERS}",
            }
        ),
    ]
    return "\n".join(lines) + "\n"


def client_properties(cluster: ClusterAccess, login: Login) -> str:
    """Return the profile of a user, for clients in Java, Spark, Connect and Ottla.

    Args:
        cluster: How to connect to the cluster.
        login: The user.
    """
    lines = [
        f"# Profile of the user {_comment(login.user)}, written by `ottla secure`. It contains the",
        "# user's password, so keep it private.",
        *_properties(
            {
                "bootstrap.servers": cluster.bootstrap,
                "security.protocol": cluster.protocol,
                "sasl.mechanism": login.mechanism.sasl_name,
                JAAS: jaas(login),
            }
        ),
    ]
    if cluster.trusted:
        lines += [property_line("ssl.truststore.type", "PEM")]
        lines += [pem_property(TRUSTED, cluster.trusted)]
    return "\n".join(lines) + "\n"


def librdkafka_conf(cluster: ClusterAccess, login: Login) -> str:
    """Return the profile of a user, for kcat and other programs that use librdkafka.

    kcat does not support escapes, and programs split the lines themselves, so that the text has
    neither escapes nor comments.

    Args:
        cluster: How to connect to the cluster.
        login: The user.
    """
    properties = {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": cluster.protocol,
        "sasl.mechanism": login.mechanism.sasl_name,
        "sasl.username": login.user,
        "sasl.password": login.password,
    }
    if cluster.truststore is not None:
        properties["ssl.ca.location"] = str(cluster.truststore)
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def zookeeper_properties(user: str, password: str) -> str:
    """Return the text of the file with the user as which brokers log in to ZooKeeper."""
    lines = _properties({"zookeeper.auth.user": user, "zookeeper.auth.password": password})
    return "\n".join(lines) + "\n"


def jaas(login: Login) -> str:
    """Return a user's login in the JAAS format of Java's clients."""
    user, password = map(_quoted, (login.user, login.password))
    return f"{LOGIN_MODULE} required username={user} password={password};"


def pem_property(name: str, pem: bytes) -> str:
    """Return a property whose value is PEM text, with one line for each line of the text."""
    lines = [f"  {line}\\n" for line in pem.decode("ascii").splitlines()]
    return f"{name}=\\\n" + "\\\n".join(lines)


def property_line(name: str, value: str) -> str:
    """Return a line of a properties file that Java reads as this value.

    Java reads properties files in Latin-1, so other characters are written as escapes.
    """
    escaped = _NOT_ASCII.sub(_escaped, value.replace("\\", "\\\\"))
    if escaped.startswith(" "):
        escaped = f"\\{escaped}"
    return f"{name}={escaped}"


def replace_property(text: str, name: str, lines: str) -> str:
    """Return the text of a properties file with one property replaced, or added at the end.

    Args:
        text: The file's text. Everything else in it remains as it is.
        name: Name of the property.
        lines: The lines to write instead, without the end of the last line.
    """
    kept: list[str] = []
    is_replaced = is_inside = False
    for line in text.splitlines():
        starts = not is_inside and re.match(rf"\s*{re.escape(name)}\s*[=:]", line) is not None
        if starts and not is_replaced:
            kept.append(lines)
            is_replaced = True
        if is_inside or starts:
            is_inside = (len(line) - len(line.rstrip("\\"))) % 2 == 1
            continue
        kept.append(line)
    if not is_replaced:
        kept.append(lines)
    return "\n".join(kept) + "\n"


def _properties(properties: Mapping[str, str]) -> Iterable[str]:
    return (property_line(name, value) for name, value in properties.items())


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return _ESCAPES.get(match[0]) or "".join(
        f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2)
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _comment(text: str) -> str:
    return _NOT_ASCII.sub("?", text)
