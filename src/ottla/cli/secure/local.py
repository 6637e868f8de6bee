"""The security of `ottla cluster up --secure`: everything that `ottla secure init` makes, for a
cluster on one machine with its own ZooKeeper.

The files are in the directory `secure` of the cluster's data. Ports and ZooKeeper's address can
change with each start, so the cluster overrides those in the configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.config.listener import Listener
from ottla.base.config.properties import load_properties
from ottla.base.private_file import read_private, write_private
from ottla.cli.secure.certificates import facts
from ottla.cli.secure.first_users import put_users
from ottla.cli.secure.init import Initializer
from ottla.cli.secure.layout import LOCAL_DIRECTORY, SecureDirectory
from ottla.cli.secure.plan import plan_brokers
from ottla.cli.secure.renew import renew
from ottla.cli.secure.texts import Login, property_line, replace_property

if TYPE_CHECKING:
    from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity

RENEWED_BEFORE = timedelta(days=30)
"""Remaining lifetime at which a start of the cluster renews its certificates."""


class LocalSecurity:
    """The certificates, users and configurations of a cluster on one machine.

    Args:
        data_dir: Data directory of the cluster.
        host: Address that clients connect to.
        ports: Ports of the brokers.
    """

    def __init__(self, data_dir: Path, host: str, ports: Sequence[int]) -> None:
        self.directory = SecureDirectory(data_dir / LOCAL_DIRECTORY)
        addresses = [f"{host}:{port}" for port in ports]
        self._making = Initializer(
            self.directory,
            plan_brokers(addresses, len(addresses)),
            lambda plan: str(data_dir / f"broker-{plan.id}"),
            self._put_users,
            "127.0.0.1",
        )
        self._connect = ""

    @property
    def profile(self) -> Path:
        """The profile of the administrator."""
        return self.directory.admin_profile

    def prepare(self) -> EnsembleSecurity:
        """Make certificates and configurations, and return what ZooKeeper needs.

        Certificates that expire soon, or are for other addresses, are renewed.

        Raises:
            UserError: A file cannot be written.
        """
        from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity

        self._making.make_files()
        hosts = self._making.plans[0].hosts
        found = [facts(read_private(each)) for each in self.directory.keystores()]
        soon = datetime.now(UTC) + RENEWED_BEFORE
        if any(each.expires_at < soon or not {*hosts} <= {*each.names} for each in found):
            renew(self.directory, more_hosts=hosts)
        return EnsembleSecurity.from_files(
            self.directory.zookeeper_keystore,
            self.directory.trusted,
            self.directory.zookeeper_login,
        )

    def finish(self, connect: str) -> None:
        """Store the first users in ZooKeeper, and write the profile.

        Args:
            connect: `zookeeper.connect`.

        Raises:
            UserError: ZooKeeper cannot be reached, or a file cannot be written.
        """
        self._connect = connect
        self._making.make_users()
        name = "bootstrap.servers"
        line = property_line(name, self._making.bootstrap)
        for path in (self.profile, self.directory.admin_librdkafka):
            text = read_private(path).decode()
            if replace_property(text, name, line) != text:
                write_private(path, replace_property(text, name, line))

    def properties(self, broker: int, host: str) -> dict[str, str]:
        """Return the configuration of a broker that listens on a host."""
        plan = self._making.plans[broker - 1]
        listener = Listener(plan.listener.name, host, plan.listener.port)
        return {
            **load_properties(str(self._making.server(plan))),
            "listeners": str(listener),
            "advertised.listeners": str(plan.advertised),
        }

    def _put_users(
        self, properties: Mapping[str, str], logins: Sequence[Login], *, replaces: bool
    ) -> None:
        connect = {"zookeeper.connect": self._connect}
        put_users({**properties, **connect}, logins, replaces=replaces)
