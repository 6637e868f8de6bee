"""The first users of a cluster, which exist before a broker accepts connections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ottla.base.config.broker import BrokerConfig
from ottla.base.errors import UserError
from ottla.base.scram import new_credential
from ottla.cli.secure.texts import Login


def put_users(properties: Mapping[str, str], logins: Sequence[Login], *, replaces: bool) -> None:
    """Store users in the metadata of a broker that is not running, or in ZooKeeper.

    Args:
        properties: Configuration of the broker.
        logins: The users.
        replaces: Whether users that exist get the new passwords.

    Raises:
        UserError: The broker is running, a user exists, or the metadata cannot be changed.
    """
    from ottla.broker.storage_format import store_users

    config = BrokerConfig.from_properties(properties)
    users = {
        each.user: {each.mechanism: new_credential(each.mechanism, each.password)}
        for each in logins
    }
    stored = asyncio.run(store_users(config, users, replace=replaces))
    for each in logins:
        if each.user not in stored:
            raise UserError(
                f"The cluster already has the user {each.user}. Use --force to replace its "
                "password, or choose another --data-dir."
            )
