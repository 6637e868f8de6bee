"""The file of a worker, with the connection of the default profile below it."""

from __future__ import annotations

from pathlib import Path

from ottla.base.config.properties import load_properties
from ottla.client.config import CommonConfig, table_of
from ottla.client.librdkafka import ALIASES
from ottla.client.profile import (
    default_profile,
    layered,
    warn_if_readable_by_others,
    with_absolute_paths,
)


def load_worker_file(path: str) -> dict[str, str]:
    """Return the properties of a worker.

    As in a profile, the paths of keys and certificates are relative to the file. Properties that
    all clients have are taken from the default profile where the file does not set them.

    Args:
        path: Path of the properties file.

    Raises:
        UserError: A file cannot be read or parsed.
    """
    properties = load_properties(path)
    warn_if_readable_by_others(path, properties)
    properties = with_absolute_paths(properties, Path(path).absolute().parent)
    profile = default_profile(names_brokers="bootstrap.servers" in properties)
    common = table_of(CommonConfig)
    named = {ALIASES.get(name, name): text for name, text in profile.items()}
    return layered({name: text for name, text in named.items() if name in common}, properties)
