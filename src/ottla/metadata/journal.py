"""Files of the embedded metadata store: a log of transactions and a snapshot of nodes.

Format. Both files consist of lines with `<crc32 of the rest, 8 hex digits> <JSON>` and a newline.
The JSON is ASCII, so a line contains no other newline and no zero byte.

    metadata.log       {"format": 1, "revision": R, "txns": [[op, …], …]}      one line per commit
                       op: ["create", path, value] ["replace", path, value] ["delete", path]
    metadata.snapshot  {"format": 1, "revision": R, "nodes": N}                 the first line
                       [path, version, value]                                  N lines

`revision` counts transactions; a log line with revision R contains transactions R - len(txns) + 1
to R. Values are bytes; bytes that are not UTF-8 are represented by Python's surrogate escapes.

Invariants
1. A line is written only after the previous line has been synced. A crash can therefore damage only
   the last line; damage in any other line affects acknowledged data.
2. A torn last line lacks its newline, or has zeros in place of sectors that did not reach the disk.
   It was never acknowledged and is truncated. Any other damage fails the start with a `UserError`.
3. The log continues the snapshot without a gap. Lines that the snapshot already covers, after a
   crash between writing the snapshot and emptying the log, are skipped.
4. A failed append truncates the log to its last good line, at the latest before the next append.
5. Only the owner may read the files (mode 0600), because they contain the credentials of users.
   Files of earlier versions are made private when they are opened.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ottla.base.errors import UserError
from ottla.base.metadata import Create, Node, Op, Replace
from ottla.base.ports import TEMPORARY_SUFFIX, File, FileSystem, write_atomically

logger = logging.getLogger(__name__)

FORMAT = 1
LOG_NAME = "metadata.log"
SNAPSHOT_NAME = "metadata.snapshot"
SECTOR_BYTES = 512
"""The unit that a disk writes atomically."""

COMPACT_ABOVE_BYTES = 4 * 1024 * 1024
"""Log size from which the log is compacted, if it is also larger than twice the snapshot."""

_dumps = json.JSONEncoder(separators=(",", ":")).encode
_CRC_DIGITS = 8


class Journal:
    """The log and the snapshot. All methods block, and calls must not overlap.

    Args:
        fs: The file system to use.
        directory: The directory of the files.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._log_path = f"{directory}/{LOG_NAME}"
        self._snapshot_path = f"{directory}/{SNAPSHOT_NAME}"
        self._log: File | None = None
        self._end = 0
        self._tail_is_dirty = False
        self._snapshot_size = 0
        self.revision = 0

    def open(self) -> dict[str, Node]:
        """Read both files, truncate a torn last line, and prepare for appending.

        Returns:
            The nodes by path.

        Raises:
            UserError: A file is damaged, or has an unknown format.
        """
        self._fs.remove(self._snapshot_path + TEMPORARY_SUFFIX)  # left by a crash
        nodes = self._read_snapshot()
        is_new = not self._fs.exists(self._log_path)
        self._fs.make_directories(self._directory)
        self._log = self._fs.open(self._log_path, create=True, private=True)
        if is_new:
            self._fs.sync_directory(self._directory)
            parent = self._directory.rpartition("/")[0]
            if parent:
                self._fs.sync_directory(parent)
        self._replay(nodes)
        return nodes

    @property
    def wants_compaction(self) -> bool:
        """Whether the log has grown enough to be compacted."""
        return self._end > max(COMPACT_ABOVE_BYTES, 2 * self._snapshot_size)

    def append(self, line: bytes, revision: int) -> None:
        """Append one line and sync it.

        Args:
            line: A line of `encode_line`.
            revision: The revision of the line's last transaction.

        Raises:
            OSError: The write failed; the line is not in the log.
        """
        log = self._open_log()
        try:
            if self._tail_is_dirty:
                log.truncate(self._end)
            self._tail_is_dirty = True
            log.write(self._end, [line])
            log.sync()
        except OSError:
            self._truncate_tail()
            raise
        self._tail_is_dirty = False
        self._end += len(line)
        self.revision = revision

    def compact(self, nodes: Mapping[str, Node]) -> None:
        """Write the nodes as the snapshot of the current revision, then empty the log."""
        data = encode_snapshot(nodes, self.revision)
        write_atomically(self._fs, self._snapshot_path, data, private=True)
        self._snapshot_size = len(data)
        log = self._open_log()
        log.truncate(0)
        self._end = 0
        log.sync()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _open_log(self) -> File:
        if self._log is None:
            raise ValueError("The metadata journal is closed")
        return self._log

    def _truncate_tail(self) -> None:
        try:
            self._open_log().truncate(self._end)
            self._tail_is_dirty = False
        except OSError as error:
            logger.warning("%s: truncating an unfinished write: %s", self._log_path, error)

    # -------------------------------------------------------------------------------------- reading

    def _read_snapshot(self) -> dict[str, Node]:
        if not self._fs.exists(self._snapshot_path):
            return {}
        self._fs.open(self._snapshot_path, private=True).close()
        data = self._fs.read_bytes(self._snapshot_path)
        self._snapshot_size = len(data)
        lines = _intact_lines(self._snapshot_path, data)
        header = next(lines, None)
        if header is None:
            raise damaged(self._snapshot_path, 0)
        self.revision = _checked_format(self._snapshot_path, header)["revision"]
        nodes = {path: Node(_value(text), version) for path, version, text in lines}
        if len(nodes) != header["nodes"]:
            raise damaged(self._snapshot_path, len(data))
        return nodes

    def _replay(self, nodes: dict[str, Node]) -> None:
        log = self._open_log()
        data = log.read(0, log.size())
        self._end = _torn_from(self._log_path, data)
        if self._end < len(data):
            logger.warning(
                "%s: truncated %d bytes at position %d, an interrupted write that was never "
                "acknowledged",
                self._log_path,
                len(data) - self._end,
                self._end,
            )
            log.truncate(self._end)
            log.sync()
        for line in _intact_lines(self._log_path, data[: self._end]):
            self._replay_line(nodes, _checked_format(self._log_path, line))

    def _replay_line(self, nodes: dict[str, Node], line: dict[str, Any]) -> None:
        last, txns = line["revision"], line["txns"]
        if last <= self.revision:
            return
        if last - len(txns) != self.revision:
            raise UserError(
                f"{self._log_path} starts after revision {last - len(txns)}, but "
                f"{self._snapshot_path} ends at revision {self.revision}: part of the metadata "
                f"is missing. Restore {self._directory} from a backup"
            )
        for ops in txns:
            for op in ops:
                _replay_op(nodes, op)
        self.revision = last


def encode_line(txns: Sequence[Sequence[Op]], revision: int) -> bytes:
    """Encode a log line with the transactions that end at `revision`."""
    encoded = [[_encode_op(op) for op in ops] for ops in txns]
    return _line({"format": FORMAT, "revision": revision, "txns": encoded})


def encode_snapshot(nodes: Mapping[str, Node], revision: int) -> bytes:
    lines = [_line({"format": FORMAT, "revision": revision, "nodes": len(nodes)})]
    lines += [_line([path, node.version, _text(node.value)]) for path, node in nodes.items()]
    return b"".join(lines)


def damaged(path: str, position: int) -> UserError:
    return UserError(
        f"{path} is damaged at byte {position}: the line does not match its checksum. Restore "
        "the file from a backup, because continuing could lose topics"
    )


def _line(payload: object) -> bytes:
    encoded = _dumps(payload).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(encoded), encoded)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _value(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _encode_op(op: Op) -> list[str]:
    if isinstance(op, Create):
        return ["create", op.path, _text(op.value)]
    if isinstance(op, Replace):
        return ["replace", op.path, _text(op.value)]
    return ["delete", op.path]


def _replay_op(nodes: dict[str, Node], op: list[str]) -> None:
    match op:
        case ["create", path, text]:
            nodes[path] = Node(_value(text), 0)
        case ["replace", path, text]:
            nodes[path] = Node(_value(text), nodes[path].version + 1)
        case ["delete", path]:
            del nodes[path]
        case _:
            raise UserError(f"The metadata log contains the unknown operation {op[0]!r}")


def _checked_format(path: str, header: Any) -> dict[str, Any]:
    if header.get("format") != FORMAT:
        raise UserError(
            f"{path} has format {header.get('format')}, but this version reads format {FORMAT}. "
            "Start the version of Ottla that wrote it"
        )
    checked: dict[str, Any] = header
    return checked


def _is_intact(line: bytes) -> bool:
    digits, payload = line[:_CRC_DIGITS], line[_CRC_DIGITS + 1 :]
    return line[_CRC_DIGITS : _CRC_DIGITS + 1] == b" " and digits == b"%08x" % zlib.crc32(payload)


def _intact_lines(path: str, data: bytes) -> Iterator[Any]:
    """Yield the payload of each line.

    Raises:
        UserError: A line is incomplete or does not match its checksum.
    """
    position = 0
    for line in _split(data):
        if not line.endswith(b"\n") or not _is_intact(line[:-1]):
            raise damaged(path, position)
        yield json.loads(line[_CRC_DIGITS + 1 :])
        position += len(line)


def _split(data: bytes) -> Iterable[bytes]:
    # bytes.splitlines would also split at other line endings.
    lines = data.split(b"\n")
    yield from (line + b"\n" for line in lines[:-1])
    if lines[-1]:
        yield lines[-1]


def _torn_from(path: str, data: bytes) -> int:
    """Return the end of the log's intact lines, where a torn last line starts (invariant 2).

    Raises:
        UserError: The last line is damaged in another way.
    """
    start = data.rfind(b"\n", 0, max(0, len(data) - 1)) + 1
    last = data[start:]
    if not last or (last.endswith(b"\n") and _is_intact(last[:-1])):
        return len(data)
    if not last.endswith(b"\n"):
        if _is_intact(last[:-1]):
            raise damaged(path, start)  # complete except for its newline: modified, not torn
        return start
    if _has_hole(last, start):
        return start
    raise damaged(path, start)


def _has_hole(line: bytes, start: int) -> bool:
    """Return whether zeros fill an unwritten sector; a flipped bit produces them elsewhere."""
    for zeros in re.finditer(rb"\0+", line):
        first, end = start + zeros.start(), start + zeros.end()
        if (first == start or first % SECTOR_BYTES == 0) and end % SECTOR_BYTES == 0:
            return True
    return False
