"""The leader epochs of a log and their start offsets (`leader-epoch-checkpoint`).

Entries are (epoch, start offset); both increase strictly. The file is written when the log is
flushed or closed. After a crash, recovery reads newer epochs from the batches themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ottla.base.ports import FileSystem, write_atomically, write_unsynced
from ottla.storage import checkpoint

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The leader epochs of one log, in memory and on disk (KIP-101)."""

    __slots__ = ("_fs", "_path", "dirty", "entries", "latest_epoch")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = f"{directory}/{FILE_NAME}"
        self.entries: list[EpochEntry] = []
        self.latest_epoch = NO_EPOCH
        self.dirty = False

    def load(self) -> bool:
        """Read the checkpoint file. Return False if it does not exist."""
        try:
            data = self._fs.read_bytes(self._path)
        except FileNotFoundError:
            return False
        rows = checkpoint.decode(data, self._path)
        self._replace([EpochEntry(int(epoch), int(offset)) for epoch, offset in rows])
        self.dirty = False
        return True

    def clear(self) -> None:
        self._replace([])

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that batches from `start_offset` on have the leader epoch `epoch`."""
        if epoch <= self.latest_epoch or epoch < 0:
            return
        kept = [entry for entry in self.entries if entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """Return where a log that knows `epoch` can first differ from this one (KIP-101, KIP-279).

        Returns:
            The largest epoch that is not above `epoch`, and the start offset of the next larger
            epoch (the log end offset if `epoch` is the latest one). Both are -1 if `epoch` is newer
            than the latest one, or if the log has no epochs.
        """
        if epoch == NO_EPOCH or not self.entries:
            return EpochEntry(NO_EPOCH, NO_OFFSET)
        if epoch == self.latest_epoch:
            return EpochEntry(epoch, log_end_offset)
        slot = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if slot == len(self.entries):
            return EpochEntry(NO_EPOCH, NO_OFFSET)
        if slot == 0:
            return EpochEntry(epoch, self.entries[0].start_offset)
        return EpochEntry(self.entries[slot - 1].epoch, self.entries[slot].start_offset)

    def epoch_for(self, offset: int) -> int:
        entries = self.entries
        if entries and entries[-1].start_offset <= offset:
            return entries[-1].epoch  # most readers are near the log end offset
        slot = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
        return entries[slot - 1].epoch if slot else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if len(kept) != len(self.entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before `start_offset`. The one that contains it starts there."""
        slot = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if slot == 0 or (slot == 1 and self.entries[0].start_offset == start_offset):
            return
        current = EpochEntry(self.entries[slot - 1].epoch, start_offset)
        self._replace([current, *self.entries[slot:]])

    def flush(self, *, sync: bool = True) -> None:
        if not self.dirty:
            return
        self.dirty = False  # cleared first, so that a concurrent change is not missed
        lines = (f"{entry.epoch} {entry.start_offset}" for entry in self.entries)
        write = write_atomically if sync else write_unsynced
        try:
            write(self._fs, self._path, checkpoint.encode(lines))
        except OSError:
            self.dirty = True
            raise

    def _replace(self, entries: list[EpochEntry]) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else NO_EPOCH
        self.dirty = True
