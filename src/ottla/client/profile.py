"""Profiles: properties files that tools, clients, Spark and Connect read for their connections.

A program that is given no profile uses the file that the environment variable `OTTLA_PROFILE`
names. Without the variable, `~/.config/ottla/client.properties` applies if it exists and the
program does not name the brokers either: the credentials in that file are only ever sent to the
brokers in that file. An empty `OTTLA_PROFILE` turns both off.

A profile may take values from config providers (`ottla.base.config.providers`). Relative paths in
it are relative to its directory.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from ottla.base.config.properties import load_properties
from ottla.base.config.providers import resolved, without_providers
from ottla.base.config.secrets import is_secret
from ottla.base.errors import UserError
from ottla.client.errors import InvalidConfig

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

VARIABLE = "OTTLA_PROFILE"
DEFAULT_PATH = Path(".config", "ottla", "client.properties")
"""Path of the default profile in the user's home directory."""

_PATH = re.compile(r"(^|\.)(ssl\.(keystore|truststore|ca|certificate|key)|https\.ca)\.location$")
_URL = re.compile(r"(^|\.)sasl\.oauthbearer\.(token|jwks)\.endpoint\.url$")
_RELATIVE_URL = re.compile(r"file:(?!/)(?P<path>.+)", re.IGNORECASE)
_KEY = ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain",
        "ssl.certificate.location")  # fmt: skip
_TRUST = ("ssl.ca.location", "ssl.truststore.location", "ssl.truststore.certificates")
_HTTPS_TRUST = ("https.ca.location", "https.ca.pem")
_USER = ("sasl.jaas.config", "sasl.username", "sasl.oauthbearer.client.credentials.client.id")
_ALTERNATIVES = (
    (_KEY, ("ssl.key.location", "ssl.key.password", "ssl.keystore.type", "ssl.keystore.password")),
    (_TRUST, ("ssl.truststore.type", "ssl.truststore.password")),
    (_HTTPS_TRUST, ()),
    (_USER, ("sasl.password", "sasl.oauthbearer.client.credentials.client.secret")),
)
"""Properties that exclude each other, and those that depend on them."""
_warned: set[str] = set()
"""Profiles whose permissions have been warned about."""


def load_profile(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a profile, and make the paths in it absolute.

    A profile with secrets that other users can read is logged as a warning, once.

    Args:
        path: Path of the properties file.

    Raises:
        UserError: The file cannot be read or parsed, or a variable in it has no value.
    """
    text = os.fspath(path)
    properties = load_properties(text)
    warn_if_readable_by_others(text, properties)
    found = without_providers(resolved(properties))
    return with_absolute_paths(found, Path(text).absolute().parent)


def default_profile(*, names_brokers: bool) -> dict[str, str]:
    """Return the properties of a program that is given no profile; see the module.

    Args:
        names_brokers: Whether the program names the brokers to connect to.

    Raises:
        UserError: The file cannot be read or parsed.
    """
    path = default_profile_path(names_brokers=names_brokers)
    if path is None:
        return {}
    try:
        return load_profile(path)
    except UserError as error:
        if VARIABLE in os.environ:
            raise InvalidConfig(f"{error} {VARIABLE} names this file.") from None
        raise


def default_bootstrap() -> str | None:
    """Return `localhost:9092`, or None if the default profile names the brokers.

    Raises:
        UserError: The file cannot be read or parsed.
    """
    names = default_profile(names_brokers=False).keys()
    return None if names & {"bootstrap.servers", "metadata.broker.list"} else "localhost:9092"


def default_profile_path(*, names_brokers: bool) -> str | None:
    """Return the path of the profile of a program that is given none, or None.

    Args:
        names_brokers: Whether the program names the brokers to connect to.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return named or None
    if names_brokers:
        return None
    try:
        path = Path.home() / DEFAULT_PATH
    except RuntimeError:  # the user has no home directory
        return None
    return str(path) if path.is_file() else None


def layered(lower: Mapping[str, Value], upper: Mapping[str, Value]) -> dict[str, Value]:
    """Return two sets of properties combined, of which the upper one takes precedence.

    A credential in the upper set replaces all forms of it in the lower one: the file of a key
    replaces an inline key, and a user name replaces a JAAS configuration.

    Args:
        lower: Values by Kafka's names.
        upper: Values by Kafka's names.
    """
    hidden: set[str] = set()
    for alternatives, dependent in _ALTERNATIVES:
        if any(name in upper for name in alternatives):
            hidden.update(alternatives, dependent)
    return {name: value for name, value in lower.items() if name not in hidden} | dict(upper)


def with_absolute_paths(properties: dict[str, str], directory: Path) -> dict[str, str]:
    """Return properties in which relative paths of keys, certificates and tokens are absolute.

    Args:
        properties: Values by name. Names may have a prefix, such as `producer.`.
        directory: Directory that the paths are relative to.
    """
    found = {}
    for name, value in properties.items():
        text = value.strip()
        if text and not text.startswith("${") and _PATH.search(name):
            value = str(directory / text)
        elif _URL.search(name):
            url = _RELATIVE_URL.fullmatch(text)
            value = value if url is None else f"file://{directory / url['path']}"
        found[name] = value
    return found


def warn_if_readable_by_others(path: str, properties: Mapping[str, str]) -> None:
    """Log a warning, once, if a file with secrets can be read by all users of the machine.

    Args:
        path: Path of the file.
        properties: Contents of the file.
    """
    if path in _warned or not any(value and is_secret(name) for name, value in properties.items()):
        return
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if os.name == "posix" and mode & stat.S_IROTH:
        _warned.add(path)
        logger.warning(
            "%s holds secrets, but every user of this machine can read it. Run: chmod 600 %s",
            path,
            path,
        )
