"""File system that gives no guarantees about power cuts.

Data of a test is deleted when it ends. Waiting for the disk would only slow the test down, and make
its duration depend on what else the machine is writing.
"""

from __future__ import annotations

from ottla.storage.file import OsFile, OsFileSystem


class UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class UnsyncedFileSystem(OsFileSystem):
    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        # This creates or checks the file; it is opened on first use.
        super().open(path, create=create, private=private)
        return UnsyncedFile(self, path)

    def sync_directory(self, path: str) -> None:
        pass

    def sync_below(self, path: str) -> None:
        pass
