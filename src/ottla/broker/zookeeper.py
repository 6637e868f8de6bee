"""The connection of a broker, or of a tool for a stopped one, to ZooKeeper."""

from __future__ import annotations

import asyncio

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.tls_settings import TlsSettings
from ottla.metadata.zookeeper.session import TlsContext
from ottla.metadata.zookeeper.store import ZooKeeperStore
from ottla.net.client_contexts import ClientContexts


async def open_zookeeper(config: BrokerConfig) -> ZooKeeperStore:
    """Connect to the ensemble in `zookeeper.connect` as the configuration says.

    Args:
        config: The configuration of the broker.

    Raises:
        UserError: The ensemble cannot be reached, or rejects the settings.
    """
    assert config.zookeeper_connect, "the broker uses ZooKeeper"
    security = config.zookeeper_security
    return await ZooKeeperStore.open(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connect_timeout_ms=config.zookeeper_connection_timeout_ms,
        tls=await _tls_context(security.tls),
        credentials=security.credentials,
        set_acl=security.set_acl,
    )


async def _tls_context(settings: TlsSettings | None) -> TlsContext | None:
    if settings is None:
        return None
    contexts = await asyncio.to_thread(ClientContexts, settings, "ZooKeeper")
    # Not in the broker's own threads: a hanging disk must not keep it from reconnecting.
    return lambda: asyncio.to_thread(contexts.current)
