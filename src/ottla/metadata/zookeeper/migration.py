"""Set the ACLs of an existing tree: close it to everyone but the brokers, or open it again.

The nodes below the root of the cluster are changed, and the root itself unless it is ZooKeeper's.
Run it while the brokers run with `zookeeper.set.acl=true`, so that they create no open nodes
meanwhile. Repeating it is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.base.config.zookeeper_security import ZooKeeperCredentials
from ottla.base.errors import UserError
from ottla.metadata.zookeeper import jute
from ottla.metadata.zookeeper.connection import ConnectionLoss
from ottla.metadata.zookeeper.jute import Acl, OpCode, ZkCode, ZkError
from ottla.metadata.zookeeper.session import TlsContext, ZooKeeperSession
from ottla.metadata.zookeeper.store import (
    ACCESS_ROOT,
    LEASES,
    STRUCTURE,
    TREE,
    WRITERS,
    parse_connect,
)

REQUESTS = 500
"""Maximum number of outstanding requests."""


async def migrate(
    connect: str,
    *,
    secure: bool,
    session_timeout_ms: int,
    connect_timeout_ms: int,
    tls: TlsContext | None = None,
    credentials: ZooKeeperCredentials | None = None,
    check_paths: bool = False,
) -> int:
    """Set the ACL of every node of a cluster.

    Args:
        connect: Kafka's `zookeeper.connect`: `host:port,host:port/root`.
        secure: Whether only the user of this session may access the nodes; everyone otherwise.
        session_timeout_ms: The session timeout to request.
        connect_timeout_ms: How long to wait for the connection.
        tls: Source of the TLS contexts, or None for plain text.
        credentials: The user to authenticate as, or None.
        check_paths: Whether to change nothing if one of the brokers' top nodes does not exist.

    Returns:
        The number of nodes.

    Raises:
        UserError: The tree cannot be changed. Some of its nodes may have been.
    """
    servers, root = parse_connect(connect)
    session = ZooKeeperSession(
        servers, timeout_ms=session_timeout_ms, tls=tls, credentials=credentials
    )
    try:
        async with asyncio.timeout(connect_timeout_ms / 1000):
            await session.start()
    except TimeoutError:
        raise UserError(
            f"Could not connect to ZooKeeper at {connect} within {connect_timeout_ms} ms. The last "
            f"failure was: {session.last_failure or 'no response'}."
        ) from None
    else:
        tree = _Tree(session, jute.CREATOR_ALL_ACL if secure else jute.OPEN_ACL)
        try:
            if check_paths:
                await tree.check([f"{root}{path}" for path in STRUCTURE])
            return await tree.set_below([root] if root else [TREE, ACCESS_ROOT, LEASES, WRITERS])
        except ConnectionLoss:
            raise UserError(
                "The connection to ZooKeeper was lost. Run the command again."
            ) from None
    finally:
        await session.close()


class _Tree:
    def __init__(self, session: ZooKeeperSession, acl: Sequence[Acl]) -> None:
        self._session = session
        self._acl = acl

    async def check(self, paths: Sequence[str]) -> None:
        """Raise UserError if a node does not exist."""
        for path in paths:
            try:
                await self._session.request(OpCode.EXISTS, jute.path_and_flag(path))
            except ZkError as error:
                raise self._explained(path, error) from None

    async def set_below(self, paths: list[str]) -> int:
        """Set the ACLs of nodes and of everything below them, breadth-first.

        Returns:
            The number of nodes.

        Raises:
            UserError: ZooKeeper rejects the change, or none of the nodes exists.
        """
        count = 0
        first = paths
        while paths:
            below: list[str] = []
            for start in range(0, len(paths), REQUESTS // 2):
                chunk = paths[start : start + REQUESTS // 2]
                found = await asyncio.gather(*map(self._set, chunk))
                count += sum(each is not None for each in found)
                below += [path for each in found for path in each or ()]
            paths = below
        if not count:
            raise UserError(
                f"ZooKeeper has no node {first[0]}. Check the path at the end of zookeeper.connect."
            )
        return count

    async def _set(self, path: str) -> list[str] | None:
        """Set the ACL of a node; return the paths of its children, or None if it does not exist."""
        # The listing is sent first: with the new ACL, this session might not be allowed to read.
        listing = self._session.send(OpCode.GET_CHILDREN2, jute.path_and_flag(path))
        change = self._session.send(OpCode.SET_ACL, jute.set_acl(path, self._acl))
        results = await asyncio.gather(listing, change, return_exceptions=True)
        for result in results:
            if isinstance(result, ZkError) and result.code == ZkCode.NO_NODE:
                return None
            if isinstance(result, ConnectionLoss):
                raise result
            if isinstance(result, ZkError):
                raise self._explained(path, result)
        reply = await listing
        names, _ = jute.read_children(reply.payload, reply.position)
        return [f"{path}/{name}" for name in names]

    @staticmethod
    def _explained(path: str, error: ZkError) -> UserError:
        if error.code == ZkCode.NO_NODE:
            return UserError(f"ZooKeeper has no node {path}. Has a broker of this cluster started?")
        if error.code == ZkCode.NO_AUTH:
            return UserError(
                f"ZooKeeper does not allow this user to change {path}, which belongs to another "
                "user. Check zookeeper.auth.user, zookeeper.auth.password and "
                "zookeeper.ssl.keystore.location."
            )
        if error.code == ZkCode.INVALID_ACL:
            return UserError(
                f"ZooKeeper cannot protect {path}, because it has not authenticated this command. "
                "Set zookeeper.auth.user and zookeeper.auth.password."
            )
        return UserError(f"ZooKeeper rejected a change of {path}: {error}.")
