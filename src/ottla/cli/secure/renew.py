"""`ottla secure renew`: new certificates for brokers, and the replacement of the authority.

Running brokers load the files when they change. The replacement of an authority takes two steps.
`--ca` makes the new authority: from then on brokers and profiles trust both, and brokers present a
certificate that a client accepts if it trusts either. `--drop-old-ca` ends that, once every client
has a new profile.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from ottla.base.errors import UserError
from ottla.base.private_file import read_private, write_private
from ottla.cli.secure.certificates import Authority, Facts, certificate_count, facts
from ottla.cli.secure.layout import SecureDirectory
from ottla.cli.secure.texts import TRUSTED, pem_property, replace_property


def renew(
    directory: SecureDirectory,
    broker: int | None = None,
    *,
    more_hosts: Iterable[str] = (),
    now: datetime | None = None,
) -> dict[Path, Facts]:
    """Write new certificates, and return what they say by their file.

    Args:
        directory: The directory of `ottla secure init`.
        broker: ID of the broker; None for all brokers and the ZooKeeper servers.
        more_hosts: Host names and addresses to add to the certificates.
        now: The current time.

    Raises:
        UserError: A file cannot be read or written, or there is no such broker.
    """
    directory.require()
    brokers = directory.brokers()
    if broker is not None and broker not in brokers:
        known = ", ".join(map(str, brokers)) or "none"
        raise UserError(
            f"{directory.path} has no certificate of a broker with the ID {broker}. The brokers "
            f"that have one: {known}."
        )
    authority = load_authority(directory)
    cross = directory.read_cross_certificates()
    found = {}
    for path in directory.keystores() if broker is None else [directory.keystore(broker)]:
        issued = authority.renew(
            read_private(path),
            now or datetime.now(UTC),
            more_hosts=tuple(more_hosts),
            cross_certificates=cross,
        )
        write_private(path, issued.store)
        found[path] = facts(issued.chain)
    return found


def replace_authority(directory: SecureDirectory, *, now: datetime | None = None) -> Facts:
    """Create an authority that replaces the current one, and trust both.

    The certificates of the brokers have to be renewed afterwards.

    Returns:
        Facts about the certificate of the new authority.

    Raises:
        UserError: A file cannot be read or written.
    """
    directory.require()
    current = load_authority(directory)
    successor, cross = current.succeed(now or datetime.now(UTC))
    trusted = read_private(directory.trusted)
    # A crash between these steps leaves an authority that is trusted and whose key is there.
    trust(directory, successor.certificate + trusted)
    write_private(directory.cross_certificates, cross + directory.read_cross_certificates())
    write_private(directory.authority_key, successor.key)
    return facts(successor.certificate)


def drop_old_authority(directory: SecureDirectory) -> int:
    """Trust the current authority only, and return how many others were trusted.

    The certificates of the brokers have to be renewed afterwards.

    Raises:
        UserError: A file cannot be read or written.
    """
    directory.require()
    dropped = certificate_count(read_private(directory.trusted)) - 1
    if dropped:
        trust(directory, load_authority(directory).certificate)
    directory.cross_certificates.unlink(missing_ok=True)
    return dropped


def load_authority(directory: SecureDirectory) -> Authority:
    """Return the authority that signs.

    Raises:
        UserError: Its files cannot be read.
    """
    return Authority.load(read_private(directory.authority_key), read_private(directory.trusted))


def trust(directory: SecureDirectory, trusted: bytes) -> None:
    """Let brokers and all profiles trust these certificates, in PEM format.

    Raises:
        UserError: A file cannot be read or written.
    """
    write_private(directory.trusted, trusted)
    for profile in directory.profiles():
        text = read_private(profile).decode()
        if TRUSTED in text:
            write_private(profile, replace_property(text, TRUSTED, pem_property(TRUSTED, trusted)))
