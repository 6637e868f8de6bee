"""TLS and authentication of the ZooKeeper servers that Ottla runs.

    <directory>/ca.pem                 certificates of the authorities that are trusted
    <directory>/zookeeper.pem          private key (PKCS8, not encrypted) and certificate chain
    <directory>/zookeeper.properties   zookeeper.auth.user and zookeeper.auth.password

A secure server has no port for plain text. Its clients and the other servers must present a
certificate, and clients must prove with SASL that they know the password. Certificates are loaded
again when their files change.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from ottla.base.config.properties import load_properties
from ottla.base.config.zookeeper_security import (
    SASL,
    ZooKeeperCredentials,
    parse_zookeeper_security,
)
from ottla.base.errors import UserError

TRUSTSTORE_FILE = "ca.pem"
KEYSTORE_FILE = "zookeeper.pem"
CREDENTIALS_FILE = "zookeeper.properties"
JAAS_FILE = "jaas.conf"

_USER = re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class EnsembleSecurity:
    """The certificates of a secure server, and the user that its clients authenticate as."""

    keystore: Path
    """PEM file with the private key (PKCS8, not encrypted) and the certificate chain."""
    truststore: Path
    """PEM file with the certificates of the authorities that sign clients and servers."""
    credentials: ZooKeeperCredentials | None
    """The user of the brokers. With None, a certificate suffices."""

    @classmethod
    def from_directory(cls, directory: str | Path) -> EnsembleSecurity:
        """Return the files of a directory with the names in the description of this module.

        Raises:
            UserError: A file is missing or cannot be used.
        """
        place = Path(directory).absolute()
        return cls.from_files(
            place / KEYSTORE_FILE, place / TRUSTSTORE_FILE, place / CREDENTIALS_FILE
        )

    @classmethod
    def from_files(
        cls, keystore: str | Path, truststore: str | Path, credentials: str | Path
    ) -> EnsembleSecurity:
        """Read the credentials, and check that the other files are usable.

        Raises:
            UserError: A file is missing or cannot be used.
        """
        found = parse_zookeeper_security(load_properties(str(credentials))).credentials
        if found is None:
            raise UserError(
                f"{credentials} must set zookeeper.auth.user and zookeeper.auth.password."
            )
        security = cls(Path(keystore).absolute(), Path(truststore).absolute(), found)
        security.check()
        return security

    def check(self) -> None:
        """Check that Java can use the files and the credentials.

        Raises:
            UserError: They cannot be used.
        """
        self.client_context()
        if b"-----BEGIN PRIVATE KEY-----" not in self.keystore.read_bytes():
            raise UserError(
                f"{self.keystore} cannot be used: ZooKeeper needs an unencrypted private key in "
                "PKCS8 format. Convert it with: openssl pkcs8 -topk8 -nodes"
            )
        user = self.credentials
        if user is None:
            return
        if user.scheme != SASL:
            raise UserError("zookeeper.auth.scheme must be sasl for a server that Ottla runs.")
        if not _USER.fullmatch(user.user):
            raise UserError(
                f"zookeeper.auth.user={user.user} cannot be used: the name must consist of "
                "letters, digits, dots, hyphens and underscores."
            )
        if "${" in user.password or not user.password.isprintable():
            raise UserError(
                "zookeeper.auth.password cannot be used: Java's configuration files cannot hold "
                "control characters or the text ${."
            )

    def client_context(self) -> ssl.SSLContext:
        """Return a TLS context for status requests to a server on this machine.

        The server's certificate must be signed by a trusted authority, for any host name.

        Raises:
            UserError: A file is missing or cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        path = self.truststore
        try:
            context.load_verify_locations(path)
            path = self.keystore
            context.load_cert_chain(path, password="")
        except (OSError, ValueError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise UserError(f"{path} cannot be used: {reason.rstrip('.').lower()}.") from None
        return context

    def broker_properties(self, keystore: str | Path | None = None) -> dict[str, str]:
        """Return the properties with which brokers connect to the servers.

        Args:
            keystore: PEM file with the private key and certificate of the broker; None for those of
                the servers.
        """
        properties = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.keystore.location": str(keystore or self.keystore),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.truststore.location": str(self.truststore),
            "zookeeper.set.acl": "true",
        }
        if self.credentials is not None:
            properties["zookeeper.auth.user"] = self.credentials.user
            properties["zookeeper.auth.password"] = self.credentials.password
        return properties

    def server_config(self) -> list[str]:
        """Return the lines of zoo.cfg. They contain no secrets."""
        stores = {"keyStore": self.keystore, "trustStore": self.truststore}
        lines = [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.clientAuth=need",
            "client.certReload=true",
            "sslQuorum=true",
            "sslQuorumReloadCertFiles=true",
        ]
        for prefix in ("ssl", "ssl.quorum"):
            for store, path in stores.items():
                lines += [f"{prefix}.{store}.location={path}", f"{prefix}.{store}.type=PEM"]
        if self.credentials is not None:
            lines += [
                "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "sessionRequireClientSASLAuth=true",
            ]
        return lines

    def jaas(self) -> str | None:
        """Return the JAAS configuration of a server, or None if it has no user."""
        if self.credentials is None:
            return None
        password = self.credentials.password.replace("\\", "\\\\").replace('"', '\\"')
        return (
            "Server {\n"
            "  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
            f'  user_{self.credentials.user}="{password}";\n'
            "};\n"
        )
