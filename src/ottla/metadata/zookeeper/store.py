"""The MetadataStore port on ZooKeeper.

    <root>/tree/…           the cluster's tree, mirrored in the memory of every broker (mirror.py)
    <root>/leases/…         mirrored and watched separately, because it changes continuously
    <root>/access/…         mirrored and watched separately, because changes of it must not wait for
                            the rest: neither while many topics are created, nor while the tree is
                            read on a new connection
    <root>/writers/<name>   the number of the last transaction that this writer has committed

A transaction is one multi: its checks, its operations and, last, the writer's number. If a
connection ends before the reply arrives, the writer's number, read on the next connection after a
sync, shows whether the transaction was carried out: by then, no request of the old connection can
still be. `txn` thus keeps the port's promise that an error means "nothing was changed". It may take
as long as the ensemble is down. A caller that sets a timeout must look for the outcome in the
image.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence

from ottla.base.config.zookeeper_security import ZooKeeperCredentials
from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.metadata import (
    ACCESS,
    ANY_VERSION,
    Change,
    Check,
    Create,
    Delete,
    Node,
    Op,
    TxnConflict,
    WatchCallback,
)
from ottla.metadata.zookeeper import jute
from ottla.metadata.zookeeper.connection import ConnectionLoss, SettingsRejected
from ottla.metadata.zookeeper.jute import MultiFailed, OpCode, ZkCode, ZkError, ZkOp
from ottla.metadata.zookeeper.mirror import Mirror
from ottla.metadata.zookeeper.session import SessionClosed, TlsContext, ZooKeeperSession

logger = logging.getLogger(__name__)

TREE = "/tree"
LEASES = "/leases"
ACCESS_ROOT = ACCESS.rstrip("/")
WRITERS = "/writers"
STRUCTURE = (
    TREE, LEASES, WRITERS, f"{TREE}/controller", f"{TREE}/registrations", f"{TREE}/live",
    f"{TREE}/draining", f"{TREE}/topics", f"{TREE}/configs", f"{TREE}/configs/brokers",
    f"{TREE}/configs/groups", ACCESS_ROOT, f"{ACCESS_ROOT}/scram", f"{ACCESS_ROOT}/tokens",
    f"{ACCESS_ROOT}/acls", f"{ACCESS_ROOT}/quotas",
)  # fmt: skip
"""Parent nodes that ZooKeeper requires."""
DEFAULT_PORT = 2181


class ZooKeeperStore:
    """A `MetadataStore` in a ZooKeeper ensemble. Create it with `open`."""

    def __init__(self, session: ZooKeeperSession, root: str, *, with_acl: bool) -> None:
        self._session = session
        self._root = root
        self._acl = jute.CREATOR_ALL_ACL if with_acl else jute.OPEN_ACL
        self._protects = with_acl
        self._has_checked_acl = False
        self._tree = Mirror(session, root + TREE, self._notify)
        self._access = Mirror(session, root + ACCESS_ROOT, self._notify_access)
        self._leases: Mirror | None = None
        self._watches: list[tuple[str, WatchCallback]] = []
        self._access_watches: list[tuple[str, WatchCallback]] = []
        self._lease_watches: list[tuple[str, WatchCallback]] = []
        self._lost_callbacks: list[Callable[[], None]] = []
        self._writer = f"{root}{WRITERS}/{secrets.token_hex(8)}"
        self._number = 0
        self._lock = asyncio.Lock()
        self._closed = False
        session.on_event = self._on_event
        session.on_connected = self._on_connected
        session.on_lost = self._on_lost

    @classmethod
    async def open(
        cls,
        connect: str,
        *,
        session_timeout_ms: int,
        connect_timeout_ms: int,
        tls: TlsContext | None = None,
        credentials: ZooKeeperCredentials | None = None,
        set_acl: bool = False,
    ) -> ZooKeeperStore:
        """Connect to the ensemble and load the tree.

        Args:
            connect: Kafka's `zookeeper.connect`: `host:port,host:port/root`.
            session_timeout_ms: The session timeout to request.
            connect_timeout_ms: How long to wait for the connection.
            tls: Source of the TLS contexts, or None for plain text.
            credentials: The user to authenticate as, or None.
            set_acl: Whether new nodes are accessible only to those whom ZooKeeper authenticated as
                the user of this session.

        Raises:
            UserError: `connect` is malformed, or the ensemble could not be reached in time, or it
                rejects these settings.
        """
        servers, root = parse_connect(connect)
        session = ZooKeeperSession(
            servers, timeout_ms=session_timeout_ms, tls=tls, credentials=credentials
        )
        store = cls(session, root, with_acl=set_acl)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await session.start()
        except TimeoutError:
            await session.close()
            why = f" The last failure was: {session.last_failure}." if session.last_failure else ""
            raise UserError(
                f"Could not connect to ZooKeeper at {connect} within {connect_timeout_ms} ms. "
                f"Check that it is running and that zookeeper.connect is correct.{why}"
            ) from None
        except SettingsRejected:
            await session.close()
            raise
        return store

    # ----------------------------------------------------------------------- the MetadataStore port

    @property
    def session_id(self) -> int:
        return self._session.session_id

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._lost_callbacks.append(callback)

    async def load(self, prefix: str) -> tuple[dict[str, Node], int]:
        await self._connected()
        if prefix.startswith(ACCESS):
            below = self._access.nodes(prefix.removeprefix(ACCESS_ROOT))
            return {ACCESS_ROOT + path: node for path, node in below.items()}, self._access.revision
        mirror, prefix = self._mirror_of(prefix)
        return mirror.nodes(prefix), mirror.revision

    def watch(self, prefix: str, callback: WatchCallback) -> Callable[[], None]:
        entry = (prefix, callback)
        if not prefix.startswith(LEASES):
            watches = self._access_watches if prefix.startswith(ACCESS) else self._watches
            watches.append(entry)
            return lambda: watches.remove(entry)
        if self._leases is None:
            self._leases = Mirror(self._session, self._root + LEASES, self._notify_leases)
            asyncio.get_running_loop().create_task(self._load_leases(self._leases))
        self._lease_watches.append(entry)
        return lambda: self._unwatch_lease(entry)

    async def txn(self, checks: Sequence[Check], ops: Sequence[Op]) -> int:
        async with self._lock:  # one at a time, so that the writer's number shows the outcome
            # Never reused: if the caller is cancelled, the transaction's outcome stays unknown.
            self._number += 1
            number = self._number
            zk_ops = self._zk_ops(checks, ops)
            while True:
                await self._connected()
                committed = await self._try(zk_ops, number)
                if committed is not None:
                    return committed

    async def put(self, path: str, value: bytes) -> int:
        """Create or replace a node, independently of transactions, which must not delay a lease.

        Args:
            path: The path of the node.
            value: The new value.

        Returns:
            The revision of the commit.

        Raises:
            KafkaError: The change may not have been committed.
        """
        await self._connected()
        full = self._full(path)
        try:
            body = jute.op_body(ZkOp(OpCode.SET_DATA, full, value), self._acl)
            reply = await self._session.request(OpCode.SET_DATA, body)
        except ZkError as error:
            if error.code != ZkCode.NO_NODE:
                raise _unavailable(error) from None
            create = jute.op_body(ZkOp(OpCode.CREATE, full, value), self._acl)
            try:
                reply = await self._session.request(OpCode.CREATE, create)
            except ZkError as failure:
                raise _unavailable(failure) from None
        return reply.zxid

    def expect(self, revision: int) -> None:
        """Report a revision that `put` returned, once everything before it has been reported."""
        self._committed(revision)

    async def close(self) -> None:
        self._closed = True
        with contextlib.suppress(ZkError, TimeoutError):
            async with asyncio.timeout(1):
                delete = ZkOp(OpCode.DELETE, self._writer)
                await self._session.request(OpCode.DELETE, jute.op_body(delete, self._acl))
        await self._session.close()

    # ---------------------------------------------------------------------------- transactions

    async def _try(self, ops: list[ZkOp], number: int) -> int | None:
        """Try a transaction; return the zxid of its commit, or None if it must be retried."""
        marker = ZkOp(OpCode.SET_DATA, self._writer, str(number).encode())
        body = jute.multi([*ops, marker], self._acl)
        try:
            reply = await self._session.request(OpCode.MULTI, body)
            jute.check_multi(reply.payload, reply.position)
        except SessionClosed:
            raise _closed() from None
        except ConnectionLoss:
            return await self._outcome(number)
        except MultiFailed as failure:
            raise self._conflict(ops, failure) from None
        except ZkError as error:
            if error.code in (ZkCode.SESSION_EXPIRED, ZkCode.SESSION_MOVED):
                return await self._outcome(number)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"ZooKeeper rejected the request: {error}"
            ) from None
        self._committed(reply.zxid)
        return reply.zxid

    async def _outcome(self, number: int) -> int | None:
        """Find out whether a transaction was carried out whose reply was lost.

        Returns:
            The zxid of its commit, or None if it was not carried out.
        """
        while True:
            await self._connected()
            try:
                await self._session.request(OpCode.SYNC, jute.string(self._writer))
                reply = await self._session.request(
                    OpCode.GET_DATA, jute.path_and_flag(self._writer)
                )
            except ConnectionLoss:
                continue
            data, stat = jute.read_data(reply.payload, reply.position)
            if int(data) < number:
                return None
            self._committed(stat.mzxid)
            return stat.mzxid

    def _committed(self, zxid: int) -> None:
        self._access.committed(zxid)
        self._tree.committed(zxid)

    def _zk_ops(self, checks: Sequence[Check], ops: Sequence[Op]) -> list[ZkOp]:
        """Translate checks and operations to ZooKeeper's.

        ZooKeeper can check that a node does not exist only by creating it. Such a check is
        therefore left to the create of the same path in `ops`, or becomes a create and a delete.
        """
        created = {op.path for op in ops if isinstance(op, Create)}
        result: list[ZkOp] = []
        for check in checks:
            full = self._full(check.path)
            if check.version is not None:
                result.append(ZkOp(OpCode.CHECK, full, version=check.version))
            elif check.path not in created:
                result += [ZkOp(OpCode.CREATE, full), ZkOp(OpCode.DELETE, full)]
        for op in ops:
            full = self._full(op.path)
            if isinstance(op, Create):
                result.append(ZkOp(OpCode.CREATE, full, op.value, ephemeral=op.ephemeral))
            elif isinstance(op, Delete):
                result.append(ZkOp(OpCode.DELETE, full))
            else:
                result.append(ZkOp(OpCode.SET_DATA, full, op.value))
        return result

    def _conflict(self, ops: list[ZkOp], failure: MultiFailed) -> Exception:
        if failure.index >= len(ops):
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._writer} no longer exists: {failure}"
            )
        op = ops[failure.index]
        path = op.path.removeprefix(self._root).removeprefix(TREE)
        if failure.code == ZkCode.NODE_EXISTS:
            return TxnConflict(path, None, ANY_VERSION)
        if failure.code in (ZkCode.NO_NODE, ZkCode.BAD_VERSION):
            expected = op.version if op.code is OpCode.CHECK else ANY_VERSION
            found = None if failure.code == ZkCode.NO_NODE else ANY_VERSION
            return TxnConflict(path, expected, found)
        if failure.code == ZkCode.NOT_EMPTY:
            return TxnConflict(path, None, ANY_VERSION)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"ZooKeeper rejected {path}: {failure}")

    # ---------------------------------------------------------------------------------- the session

    async def _on_connected(self) -> None:
        try:
            await self._ensure_structure()
            await self._access.load()
            await self._tree.load()
            if self._leases is not None:
                await self._leases.load()
            await self._report_open_nodes()
        except ZkError as error:
            raise self._rejection(error) or error from None

    async def _ensure_structure(self) -> None:
        parts = self._root.strip("/").split("/") if self._root else []
        roots = ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
        writer = self._writer
        wanted = [(path, b"") for path in roots]
        wanted += [(self._root + path, b"") for path in STRUCTURE]
        wanted.append((writer, b"0"))
        creates = [
            self._session.send(
                OpCode.CREATE, jute.op_body(ZkOp(OpCode.CREATE, path, data), self._acl)
            )
            for path, data in wanted
        ]
        results = await asyncio.gather(*creates, return_exceptions=True)
        for (path, _), result in zip(wanted, results, strict=True):
            if not isinstance(result, ZkError) or result.code == ZkCode.NODE_EXISTS:
                continue
            if result.code == ZkCode.NO_AUTH and path in roots[1:]:
                continue  # the parent belongs to somebody else, and this node may still exist
            raise ZkError(result.code, path)

    def _rejection(self, error: ZkError) -> SettingsRejected | None:
        """Return the sentence for an error that is a matter of settings, or None."""
        tree = self._root or "/"
        if error.code == ZkCode.NO_AUTH:
            return SettingsRejected(
                f"ZooKeeper denies this broker access to the nodes of the cluster at {tree}: they "
                "belong to another user. Check zookeeper.auth.user, zookeeper.auth.password and "
                "zookeeper.ssl.keystore.location."
            )
        if error.code == ZkCode.INVALID_ACL:
            return SettingsRejected(
                f"ZooKeeper cannot protect the nodes of the cluster at {tree}, because it has not "
                "authenticated this broker. Set zookeeper.auth.user and zookeeper.auth.password, "
                "or zookeeper.set.acl=false."
            )
        return None

    async def _report_open_nodes(self) -> None:
        """Warn of nodes that everybody can read, although new ones are protected."""
        if not self._protects or self._has_checked_acl:
            return
        for path in (self._root + each for each in (TREE, ACCESS_ROOT, LEASES)):
            reply = await self._session.request(OpCode.GET_ACL, jute.string(path))
            acl = jute.read_acl(reply.payload, reply.position)
            if any(each.scheme == "world" for each in acl):
                logger.warning(
                    "everyone can access %s in ZooKeeper, although zookeeper.set.acl is true; "
                    "protect the existing nodes with: zookeeper-security-migration "
                    "--zookeeper.acl secure",
                    path,
                )
                break
        self._has_checked_acl = True

    def _on_event(self, event: jute.WatchEvent, zxid: int) -> None:
        self._access.on_event(event, zxid)
        self._tree.on_event(event, zxid)
        if self._leases is not None:
            self._leases.on_event(event, zxid)

    def _on_lost(self) -> None:
        for callback in list(self._lost_callbacks):
            callback()

    async def _connected(self) -> None:
        try:
            await self._session.connected()
        except SessionClosed:
            raise _closed() from None

    # -------------------------------------------------------------------------------- watchers

    def _notify(self, revision: int, changes: list[Change]) -> None:
        # The session has received all events up to this revision, also those of other paths.
        self._access.committed(revision)
        _notify_watches(self._watches, revision, changes)

    def _notify_access(self, revision: int, changes: list[Change]) -> None:
        below = [(ACCESS_ROOT + path, node) for path, node in changes]
        _notify_watches(self._access_watches, revision, below)

    def _notify_leases(self, revision: int, changes: list[Change]) -> None:
        below = [(LEASES + path, node) for path, node in changes]
        _notify_watches(self._lease_watches, revision, below)

    def _unwatch_lease(self, entry: tuple[str, WatchCallback]) -> None:
        self._lease_watches.remove(entry)
        if not self._lease_watches:
            self._leases = None

    async def _load_leases(self, mirror: Mirror) -> None:
        try:
            await self._session.connected()
            if self._leases is mirror:
                await mirror.load()
        except ZkError as error:
            logger.debug("Could not read the leases; retrying on the next connection: %s", error)

    def _mirror_of(self, path: str) -> tuple[Mirror, str]:
        if path.startswith(LEASES) and self._leases is not None:
            return self._leases, path.removeprefix(LEASES)
        return self._tree, path

    def _full(self, path: str) -> str:
        is_separate = path.startswith((LEASES, ACCESS))
        return self._root + path if is_separate else self._root + TREE + path


def _notify_watches(
    watches: list[tuple[str, WatchCallback]], revision: int, changes: Sequence[Change]
) -> None:
    """Call all watchers, even without changes below their prefix: they may await the revision."""
    for prefix, callback in tuple(watches):
        seen = [change for change in changes if change[0].startswith(prefix)]
        try:
            callback(revision, seen)
        except Exception:
            logger.exception("A metadata watcher of %s failed", prefix)


def parse_connect(connect: str) -> tuple[list[tuple[str, int]], str]:
    """Parse `zookeeper.connect`: `host:port,host:port/root`.

    Returns:
        The servers, and the root path, which is '' if there is none.

    Raises:
        UserError: The value is malformed.
    """
    addresses, slash, root = connect.strip().partition("/")
    servers: list[tuple[str, int]] = []
    for address in addresses.split(","):
        host, colon, port = address.strip().rpartition(":")
        if not colon:
            host, port = address.strip(), str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UserError(f"zookeeper.connect={connect} must look like host:port,host:port/root.")
        servers.append((host.strip("[]"), int(port)))
    path = root.strip("/")
    return servers, f"/{path}" if slash and path else ""


def _unavailable(error: ZkError) -> KafkaError:
    return KafkaError(
        ErrorCode.BROKER_NOT_AVAILABLE, f"ZooKeeper did not commit the transaction: {error}"
    )


def _closed() -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The metadata store is closed.")
