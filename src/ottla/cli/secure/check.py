"""`ottla secure check`: collects what `findings` decides on, from files and from a cluster."""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.config.properties import load_properties
from ottla.base.errors import UserError
from ottla.base.private_file import read_private
from ottla.cli.secure import findings
from ottla.cli.secure.findings import Finding, Severity
from ottla.cli.secure.layout import SecureDirectory
from ottla.cli.secure.permissions import describe_acls
from ottla.cli.secure.policy import AUTHORIZER, Policy, described_properties

if TYPE_CHECKING:
    from ottla.client.admin import Admin, BrokerNode

CONNECT_TIMEOUT_S = 5.0
_KEYSTORE = "ssl.keystore.location"


def check_files(directory: SecureDirectory, configurations: Iterable[Path]) -> Iterator[Finding]:
    """Yield findings about a directory of `ottla secure init`, and configurations of brokers.

    Raises:
        UserError: A configuration cannot be read.
    """
    keystores = directory.keystores()
    secret = [*_secrets(directory)]
    for path in configurations:
        properties = load_properties(str(path))
        has_authorizer = bool(properties.get(AUTHORIZER))
        yield from findings.of_properties(
            str(path), properties, has_authorizer=has_authorizer, is_complete=True
        )
        if findings.has_secrets(properties):
            secret.append(path)
        keystores += _named_keystores(properties)
    for path in dict.fromkeys([*secret, *keystores]):
        with contextlib.suppress(OSError):
            yield from findings.of_mode(str(path), stat.S_IMODE(path.stat().st_mode))
    now = datetime.now(UTC)
    for path in dict.fromkeys(keystores):
        yield from _of_keystore(path, now)
    if directory.trusted.exists():
        yield from _of_keystore(directory.trusted, now)


def _secrets(directory: SecureDirectory) -> Iterator[Path]:
    """Yield the files of a directory that contain keys or passwords."""
    if not directory.path.is_dir():
        return
    for path in sorted(directory.path.rglob("*")):
        is_secret = path.suffix in (".key", ".properties", ".conf")
        if is_secret and not path.name.startswith("."):
            yield path


def _named_keystores(properties: Mapping[str, str]) -> Iterator[Path]:
    for name, value in properties.items():
        if name == _KEYSTORE or (name.startswith("listener.name.") and name.endswith(_KEYSTORE)):
            yield Path(value).absolute()


def _of_keystore(path: Path, now: datetime) -> Iterator[Finding]:
    from ottla.cli.secure.certificates import facts

    try:
        expires_at = facts(read_private(path)).expires_at
    except UserError as error:
        # Only PEM files can be read, so this may be a PKCS12 file that is in order.
        yield Finding(Severity.LOW, str(path), f"The certificate was not checked. {error}")
    else:
        yield from findings.of_certificate(str(path), expires_at, now)


def check_cluster(admin: Admin, *, has_tls: bool) -> Iterator[Finding]:
    """Yield findings about a running cluster.

    Args:
        admin: A client of an administrator.
        has_tls: Whether the client connects with TLS.

    Raises:
        KafkaError: The cluster cannot be asked, or refuses.
    """
    acls = describe_acls(admin)
    brokers = described_properties(admin)
    super_users: set[str] = set()
    for id, properties in (brokers or {}).items():
        yield from findings.of_properties(
            f"broker {id}", properties, has_authorizer=acls is not None, is_complete=False
        )
        super_users |= Policy.of_properties(properties, is_complete=False).super_users or set()
    if brokers is None:
        text = "The user may not describe the brokers, so their properties were not checked."
        yield Finding(Severity.LOW, "cluster", text)
    if acls is not None:
        users = admin.describe_user_scram_credentials()
        yield from findings.of_acls(acls)
        yield from findings.of_users(users, acls, super_users)
    if has_tls:
        for node in admin.describe_cluster().nodes.values():
            yield from _of_presented(node)


def _of_presented(node: BrokerNode) -> Iterator[Finding]:
    from ottla.cli.secure.certificates import facts

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The client has verified the certificate of a broker already; here only its dates matter.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    subject = f"certificate of broker {node.id}"
    try:
        with (
            socket.create_connection((node.host, node.port), CONNECT_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=node.host) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
    except OSError as error:
        yield Finding(Severity.LOW, subject, f"The certificate was not checked. {error}")
        return
    assert certificate is not None, "a TLS server has a certificate"
    pem = ssl.DER_cert_to_PEM_cert(certificate).encode()
    yield from findings.of_certificate(subject, facts(pem).expires_at, datetime.now(UTC))
