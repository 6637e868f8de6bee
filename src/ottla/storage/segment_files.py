"""The segments that a directory holds, and what interrupted work left beside them.

.deleted, .cleaned, .tmp   of a deletion, compaction or write that was not finished: removed
.swap                      a compacted segment that is whole: it takes the place of the old ones
an index without its log   removed
an empty segment           removed, the first and the last apart"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.ports import FileSystem
from ottla.storage.segment import Segment, segment_path
from ottla.wire.records.errors import BatchError

Report = Callable[[str], None]
"""Is told in words what had to be mended."""
_INDEX_EXTENSIONS = ("index", "timeindex", "txnindex")
_UNFINISHED = (".deleted", ".cleaned", ".swap", ".tmp")


def finish_interrupted_work(fs: FileSystem, directory: str, report: Report) -> None:
    names = [name for name in fs.list(directory) if name.endswith(_UNFINISHED)]
    if not names:
        return
    for name in names:
        if name.endswith((".deleted", ".cleaned", ".tmp")):
            fs.remove(f"{directory}/{name}")
    swaps = sorted(name for name in names if name.endswith(".log.swap"))
    for name in swaps:
        _finish_swap(fs, directory, int(name.split(".")[0]))
        report(f"{directory}: finished an interrupted compaction ({name})")
    for name in fs.list(directory):
        if name.endswith(".swap"):
            fs.remove(f"{directory}/{name}")


def _finish_swap(fs: FileSystem, directory: str, base_offset: int) -> None:
    """The compacted segment is whole: what it replaces goes, and it takes the place."""
    swap = Segment(fs, directory, base_offset, suffix=".swap")
    end_offset = max((h.next_offset for h in swap.iter_headers(0, wait=True)), default=base_offset)
    swap.close()
    for old in _base_offsets(fs, directory):
        if base_offset <= old < max(end_offset, base_offset + 1):
            for extension in ("log", *_INDEX_EXTENSIONS):
                fs.remove(segment_path(directory, old, extension))
    for extension in (*_INDEX_EXTENSIONS, "log"):
        path = segment_path(directory, base_offset, extension)
        if fs.exists(path + ".swap"):
            fs.rename(path + ".swap", path)
    fs.sync_directory(directory)


def _base_offsets(fs: FileSystem, directory: str) -> list[int]:
    names = (name.split(".") for name in fs.list(directory))
    return sorted(
        int(parts[0])
        for parts in names
        if len(parts) == 2 and parts[1] == "log" and parts[0].isdigit()
    )


def open_segments(fs: FileSystem, directory: str) -> list[Segment]:
    bases = _base_offsets(fs, directory)
    expected = {f"{base:020d}" for base in bases}
    for name in fs.list(directory):
        stem, _, extension = name.partition(".")
        if extension in _INDEX_EXTENSIONS and stem not in expected:
            fs.remove(f"{directory}/{name}")
    segments = _without_empty([Segment(fs, directory, base) for base in bases])
    for segment in segments[-1:]:
        segment.created_ms = fs.modified_ms(segment.file.path)
    return segments


def _without_empty(segments: list[Segment]) -> list[Segment]:
    """Remove files of segments that hold nothing: of a roll that failed, or of one whose records a
    power cut took. The first stays, because the log begins with it, whether compaction emptied it
    or its records are lost. So does the last, unless the one before it went on behind its start."""
    kept = segments[:1] + [s for s in segments[1:-1] if s.size] + segments[1:][-1:]
    if len(kept) > 1 and not kept[-1].size:
        try:
            if kept[-2].next_offset() > kept[-1].base_offset:
                kept.pop()
        except BatchError:
            pass
    for segment in segments:
        if segment not in kept:
            segment.remove()
    return kept
