"""ZooKeeper's message encoding ("jute").

Numbers are big-endian; strings and buffers have an int32 length (-1 for null), vectors an int32
count. A frame is an int32 size and that many bytes. A request starts with (xid, type), a reply with
(xid, zxid, error).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

PROTOCOL_VERSION = 0
WATCH_XID = -1
PING_XID = -2
AUTH_XID = -4
EPHEMERAL_FLAG = 1
PERSISTENT_RECURSIVE = 1
ANY_VERSION = -1

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_CONNECT = struct.Struct(">iqiq")
_CONNECTED = struct.Struct(">iiq")
_REPLY = struct.Struct(">iqi")
_STAT = struct.Struct(">qqqqiiiqiiq")
_MULTI_HEADER = struct.Struct(">i?i")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)


class OpCode(IntEnum):
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CLOSE_SESSION = -11
    AUTH = 100
    SASL = 102
    ADD_WATCH = 106
    REMOVE_WATCHES = 18
    ERROR = -1


class EventType(IntEnum):
    NONE = -1
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class ZkCode(IntEnum):
    """Error codes that this client distinguishes."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    AUTHENTICATION_REQUIRED = -124


class ZkError(Exception):
    def __init__(self, code: int, path: str = "") -> None:
        try:
            name = ZkCode(code).name.lower().replace("_", " ")
        except ValueError:
            name = f"error {code}"
        super().__init__(f"{path}: {name}" if path else name)
        self.code = code


class MultiFailed(ZkError):
    """An operation of a multi failed, so none was carried out."""

    def __init__(self, index: int, code: int) -> None:
        super().__init__(code)
        self.index = index
        """Index of the failed operation."""


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    child_count: int
    pzxid: int


class Acl(NamedTuple):
    permissions: int
    scheme: str
    id: str


ALL_PERMISSIONS = 31
OPEN_ACL = (Acl(ALL_PERMISSIONS, "world", "anyone"),)
CREATOR_ALL_ACL = (Acl(ALL_PERMISSIONS, "auth", ""),)


class ZkOp(NamedTuple):
    """One operation of a multi."""

    code: OpCode
    path: str
    data: bytes = b""
    version: int = ANY_VERSION
    ephemeral: bool = False


class Connected(NamedTuple):
    timeout_ms: int
    session_id: int
    password: bytes


class ReplyHeader(NamedTuple):
    xid: int
    zxid: int
    error: int


class WatchEvent(NamedTuple):
    type: int
    state: int
    path: str


# ----------------------------------------------------------------------------------------- encoding


def string(text: str) -> bytes:
    return buffer(text.encode())


def buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def frame(payload: bytes) -> bytes:
    return _INT.pack(len(payload)) + payload


def connect_request(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    return (
        _CONNECT.pack(PROTOCOL_VERSION, last_zxid, timeout_ms, session_id)
        + buffer(password)
        + b"\x00"  # read-only: never connect to a server without a quorum, which serves stale reads
    )


def request(xid: int, code: int, body: bytes = b"") -> bytes:
    return _INT.pack(xid) + _INT.pack(code) + body


def path_and_flag(path: str) -> bytes:
    """Encode the body of GET_DATA, EXISTS and GET_CHILDREN2, without the one-shot watch."""
    return string(path) + b"\x00"


def add_watch(path: str) -> bytes:
    return string(path) + _INT.pack(PERSISTENT_RECURSIVE)


def auth(scheme: str, credentials: bytes) -> bytes:
    return _INT.pack(0) + string(scheme) + buffer(credentials)


def set_acl(path: str, acl: Sequence[Acl]) -> bytes:
    return string(path) + _acl(acl) + _INT.pack(ANY_VERSION)


def op_body(op: ZkOp, acl: Sequence[Acl]) -> bytes:
    if op.code is OpCode.CREATE:
        flags = EPHEMERAL_FLAG if op.ephemeral else 0
        return string(op.path) + buffer(op.data) + _acl(acl) + _INT.pack(flags)
    if op.code is OpCode.SET_DATA:
        return string(op.path) + buffer(op.data) + _INT.pack(op.version)
    return string(op.path) + _INT.pack(op.version)


def multi(ops: Sequence[ZkOp], acl: Sequence[Acl]) -> bytes:
    parts = []
    for op in ops:
        parts += [_MULTI_HEADER.pack(op.code, False, -1), op_body(op, acl)]
    parts.append(_MULTI_END)
    return b"".join(parts)


def _acl(acl: Sequence[Acl]) -> bytes:
    entries = [_INT.pack(each.permissions) + string(each.scheme) + string(each.id) for each in acl]
    return _INT.pack(len(entries)) + b"".join(entries)


# ----------------------------------------------------------------------------------------- decoding


def read_connected(payload: bytes) -> Connected:
    _, timeout_ms, session_id = _CONNECTED.unpack_from(payload)
    password, _ = _read_buffer(payload, _CONNECTED.size)
    return Connected(timeout_ms, session_id, password or b"")


def read_reply_header(payload: bytes) -> tuple[ReplyHeader, int]:
    return ReplyHeader(*_REPLY.unpack_from(payload)), _REPLY.size


def read_event(payload: bytes, position: int) -> WatchEvent:
    (kind,) = _INT.unpack_from(payload, position)
    (state,) = _INT.unpack_from(payload, position + 4)
    path, _ = _read_buffer(payload, position + 8)
    return WatchEvent(kind, state, (path or b"").decode())


def read_data(payload: bytes, position: int) -> tuple[bytes, Stat]:
    data, position = _read_buffer(payload, position)
    return data or b"", Stat(*_STAT.unpack_from(payload, position))


def read_children(payload: bytes, position: int) -> tuple[list[str], Stat]:
    (count,) = _INT.unpack_from(payload, position)
    position += 4
    children = []
    for _ in range(count):
        name, position = _read_buffer(payload, position)
        children.append((name or b"").decode())
    return children, Stat(*_STAT.unpack_from(payload, position))


def read_acl(payload: bytes, position: int) -> list[Acl]:
    (count,) = _INT.unpack_from(payload, position)
    position += 4
    entries = []
    for _ in range(count):
        (permissions,) = _INT.unpack_from(payload, position)
        scheme, position = _read_buffer(payload, position + 4)
        id, position = _read_buffer(payload, position)
        entries.append(Acl(permissions, (scheme or b"").decode(), (id or b"").decode()))
    return entries


def read_token(payload: bytes, position: int) -> bytes:
    """Decode the reply to SASL. A server without SASL replies with an empty token."""
    if position >= len(payload):
        return b""
    token, _ = _read_buffer(payload, position)
    return token or b""


def check_multi(payload: bytes, position: int) -> None:
    """Check the results of a multi.

    In a failed multi, only the failed operation has a specific error code: those before it have OK,
    those after it RUNTIME_INCONSISTENCY.

    Raises:
        MultiFailed: An operation failed.
    """
    index = 0
    while position < len(payload):
        code, done, _ = _MULTI_HEADER.unpack_from(payload, position)
        position += _MULTI_HEADER.size
        if done:
            return
        if code == OpCode.ERROR:
            (error,) = _INT.unpack_from(payload, position)
            position += 4
            if error not in (ZkCode.OK, ZkCode.RUNTIME_INCONSISTENCY):
                raise MultiFailed(index, error)
        elif code == OpCode.CREATE:
            _, position = _read_buffer(payload, position)
        elif code == OpCode.SET_DATA:
            position += _STAT.size
        index += 1


def _read_buffer(payload: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(payload, position)
    position += 4
    if length < 0:
        return None, position
    end = position + length
    if end > len(payload):
        raise ValueError("a reply ends too early")
    return payload[position:end], end
