"""A file system that promises nothing about power cuts.

What a test writes is thrown away when it ends, so waiting for the disk would only make it slow, and
its time depend on what else the machine is writing."""

from __future__ import annotations

from ottla.storage.file import OsFile, OsFileSystem


class UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class UnsyncedFileSystem(OsFileSystem):
    def open(self, path: str, *, create: bool = False) -> OsFile:
        super().open(path, create=create)  # a name that is opened only when it is used
        return UnsyncedFile(self, path)

    def sync_directory(self, path: str) -> None:
        pass

    def sync_below(self, path: str) -> None:
        pass
