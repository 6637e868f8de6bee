"""Certificates for a secure ZooKeeper, and clients with good and bad settings for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.integration.client.certificates import Authority

from ottla.base.config.zookeeper_security import ZooKeeperCredentials, parse_zookeeper_security
from ottla.base.errors import UserError
from ottla.base.metadata import Create
from ottla.metadata.zookeeper import jute
from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity
from ottla.metadata.zookeeper.jute import OpCode, ZkCode, ZkError
from ottla.metadata.zookeeper.session import TlsContext, ZooKeeperSession
from ottla.metadata.zookeeper.store import ZooKeeperStore, parse_connect
from ottla.net.client_contexts import ClientContexts

LIMIT_MS = 30_000
PASSWORD = 'not "simple\\'
LOCAL = "IP:127.0.0.1"


class Stores(NamedTuple):
    """A certificate authority, and how to sign key stores with it."""

    home: Path
    authority: Authority

    @classmethod
    def make(cls, home: Path) -> Stores:
        home.mkdir(parents=True, exist_ok=True)
        return cls(home, Authority(home))

    @property
    def trusted(self) -> Path:
        return Path(self.authority.certificate)

    def signed(self, name: str, names: str = LOCAL) -> Path:
        """Return a new PEM file with a key and its certificate."""
        own = self.authority.sign(name, names)
        store = self.home / f"{name}-store.pem"
        store.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
        return store

    def security(self, *, with_password: bool = True) -> EnsembleSecurity:
        credentials = ZooKeeperCredentials("brokers", PASSWORD) if with_password else None
        return EnsembleSecurity(self.signed("zookeeper"), self.trusted, credentials)


def tls_of(properties: Mapping[str, str]) -> TlsContext | None:
    settings = parse_zookeeper_security(properties).tls
    if settings is None:
        return None
    contexts = ClientContexts(settings, "ZooKeeper")
    return lambda: asyncio.to_thread(contexts.current)


async def opened(
    connect: str, properties: Mapping[str, str], limit_ms: int = LIMIT_MS
) -> ZooKeeperStore:
    """Open the store with the properties of a broker."""
    security = parse_zookeeper_security(properties)
    return await ZooKeeperStore.open(
        connect,
        session_timeout_ms=6_000,
        connect_timeout_ms=limit_ms,
        tls=tls_of(properties),
        credentials=security.credentials,
        set_acl=security.set_acl,
    )


async def write(store: ZooKeeperStore, path: str) -> None:
    """Create a node, and wait until the store shows it."""
    seen = asyncio.Event()
    unwatch = store.watch(path, lambda revision, changes: seen.set() if changes else None)
    await store.txn([], [Create(path, b"value")])
    async with asyncio.timeout(LIMIT_MS / 1000):
        await seen.wait()
    unwatch()


def refusal(connect: str, properties: Mapping[str, str], limit_ms: int = LIMIT_MS) -> str:
    """Return the sentence with which a broker with these properties does not start."""

    async def attempt() -> str:
        try:
            store = await opened(connect, properties, limit_ms)
        except UserError as error:
            return str(error)
        await store.close()
        raise AssertionError("the broker was let in")

    return asyncio.run(attempt())


def with_session(
    connect: str,
    properties: Mapping[str, str],
    use: Callable[[ZooKeeperSession], Awaitable[None]],
) -> None:
    """Call a function with a session that creates no nodes."""

    async def run() -> None:
        servers, _ = parse_connect(connect)
        session = ZooKeeperSession(
            servers,
            timeout_ms=6_000,
            tls=tls_of(properties),
            credentials=parse_zookeeper_security(properties).credentials,
        )
        async with asyncio.timeout(LIMIT_MS / 1000):
            await session.start()
            try:
                await use(session)
            finally:
                await session.close()

    asyncio.run(run())


async def paths_below(session: ZooKeeperSession, root: str) -> list[str]:
    """Return the paths of a node and of all below it."""
    found = [root]
    for path in found:
        reply = await session.request(OpCode.GET_CHILDREN2, jute.path_and_flag(path))
        names, _ = jute.read_children(reply.payload, reply.position)
        found += [f"{path}/{name}" for name in names]
    return found


async def can_read(session: ZooKeeperSession, path: str) -> bool:
    """Return whether a session may read a node's data or list its children."""
    for code in (OpCode.GET_DATA, OpCode.GET_CHILDREN2):
        try:
            await session.request(code, jute.path_and_flag(path))
        except ZkError as error:
            if error.code != ZkCode.NO_AUTH:
                raise
        else:
            return True
    return False


def readable(
    connect: str, properties: Mapping[str, str], stranger: Mapping[str, str], root: str
) -> tuple[list[str], int]:
    """Return the nodes that a stranger can read, and the number of all nodes.

    Args:
        connect: Address of ZooKeeper.
        properties: Those of a broker, which sees all nodes.
        stranger: Those of somebody else.
        root: The chroot of the cluster.
    """
    paths: list[str] = []
    found: list[str] = []

    async def look(session: ZooKeeperSession) -> None:
        paths.extend(await paths_below(session, root))

    async def read(session: ZooKeeperSession) -> None:
        found.extend([path for path in paths if await can_read(session, path)])

    with_session(connect, properties, look)
    with_session(connect, stranger, read)
    return found, len(paths)
