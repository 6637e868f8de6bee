"""`ottla secure init`: make what a secured cluster needs, and prove that it works.

Each file is written once. If the command is interrupted and run again, it keeps the files that
exist and makes the others. The users are stored in the metadata before the profile of the
administrator is written, so a profile that exists has a password that works.
"""

from __future__ import annotations

import functools
import re
import secrets
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from ottla.base.config.properties import load_properties
from ottla.base.private_file import make_private_directory, read_private, write_private
from ottla.cli.secure.certificates import Authority, facts
from ottla.cli.secure.layout import SecureDirectory
from ottla.cli.secure.plan import LOOPBACK, BrokerPlan, zookeeper_hosts
from ottla.cli.secure.renew import load_authority, trust
from ottla.cli.secure.texts import (
    ADMIN,
    BROKERS,
    BROKERS_JAAS,
    BrokerFiles,
    ClusterAccess,
    Login,
    client_properties,
    librdkafka_conf,
    server_properties,
    zookeeper_properties,
)

PASSWORD_CHARACTERS = string.ascii_letters + string.digits
"""Characters that need no quotes in shells, in properties files and in JAAS configurations."""
PASSWORD_LENGTH = 32
GITIGNORE = "# Everything here is secret.\n*\n"

ZOOKEEPER = "zookeeper"
_PASSWORD = re.compile(r'password="([^"]+)"')


class PutUsers(Protocol):
    """Function that stores users in the metadata of a cluster that is not running."""

    def __call__(
        self, properties: Mapping[str, str], logins: Sequence[Login], *, replaces: bool
    ) -> None: ...


@dataclass(frozen=True)
class Made:
    """A file, and whether it was made or existed before."""

    path: Path
    description: str
    is_new: bool = True


@dataclass
class Initializer:
    """Makes the files of a directory.

    Args:
        directory: The directory.
        plans: The brokers.
        data_dir: Returns the data directory of a broker.
        put_users: Stores the first users.
        zookeeper: `zookeeper.connect` of the brokers, or None for a broker without ZooKeeper.
        is_forced: Whether files that exist are replaced.
        now: The current time.
    """

    directory: SecureDirectory
    plans: Sequence[BrokerPlan]
    data_dir: Callable[[BrokerPlan], str]
    put_users: PutUsers
    zookeeper: str | None = None
    is_forced: bool = False
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def make_files(self) -> list[Made]:
        """Make what does not exist, apart from the users and their profiles, and return it all.

        Raises:
            UserError: A file cannot be written.
        """
        make_private_directory(self.directory.path)
        if not (ignored := self.directory.path / ".gitignore").exists():
            write_private(ignored, GITIGNORE)
        if self.is_forced:
            self._check_stopped()
        made = [self._authority(), *map(self._keystore, self.plans)]
        if self.zookeeper is not None:
            made += self._zookeeper_files(self.zookeeper)
        return [*made, *map(self._configuration, self.plans)]

    def make_users(self) -> list[Made]:
        """Store the first users and write the profiles, unless they exist, and return those.

        Raises:
            UserError: A file cannot be written, or the metadata cannot be changed.
        """
        path, for_librdkafka = self.directory.admin_profile, self.directory.admin_librdkafka
        is_new = self.is_forced or not path.exists()
        if is_new:
            admin, authorities = Login(ADMIN, new_password()), self.directory.trusted
            cluster = ClusterAccess(self.bootstrap, authorities, read_private(authorities))
            properties = load_properties(str(self.server(self.plans[0])))
            brokers = Login(BROKERS, self._brokers_password)
            self.put_users(properties, [admin, brokers], replaces=self.is_forced)
            write_private(for_librdkafka, librdkafka_conf(cluster, admin))
            write_private(path, client_properties(cluster, admin))
        text = f"profile of the user {ADMIN}, for the tools of Kafka and Ottla, Spark and Connect"
        made = [Made(path, text, is_new)]
        if for_librdkafka.exists():
            made.append(Made(for_librdkafka, "the same for kcat and confluent-kafka", is_new))
        return made

    def missing_hosts(self) -> list[str]:
        """Return the hosts of the brokers that are not in their certificates."""
        missing: dict[str, None] = {}
        for plan in self.plans:
            names = facts(read_private(self.directory.keystore(plan.id))).names
            missing.update(dict.fromkeys(each for each in plan.hosts if each not in names))
        return list(missing)

    def server(self, plan: BrokerPlan) -> Path:
        """Return the configuration file of a broker."""
        return self.directory.server(plan.id, len(self.plans))

    @property
    def bootstrap(self) -> str:
        return ",".join(str(each.advertised).partition("://")[2] for each in self.plans)

    # -------------------------------------------------------------------------- certificates

    def _check_stopped(self) -> None:
        """Raise UserError if the users cannot be replaced, before anything else is replaced."""
        first = self.server(self.plans[0])
        if first.exists():
            self.put_users(load_properties(str(first)), [], replaces=False)

    def _authority(self) -> Made:
        is_new = self.is_forced or not self.directory.exists
        if is_new:
            authority = Authority.create(self.now)
            # The key comes last: it tells that there is an authority.
            trust(self.directory, authority.certificate)
            self.directory.cross_certificates.unlink(missing_ok=True)
            write_private(self.directory.authority_key, authority.key)
        else:
            authority = load_authority(self.directory)
        end = facts(authority.certificate).expires_at
        text = f"certificate authority, valid until {end:%Y-%m-%d}; its key is in ca.key"
        return Made(self.directory.trusted, text, is_new)

    def _keystore(self, plan: BrokerPlan) -> Made:
        path = self.directory.keystore(plan.id)
        return self._certificate(path, f"broker-{plan.id}", f"broker {plan.id}", plan.hosts)

    def _certificate(self, path: Path, name: str, owner: str, hosts: Iterable[str]) -> Made:
        is_new = self.is_forced or not path.exists()
        if is_new:
            cross = self.directory.read_cross_certificates()
            issued = load_authority(self.directory).issue(name, hosts, self.now, cross)
            write_private(path, issued.store)
        found = facts(read_private(path))
        names, end = ", ".join(found.names), found.expires_at
        return Made(path, f"certificate of {owner} for {names}, valid until {end:%Y-%m-%d}", is_new)

    def _zookeeper_files(self, connect: str) -> Iterable[Made]:
        hosts = [*zookeeper_hosts(connect), *LOOPBACK]
        yield self._certificate(
            self.directory.zookeeper_keystore, ZOOKEEPER, "the ZooKeeper servers", hosts
        )
        path = self.directory.zookeeper_login
        is_new = self.is_forced or not path.exists()
        if is_new:
            write_private(path, zookeeper_properties(BROKERS, new_password()))
        yield Made(path, "password of the brokers for ZooKeeper", is_new)

    # ------------------------------------------------------------------------- configurations

    def _configuration(self, plan: BrokerPlan) -> Made:
        path = self.server(plan)
        is_new = self.is_forced or not path.exists()
        if is_new:
            files = BrokerFiles(
                str(self.directory.keystore(plan.id)),
                str(self.directory.trusted),
                self.data_dir(plan),
            )
            text = server_properties(
                [plan.listener],
                [plan.advertised],
                files,
                self._brokers_password,
                self._more_properties(plan),
            )
            write_private(path, text)
        listeners = load_properties(str(path)).get("listeners", "the default address")
        return Made(
            path, f"configuration of broker {plan.id}, which listens on {listeners}", is_new
        )

    def _more_properties(self, plan: BrokerPlan) -> dict[str, str]:
        own = {} if len(self.plans) == 1 else {"node.id": str(plan.id)}
        if self.zookeeper is None:
            return own
        from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity

        security = EnsembleSecurity.from_files(
            self.directory.zookeeper_keystore,
            self.directory.trusted,
            self.directory.zookeeper_login,
        )
        return {
            **own,
            "zookeeper.connect": self.zookeeper,
            **security.broker_properties(self.directory.keystore(plan.id)),
        }

    @functools.cached_property
    def _brokers_password(self) -> str:
        """The password of the brokers, from a configuration if there is one."""
        if not self.is_forced:
            for plan in self.plans:
                if self.server(plan).exists():
                    properties = load_properties(str(self.server(plan)))
                    found = _PASSWORD.search(properties.get(BROKERS_JAAS, ""))
                    if found:
                        return found[1]
        return new_password()


def new_password() -> str:
    """Return a random password."""
    return "".join(secrets.choice(PASSWORD_CHARACTERS) for _ in range(PASSWORD_LENGTH))
