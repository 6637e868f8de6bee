"""The files of a directory that `ottla secure init` makes.

<dir>/ca.key                      private key of the certificate authority
<dir>/ca.pem                      certificates that brokers and clients trust
<dir>/ca.cross.pem                cross certificates, while one authority replaces another
<dir>/server.properties           configuration of the broker; server-<id>.properties of several
<dir>/broker-<id>.pem             key and certificate of a broker
<dir>/zookeeper.pem               key and certificate of the ZooKeeper servers
<dir>/zookeeper.properties        user as which brokers log in to ZooKeeper
<dir>/client.properties           profile of the administrator
<dir>/librdkafka.conf             the same for kcat and other programs with librdkafka
<dir>/users/<name>.properties     profile of another user, and <name>.conf for librdkafka
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from ottla.base.errors import UserError
from ottla.base.private_file import read_private

DEFAULT_DIRECTORY = "secure"
LOCAL_DIRECTORY = "secure"
"""Name of the directory in the data of `ottla cluster up`."""
_STORE = re.compile(r"broker-(\d+)\.pem")
_PROFILE = ".properties"
_LIBRDKAFKA = ".conf"


class SecureDirectory:
    """Paths of the files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    @property
    def authority_key(self) -> Path:
        return self.path / "ca.key"

    @property
    def trusted(self) -> Path:
        return self.path / "ca.pem"

    @property
    def cross_certificates(self) -> Path:
        return self.path / "ca.cross.pem"

    @property
    def admin_profile(self) -> Path:
        return self.path / "client.properties"

    @property
    def admin_librdkafka(self) -> Path:
        return self.path / "librdkafka.conf"

    @property
    def zookeeper_keystore(self) -> Path:
        return self.path / "zookeeper.pem"

    @property
    def zookeeper_login(self) -> Path:
        return self.path / "zookeeper.properties"

    @property
    def users(self) -> Path:
        return self.path / "users"

    def server(self, broker: int, brokers: int) -> Path:
        """Return the configuration file of one of several brokers."""
        return self.path / ("server.properties" if brokers == 1 else f"server-{broker}.properties")

    def keystore(self, broker: int) -> Path:
        return self.path / f"broker-{broker}.pem"

    def user_profile(self, user: str) -> Path:
        return self.users / f"{_file_name(user)}{_PROFILE}"

    def user_librdkafka(self, user: str) -> Path:
        return self.users / f"{_file_name(user)}{_LIBRDKAFKA}"

    @property
    def exists(self) -> bool:
        """Whether there is a certificate authority."""
        return self.authority_key.exists()

    def brokers(self) -> list[int]:
        """Return the IDs of the brokers that have certificates."""
        if not self.path.is_dir():
            return []
        found = (_STORE.fullmatch(each.name) for each in self.path.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def keystores(self) -> list[Path]:
        """Return the files with keys and certificates that the authority has signed."""
        found = [self.keystore(each) for each in self.brokers()]
        if self.zookeeper_keystore.exists():
            found.append(self.zookeeper_keystore)
        return found

    def profiles(self) -> Iterator[Path]:
        """Yield the profiles that contain the trusted certificates."""
        if self.admin_profile.exists():
            yield self.admin_profile
        if self.users.is_dir():
            for each in sorted(self.users.iterdir()):
                if each.name.endswith(_PROFILE) and not each.name.startswith("."):
                    yield each

    def servers(self) -> list[Path]:
        """Return the configuration files of the brokers."""
        single = self.server(1, 1)
        several = [self.server(each, 2) for each in self.brokers()]
        return [each for each in (single, *several) if each.exists()]

    def find_server(self) -> Path:
        """Return the configuration file of the broker.

        Raises:
            UserError: There is no such file, or there are several.
        """
        single = self.server(1, 1)
        if single.exists():
            return single
        several = self.servers()
        if several:
            raise UserError(
                f"{self.path} is for several brokers. Choose one with --config: "
                + ", ".join(map(str, several))
            )
        raise UserError(
            f"{self.path} has no server.properties. Create it with: ottla secure init --dir "
            f"{self.path}"
        )

    def require(self) -> None:
        """Raise UserError if there is no certificate authority."""
        if not self.exists:
            raise UserError(
                f"{self.path} has no certificate authority. Create one with: ottla secure init "
                f"--dir {self.path}"
            )

    def read_cross_certificates(self) -> bytes:
        """Return the cross certificates that brokers present; none if no authority is replaced."""
        found = self.cross_certificates
        return read_private(found) if found.exists() else b""


def _file_name(user: str) -> str:
    """Return a file name for a user, whose name may contain any character."""
    return re.sub(r"^\.", "%2E", quote(user, safe=" @+=,"))
