"""Which leader epoch began at which offset (`leader-epoch-checkpoint`).

Entries are (epoch, start offset), both strictly growing. The file is written when the log is
flushed or closed; after a crash, recovery learns newer epochs again from the batches themselves."""

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
    __slots__ = ("_fs", "_path", "dirty", "entries", "latest_epoch")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = f"{directory}/{FILE_NAME}"
        self.entries: list[EpochEntry] = []
        self.latest_epoch = NO_EPOCH
        self.dirty = False

    def load(self) -> bool:
        """False if there is no file."""
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
        """Records appended from `start_offset` on are of `epoch`."""
        if epoch <= self.latest_epoch or epoch < 0:
            return
        kept = [entry for entry in self.entries if entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """(the largest epoch at or below `epoch`, where the epoch after `epoch` begins): how far a
        log that has heard of `epoch` agrees with this one. KIP-101, KIP-279."""
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
            return entries[-1].epoch  # most readers are at the end
        slot = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
        return entries[slot - 1].epoch if slot else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if len(kept) != len(self.entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`; the one it lies in now begins there."""
        slot = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if slot == 0 or (slot == 1 and self.entries[0].start_offset == start_offset):
            return
        current = EpochEntry(self.entries[slot - 1].epoch, start_offset)
        self._replace([current, *self.entries[slot:]])

    def flush(self, *, sync: bool = True) -> None:
        if not self.dirty:
            return
        self.dirty = False  # before the entries are read: a change from here on is not missed
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
