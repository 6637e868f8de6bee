"""Tailing of a growing file, with positions that survive truncation and renaming.

A record is read once its terminator has been written. The source offset is

    {"position": bytes read, "inode": inode of the file, "head": checksum of its first bytes,
     "unterminated": whether the last record was read without its terminator}

It identifies the file: one that was truncated, or truncated and refilled, is read from its
beginning. A renamed file that is still open, or in the same directory, is read to its end before
the new one. Each of these cases is logged. Offsets set by an administrator need only `position`.
"""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from ottla.base.errors import UserError

logger = logging.getLogger(__name__)

READ_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024 * 1024
HEAD_BYTES = 1024

Split = Callable[[bytes, int], tuple[list[bytes], bytes]]
"""Function that splits at most a number of records off the front of data.

It returns the records without their newlines, and the remaining data.
"""


def split_lines(data: bytes, limit: int) -> tuple[list[bytes], bytes]:
    *lines, rest = data.split(b"\n", limit)
    return lines, rest


class TailedFile:
    """Reader of a growing file.

    Args:
        path: Path of the file.
        batch_size: Maximum number of records to return at once.
        split: Function that splits data into records.
        follows_names: Whether a renamed file is read to its end under its new name. Not used if the
            whole directory is read, as the new name is then one of its files.
        unterminated_after_s: Time after which a last record without a terminator is read, if the
            file has not changed.
    """

    def __init__(
        self,
        path: str,
        batch_size: int,
        split: Split = split_lines,
        *,
        follows_names: bool = True,
        unterminated_after_s: float | None = None,
    ) -> None:
        self._path = path
        self._batch_size = batch_size
        self._split = split
        self._follows_names = follows_names
        self._unterminated_after_s = unterminated_after_s
        self._is_open_ended = False
        """Whether the last record was read without its newline, which may still be appended."""
        self._file: BinaryIO | None = None
        self._position = 0
        self._rest = b""
        """Data after the position that has no terminator yet."""
        self._late = 0
        self.beginnings = 0
        """Number of times that a file was read from its beginning."""
        self._known: dict[str, Any] = {}
        self._logged: set[str] = set()

    def start(self, offset: Mapping[str, Any]) -> None:
        """Start at a source offset; an empty one means the beginning."""
        self._known = dict(offset)
        self._is_open_ended = bool(offset.get("unterminated"))
        if self._known:
            self._resume()

    # ------------------------------------------------------------------------------- reading

    def read_lines(self) -> list[bytes]:
        """Return the next complete records, without their terminators."""
        if self._file is None and not self._open():
            return []
        assert self._file is not None
        if self._is_truncated():
            self._log_once(f"{self._path} was truncated; reading it from the beginning")
            self.close()
            self._known = {}
            return []
        lines, self._rest = self._split(self._rest, self._batch_size)
        if not lines:
            self._file.seek(self._position + len(self._rest))
            read = self._file.read(READ_BYTES)
            self._skip_late_newline(read)
            lines, self._rest = self._split(self._rest + read[self._late :], self._batch_size)
            if not lines and len(read) < READ_BYTES and self._rest and self._is_at_rest():
                return self._flush_unterminated()
            if not lines and not read:
                self._at_the_end()
            elif not lines:
                self._check_length()
        self._position += sum(map(len, lines)) + len(lines)
        return lines

    def _skip_late_newline(self, read: bytes) -> None:
        self._late = 0
        if self._is_open_ended and read:
            self._late = 2 if read.startswith(b"\r\n") else int(read.startswith(b"\n"))
            self._position += self._late
            self._is_open_ended = False

    def _is_at_rest(self) -> bool:
        assert self._file is not None
        if self._unterminated_after_s is None:
            return False
        return time.time() - os.fstat(self._file.fileno()).st_mtime >= self._unterminated_after_s

    def _flush_unterminated(self) -> list[bytes]:
        taken, self._rest = self._rest, b""
        self._position += len(taken)
        self._is_open_ended = True
        return [taken]

    def _at_the_end(self) -> None:
        """Switch to the new file at the path if the current one was replaced and fully read."""
        assert self._file is not None
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return
        here = os.fstat(self._file.fileno())
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            return
        if here.st_size > self._position + len(self._rest):
            return
        left = (
            f"; the last {len(self._rest)} bytes of the old file do not end with a newline"
            if self._rest
            else ""
        )
        self._log_once(f"{self._path} was replaced by another file; reading the new file{left}")
        self.close()
        self._known = {}

    def _check_length(self) -> None:
        if len(self._rest) > MAX_LINE_BYTES:
            raise UserError(
                f"A line of {self._path} at byte {self._position} is longer than "
                f"{MAX_LINE_BYTES} bytes."
            )

    def _is_truncated(self) -> bool:
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        if size < self._position + len(self._rest):
            return True
        # Truncated and refilled beyond the position: only the checksum reveals it.
        return bool(self._known) and self._known.get("head") not in (None, self._head())

    def _open(self) -> bool:
        try:
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115
        except FileNotFoundError:
            if "waiting" not in self._logged:
                self._logged.add("waiting")
                self._log_once(f"{self._path} does not exist; waiting for it")
            return False
        except OSError as error:
            reason = (error.strerror or "it cannot be opened").lower()
            raise UserError(f"Cannot read {self._path}: {reason}.") from error
        self._position, self._rest = 0, b""
        self.beginnings += 1
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._position, self._rest = None, 0, b""

    # ------------------------------------------------------------------------------ resuming

    def _resume(self) -> None:
        position = int(self._known.get("position", 0))
        for path in (self._path, *self._renamed()):
            if self._open_known(path, position):
                if path != self._path:
                    self._log_once(
                        f"{self._path} was renamed to {path}; reading the rest of that file first"
                    )
                return
        self._known = {}
        if os.path.exists(self._path):
            self._log_once(
                f"{self._path} was replaced or truncated since it was last read; reading it from "
                "the beginning"
            )

    def _open_known(self, path: str, position: int) -> bool:
        try:
            file = open(path, "rb", buffering=0)  # noqa: SIM115
        except OSError:
            return False
        self._file, self._position = file, position
        status = os.fstat(file.fileno())
        inode, head = self._known.get("inode"), self._known.get("head")
        same = status.st_size >= position and head in (None, self._head())
        # Without a checksum (an administrator set the position), the inode decides.
        if head is None and inode is not None:
            same = same and inode == status.st_ino
        elif path == self._path and inode not in (None, status.st_ino):
            # Another file with the same beginning counts only if the old one no longer exists.
            same = same and not any(True for _ in self._renamed())
        if not same:
            self.close()
        return same

    def _renamed(self) -> list[str]:
        """Return files in the same directory that have the inode of the file read before."""
        if not self._follows_names:
            return []
        inode = self._known.get("inode")
        folder = os.path.dirname(os.path.abspath(self._path))
        if inode is None or not os.path.isdir(folder):
            return []
        own = os.path.abspath(self._path)
        return [
            each.path
            for each in os.scandir(folder)
            if each.path != own and each.inode() == inode and each.is_file(follow_symlinks=False)
        ]

    def _head(self) -> str:
        assert self._file is not None
        data = os.pread(self._file.fileno(), min(HEAD_BYTES, self._head_size()), 0)
        return f"{len(data)}-{zlib.crc32(data):08x}"

    def _head_size(self) -> int:
        """Return the number of bytes that the known checksum covers, if there is one."""
        known = str(self._known.get("head", "")).partition("-")[0]
        return int(known) if known.isdecimal() else self._position

    def offset(self) -> dict[str, Any]:
        assert self._file is not None
        inode = os.fstat(self._file.fileno()).st_ino
        if self._known.get("inode") != inode or self._head_size() < HEAD_BYTES:
            # Extend the checksum, now that the file is longer.
            self._known = {}
        head = self._head()
        self._known = {"position": self._position, "inode": inode, "head": head}
        return {**self._known, "unterminated": True} if self._is_open_ended else dict(self._known)

    def _log_once(self, text: str) -> None:
        logger.warning("%s", text)
