"""`ottla secure user`: users of a running cluster, their ACLs and their profiles.

A new password is on disk before the cluster learns it, and gets the profile's name afterwards. So a
failure never leaves a user whose password nobody knows.

The ACLs of a new user exist before the user, and are deleted again if the user cannot be created.
A user that is removed loses the password first: a denial must not end before.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.acl import AclBinding
from ottla.base.errors import KafkaError, UserError
from ottla.base.private_file import make_private_directory, prepared, read_private
from ottla.base.scram import ScramMechanism
from ottla.cli.secure.layout import SecureDirectory
from ottla.cli.secure.permissions import acls_of, describe_acls, principal_of
from ottla.cli.secure.texts import (
    BROKERS,
    JAAS,
    MECHANISM,
    PROTOCOL,
    TRUSTED,
    ClusterAccess,
    Login,
    client_properties,
    jaas,
    librdkafka_conf,
    property_line,
    replace_property,
)

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.admin import ScramMechanism as ClientMechanism

_LONGEST = 200
_USERNAME = re.compile(r"""username\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))""")


@dataclass(frozen=True)
class Profiles:
    """The profiles of users: their files and their connections.

    Args:
        directory: The directory of `ottla secure init`, which may not exist.
        properties: Profile of the administrator.
        bootstrap: Addresses of brokers that override those of the profile.
    """

    directory: SecureDirectory
    properties: Mapping[str, str]
    bootstrap: str | None = None

    @property
    def administrator(self) -> str:
        """The user of the administrator's profile, or ''."""
        found = _USERNAME.search(self.properties.get(JAAS, ""))
        named = re.sub(r"\\(.)", r"\1", found[1] or found[2]) if found else ""
        return self.properties.get("sasl.username", "") or named

    def access(self) -> ClusterAccess:
        """Return how users connect.

        Raises:
            UserError: The file with the trusted certificates cannot be read.
        """
        protocol = self.properties.get("security.protocol", "").upper()
        protocol = protocol if protocol.startswith("SASL_") else PROTOCOL
        bootstrap = self.bootstrap or self.properties.get("bootstrap.servers", "localhost:9092")
        truststore = self._truststore() if protocol == PROTOCOL else None
        trusted = b"" if truststore is None else read_private(truststore)
        if protocol == PROTOCOL and not trusted:
            trusted = self.properties.get(TRUSTED, "").encode()
        return ClusterAccess(bootstrap, truststore, trusted, protocol)

    def _truststore(self) -> Path | None:
        if self.directory.trusted.exists():
            return self.directory.trusted
        is_pem = self.properties.get("ssl.truststore.type", "PEM").upper() == "PEM"
        named = self.properties.get("ssl.ca.location") or (
            self.properties.get("ssl.truststore.location") if is_pem else None
        )
        return Path(named).absolute() if named else None

    def files(self, user: str) -> tuple[Path, Path]:
        """Return the profile of a user, and that for librdkafka."""
        if not self.directory.exists:
            here = SecureDirectory(".")
            return Path(here.user_profile(user).name), Path(here.user_librdkafka(user).name)
        if user == self.administrator:
            return self.directory.admin_profile, self.directory.admin_librdkafka
        return self.directory.user_profile(user), self.directory.user_librdkafka(user)


@dataclass(frozen=True)
class UserInfo:
    """A user of the cluster."""

    mechanisms: list[str]
    """SASL mechanisms of the user."""
    acls: int | None
    """Number of ACLs of the user; None if the cluster has no authorizer."""


def add_user(
    admin: Admin, profiles: Profiles, login: Login, acls: Sequence[AclBinding] = ()
) -> list[Path]:
    """Create a user with ACLs, and return the profiles that were written.

    Raises:
        UserError: The user or its profile exists, a profile cannot be written, or the cluster has
            no authorizer for the ACLs.
        KafkaError: The cluster refused.
    """
    check_name(login.user)
    again = f"Change the password with: ottla secure user passwd {login.user}"
    if login.user in admin.describe_user_scram_credentials():
        raise UserError(f"The user {login.user} exists. {again}")
    files = profiles.files(login.user)
    for each in files:
        if each.exists():
            raise UserError(f"{each} exists, but the user {login.user} does not. Remove the file.")
    from ottla.client.admin import ScramMechanism as ClientMechanism

    with (
        _prepared_profiles(profiles, login, files) as written,
        _created_acls(admin, login.user, acls),
    ):
        _set_password(admin, login, [ClientMechanism(login.mechanism.value)])
    return written


def change_password(admin: Admin, profiles: Profiles, user: str, password: str) -> list[Path]:
    """Give a user another password, and return the profiles that were written.

    Raises:
        UserError: The user does not exist, or a profile cannot be written.
        KafkaError: The cluster refused.
    """
    _refuse_brokers(user, "has the password of the brokers, which connect to each other with it")
    mechanisms = _mechanisms(admin, user)
    names = {each.text for each in mechanisms}
    known = [each for each in (MECHANISM, *ScramMechanism) if each.sasl_name in names]
    login = Login(user, password, known[0] if known else MECHANISM)
    with _prepared_profiles(profiles, login, profiles.files(user)) as written:
        _set_password(admin, login, mechanisms)
    return written


def remove_user(admin: Admin, profiles: Profiles, user: str) -> tuple[list[Path], int]:
    """Remove a user and its ACLs.

    Returns:
        The profiles that were deleted, and the number of ACLs.

    Raises:
        UserError: The user does not exist, or must not be removed.
        KafkaError: The cluster refused.
    """
    _refuse_brokers(user, "is the user of the brokers, which connect to each other with it")
    if user == profiles.administrator:
        raise UserError(
            f"You are logged in as {user}. Use the profile of another user with --command-config "
            "to remove it."
        )
    from ottla.client.admin import UserScramCredentialDeletion

    acls = acls_of(admin, user)
    # The ACLs may be all that is left of a user if an earlier removal failed.
    if user in admin.describe_user_scram_credentials() or not acls:
        mechanisms = _mechanisms(admin, user)
        admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion(user, each) for each in mechanisms]
        )
    if acls:
        admin.delete_acls([*acls])
    deleted = [each for each in profiles.files(user) if each.exists()]
    for each in deleted:
        each.unlink()
    return deleted, len(acls or ())


def list_users(admin: Admin) -> dict[str, UserInfo]:
    """Return the users, by name."""
    acls = describe_acls(admin)
    counts = None if acls is None else Counter(each.principal for each in acls)
    return {
        user: UserInfo(
            [each.mechanism.text for each in credentials],
            None if counts is None else counts[principal_of(user)],
        )
        for user, credentials in sorted(admin.describe_user_scram_credentials().items())
    }


def read_password(source: str) -> str:
    """Return the first line of a file, or of the standard input if its name is `-`.

    Raises:
        UserError: The file cannot be read, or the line is not a password.
    """
    data = sys.stdin.buffer.readline() if source == "-" else read_private(Path(source))
    what = "the standard input" if source == "-" else source
    try:
        password = data.decode().splitlines()[0] if data else ""
    except UnicodeDecodeError:
        raise UserError(f"The password in {what} is not in UTF-8.") from None
    if not password:
        raise UserError(f"The first line of {what} is empty, so there is no password.")
    # librdkafka's files have no quotes, so that spaces at the ends would be lost.
    if len(password) > _LONGEST or not password.isprintable() or password != password.strip():
        raise UserError(
            f"The password in {what} must have at most {_LONGEST} printable characters, without "
            "spaces at its ends."
        )
    return password


def check_name(user: str) -> None:
    """Raise UserError if a user cannot have this name."""
    if not user or len(user) > _LONGEST or not user.isprintable() or user != user.strip():
        raise UserError(
            f"The name of a user must have 1 to {_LONGEST} printable characters, without spaces at "
            "its ends."
        )


def _refuse_brokers(user: str, why: str) -> None:
    if user == BROKERS:
        raise UserError(f"{user} {why}. `ottla secure init --force` makes another one.")


def _mechanisms(admin: Admin, user: str) -> list[ClientMechanism]:
    found = admin.describe_user_scram_credentials().get(user)
    if not found:
        raise UserError(
            f"The user {user} does not exist. Create it with: ottla secure user add {user}"
        )
    return [each.mechanism for each in found]


@contextlib.contextmanager
def _created_acls(admin: Admin, user: str, acls: Sequence[AclBinding]) -> Iterator[None]:
    """Create the ACLs of a user, and delete the new ones if the block fails."""
    if not acls:
        yield
        return
    existing = acls_of(admin, user)
    if existing is None:
        raise UserError(
            "The cluster has no authorizer, so every user may do everything. Set "
            "authorizer.class.name in the configuration of the brokers, or create the user without "
            "permissions."
        )
    new = [each for each in acls if each not in existing]
    try:
        admin.create_acls(new)
        yield
    except BaseException:
        with contextlib.suppress(KafkaError):
            admin.delete_acls([*new])
        raise


def _set_password(admin: Admin, login: Login, mechanisms: Iterable[ClientMechanism]) -> None:
    from ottla.client.admin import UserScramCredentialUpsertion

    admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(login.user, each, login.password) for each in mechanisms]
    )


@contextlib.contextmanager
def _prepared_profiles(
    profiles: Profiles, login: Login, files: tuple[Path, Path]
) -> Iterator[list[Path]]:
    """Write the profiles of a user, which get their names if the block succeeds."""
    profile, for_librdkafka = files
    access = profiles.access()
    if profiles.directory.exists:
        make_private_directory(profile.parent)
    if profile.exists():
        text = read_private(profile).decode()
        text = replace_property(text, JAAS, property_line(JAAS, jaas(login)))
    else:
        text = client_properties(access, login)
    written = [profile]
    with contextlib.ExitStack() as stack:
        stack.enter_context(prepared(profile, text))
        if access.truststore is not None or access.protocol != PROTOCOL:
            stack.enter_context(prepared(for_librdkafka, librdkafka_conf(access, login)))
            written.append(for_librdkafka)
        yield written
