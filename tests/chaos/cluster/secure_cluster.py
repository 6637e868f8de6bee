"""Three brokers without any plain-text port, and a ZooKeeper that requires certificates.

    EXTERNAL   SASL_SSL for clients, whose sessions last five seconds
    INTERNAL   SASL_SSL for brokers, whose sessions last as long
    LASTING    SASL_SSL for clients, with sessions of unlimited length

All users have SCRAM-SHA-512 credentials, which are in ZooKeeper before the first broker starts.
Each broker has one certificate, for its listeners and for its connections to ZooKeeper."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import socket
import ssl
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.chaos.cluster.authorities import Authority, replace, serial_number, trusting
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, wait_for

from ottla.base.config.properties import format_properties
from ottla.base.config.zookeeper_security import ZooKeeperCredentials
from ottla.base.jaas import SCRAM_MODULE
from ottla.cli.main import ottla
from ottla.metadata.zookeeper.ensemble import EnsembleMember, local_addresses
from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity
from ottla.net import sasl
from ottla.net.connection import Connection
from ottla.testing.broker import BrokerProcess
from ottla.wire import rpc

HOST = "127.0.0.1"
LISTENERS = ("EXTERNAL", "INTERNAL", "LASTING")
MECHANISM = "SCRAM-SHA-512"
PASSWORDS = {"kafka": "broker-secret", "alice": "alice-secret", "carol": "carol-first-secret"}
"""The first password of each user. The brokers authenticate as `kafka`."""
ZOOKEEPER_PASSWORD = "zookeeper-secret"
CLUSTER_ID = "Moq1eLhXg8miO_2zq0vZwA"
SESSION_MS = 5_000
BELOW_CLIENTS = range(15_000, 32_000)
"""Ports that systems do not use for outgoing connections."""
PATIENCE_S = 120.0
"""Limit for everything that the tests wait for, long enough for a busy machine."""

_AUTHENTICATED = re.compile(r"(\S+:\d+) on (\w+) is authenticated as (\S+)")


def lasting_ports(count: int) -> list[int]:
    """Return free ports that no client of a killed broker gets before the broker is back."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(BELOW_CLIENTS)
        with suppress(OSError), socket.create_server((HOST, port)):
            found.append(port)
    return found


class SecureZooKeeper:
    """A ZooKeeper server that requires a certificate and the password of the brokers."""

    def __init__(self, home: Path, authority: Authority) -> None:
        home.mkdir()
        credentials = ZooKeeperCredentials("brokers", ZOOKEEPER_PASSWORD)
        self.security = EnsembleSecurity(home / "keystore.pem", home / "trusted.pem", credentials)
        replace(self.security.keystore, authority.sign("zookeeper"))
        replace(self.security.truststore, authority.certificate)
        self.member = EnsembleMember(
            home / "member", 1, local_addresses(1, lasting_ports(3)), self.security
        )

    def start(self) -> None:
        self.member.start()
        self.member.wait_until_serving(PATIENCE_S)

    def restart(self) -> None:
        self.member.kill()
        self.start()

    def trust(self, *authorities: Authority) -> None:
        replace(self.security.truststore, b"".join(each.certificate for each in authorities))

    def renew(self, authority: Authority) -> None:
        """Replace the server's certificate, and wait until the server presents it."""
        new = authority.sign("zookeeper")
        replace(self.security.keystore, new)
        wait_for(
            lambda: self.presented() == serial_number(new),
            "new certificate of ZooKeeper",
            PATIENCE_S,
        )

    def presented(self) -> int:
        address = (self.member.address.host, self.member.address.client_port)
        context = self.security.client_context()
        with socket.create_connection(address, 10) as peer, context.wrap_socket(peer) as secure:
            return _serial_of(secure)

    def admits(self, keystore: Path) -> bool:
        """Return whether the server answers a client with this certificate."""
        stranger = EnsembleSecurity(keystore, self.security.truststore, None)
        address = (self.member.address.host, self.member.address.client_port)
        context = stranger.client_context()
        with socket.create_connection(address, 10) as peer, context.wrap_socket(peer) as secure:
            secure.sendall(b"srvr")
            try:
                return bool(secure.recv(1))
            except ssl.SSLError:  # in TLS 1.3, the rejection arrives after the handshake
                return False


class SecureCluster(ClusterOfProcesses):
    """Three brokers with TLS and SASL on every listener."""

    def __init__(self, home: Path, zookeeper: SecureZooKeeper, authority: Authority) -> None:
        home.mkdir()
        self.home = home
        self._zookeeper = zookeeper
        self.signed_by = authority
        """The authority of the brokers' certificates."""
        self.trusted = home / "trusted-by-brokers.pem"
        self.trusted_by_clients = home / "trusted-by-clients.pem"
        self._ports = {id: lasting_ports(len(LISTENERS)) for id in (1, 2, 3)}
        for path in (self.trusted, self.trusted_by_clients):
            replace(path, authority.certificate)
        super().__init__(
            home,
            f"{zookeeper.member.connect}/secure",
            listener_security_protocol_map=",".join(f"{each}:SASL_SSL" for each in LISTENERS),
            inter_broker_listener_name="INTERNAL",
            ssl_keystore_type="PEM",
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(self.trusted),
            sasl_enabled_mechanisms=MECHANISM,
            sasl_mechanism_inter_broker_protocol=MECHANISM,
            connections_max_reauth_ms=str(SESSION_MS),
            broker_lease_ms="2000",
            zookeeper_session_timeout_ms="6000",
            replica_lag_time_max_ms="5000",
        )
        self.client_settings = self.librdkafka("alice")

    def add(self, id: int, **overrides: str) -> BrokerProcess:
        """Add a broker with a certificate of its own, without starting it."""
        store = self.store(id)
        replace(store, self.signed_by.sign(f"broker-{id}"))
        ports = zip(LISTENERS, self._ports[id], strict=True)
        user = f'username="kafka" password="{PASSWORDS["kafka"]}"'
        own = {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports),
            "ssl.keystore.location": str(store),
            "listener.name.internal.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required "
            f"{user};",
            "listener.name.lasting.scram-sha-512.connections.max.reauth.ms": "0",
            **self._zookeeper.security.broker_properties(store),
        }
        broker = super().add(id, **overrides)
        # The log of every authentication is written on this level.
        self.brokers[id] = BrokerProcess(
            broker.data_dir, overrides={**broker.overrides, **own}, log_level="DEBUG"
        )
        broker.close()
        return self.brokers[id]

    def store(self, id: int) -> Path:
        """Return the file with the key and the certificate of a broker."""
        return self.home / f"broker-{id}.pem"

    def port(self, id: int, listener: str = "EXTERNAL") -> int:
        return self._ports[id][LISTENERS.index(listener)]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.port(id)}" for id in self.brokers)

    def format(self) -> None:
        """Store the first users in ZooKeeper, as an administrator does with kafka-storage."""
        for id, broker in self.brokers.items():
            file = self.home / f"server-{id}.properties"
            file.touch(mode=0o600)
            properties = {**broker.overrides, "log.dirs": str(broker.data_dir)}
            file.write_text(format_properties(properties))
            words = ["storage", "format", "-c", str(file), "-t", CLUSTER_ID]
            for user, password in PASSWORDS.items():
                words += ["--add-scram", f"{MECHANISM}=[name={user},password={password}]"]
            done = CliRunner().invoke(ottla, words)
            assert done.exit_code == 0, done.output

    def start(self) -> None:
        stopped = [broker for broker in self.brokers.values() if not broker.is_running]
        for broker in stopped:
            broker.start(wait=False)
        for broker in stopped:
            broker.wait_until_ready(PATIENCE_S)

    def close(self) -> None:
        """Stop the brokers, and keep their logs beside their data."""
        for id, broker in self.brokers.items():
            if broker.log_file.exists():
                shutil.copy(broker.log_file, self.home / f"broker-{id}.log")
        super().close()

    # ------------------------------------------------------------------------------- clients

    def librdkafka(self, user: str, password: str | None = None) -> dict[str, Any]:
        """Return librdkafka's settings for a user."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trusted_by_clients),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
        }

    async def opened(
        self,
        id: int,
        user: str,
        password: str,
        *,
        listener: str = "EXTERNAL",
        tls: ssl.SSLContext | None = None,
    ) -> Connection:
        """Return a new connection to a broker."""
        login = sasl.Scram(MECHANISM, user, password)
        return await Connection.open(
            HOST,
            self.port(id, listener),
            timeout_s=PATIENCE_S,
            tls=tls or ssl.create_default_context(cafile=self.trusted_by_clients),
            authenticate=sasl.authenticator(login, PATIENCE_S),
        )

    def _known_to(self, host: str, port: int) -> list[int]:
        (id,) = (each for each in self.brokers if self.port(each) == port)

        async def ask() -> list[int]:
            connection = await self.opened(id, "alice", PASSWORDS["alice"])
            try:
                reported = await connection.request(rpc.metadata(topics=[]), PATIENCE_S)
            finally:
                connection.close()
            return [each.node_id for each in reported.brokers]

        return asyncio.run(ask())

    # -------------------------------------------------------------------------- certificates

    def trust(self, *authorities: Authority) -> None:
        """Replace the authorities that the brokers trust, and wait until they have noticed."""
        before = {id: self._changes_seen(id) for id in self.brokers}
        replace(self.trusted, b"".join(each.certificate for each in authorities))
        for id in self.brokers:
            wait_for(
                lambda id=id: self._changes_seen(id) >= before[id] + len(LISTENERS),
                f"changed trust store of broker {id}",
                PATIENCE_S,
            )

    def _changes_seen(self, id: int) -> int:
        return self.whole_log(id).count("uses changed TLS certificates")

    def renew(self, id: int, *, slowly: bool = False) -> None:
        """Replace the certificate of a broker, and wait until all its listeners present it.

        Args:
            id: The broker.
            slowly: Write to the file that the broker reads, in two parts, the first of which the
                broker tries to load.
        """
        new = self.signed_by.sign(f"broker-{id}")
        if slowly:
            complaint = "keeps its TLS certificates"
            before = self.whole_log(id).count(complaint)
            self.store(id).write_bytes(new[: len(new) // 2])
            wait_for(
                lambda: self.whole_log(id).count(complaint) > before,
                "complaint about half a certificate",
                PATIENCE_S,
            )
            self.store(id).write_bytes(new)
        else:
            replace(self.store(id), new)
        for listener in LISTENERS:
            wait_for(
                lambda listener=listener: self.presented(id, listener) == serial_number(new),
                f"new certificate of broker {id}",
                PATIENCE_S,
            )

    def presented(self, id: int, listener: str) -> int:
        """Return the serial number of the certificate that a listener presents."""
        context = ssl.create_default_context(cafile=self.trusted_by_clients)
        with (
            socket.create_connection((HOST, self.port(id, listener)), 10) as peer,
            context.wrap_socket(peer, server_hostname=HOST) as secure,
        ):
            return _serial_of(secure)

    def accepts(self, id: int, authority: Authority) -> bool:
        """Return whether a client that trusts only this authority accepts the broker."""
        try:
            with (
                socket.create_connection((HOST, self.port(id)), 10) as peer,
                trusting(authority.certificate).wrap_socket(peer, server_hostname=HOST),
            ):
                return True
        except ssl.SSLCertVerificationError:
            return False

    # ---------------------------------------------------------------------------------- logs

    def whole_log(self, id: int) -> str:
        """Return the log of a broker since its first start."""
        return self.brokers[id].log_file.read_text("utf-8", "replace")

    def reauthentications(self) -> Counter[str]:
        """Return how often clients have authenticated again, by listener."""
        found: Counter[str] = Counter()
        for id in self.brokers:
            times = Counter(_AUTHENTICATED.findall(self.whole_log(id)))
            for (_, listener, _), count in times.items():
                found[listener] += count - 1
        return found


def _serial_of(secure: ssl.SSLSocket) -> int:
    presented = secure.getpeercert(binary_form=True)
    assert presented is not None
    return serial_number(ssl.DER_cert_to_PEM_cert(presented).encode())
