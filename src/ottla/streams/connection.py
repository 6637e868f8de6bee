"""Properties of an application's connection: its arguments over those of a profile."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ottla.client.config import CommonConfig, table_of
from ottla.client.inlined_files import with_inlined_files
from ottla.client.librdkafka import ALIASES
from ottla.client.profile import default_profile, layered, load_profile

DEFAULT_BOOTSTRAP = "localhost:9092"


def connection_properties(
    bootstrap: str | None, profile: str | os.PathLike[str] | None, client: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties of a connection, `bootstrap.servers` among them.

    The contents of the files that the profile names are among the properties, because Spark's
    executors do not have these files.

    Args:
        bootstrap: Addresses of the brokers, which override all others.
        profile: Path of a profile; None for the default profile.
        client: Further properties, which override the profile.

    Raises:
        UserError: The profile cannot be read, or a file that it names cannot be used.
    """
    if profile is None:
        is_named = bootstrap is not None or "bootstrap.servers" in client
        loaded = default_profile(names_brokers=is_named)
    else:
        loaded = load_profile(profile)
    named = {ALIASES.get(name, name): text for name, text in loaded.items()}
    known = table_of(CommonConfig)
    shared = {name: text for name, text in named.items() if name in known}
    inlined = with_inlined_files(CommonConfig, shared) if shared else {}
    found = {"bootstrap.servers": DEFAULT_BOOTSTRAP, **layered(inlined, client)}
    return found if bootstrap is None else {**found, "bootstrap.servers": bootstrap}
