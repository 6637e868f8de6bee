"""The segments in a log directory, and files that interrupted operations left there.

.deleted, .cleaned, .tmp   from an unfinished deletion, compaction or write: removed
.swap                      a complete compacted segment: it replaces the segments it was made from
an index without its log   removed
an empty segment           removed, unless it is the first or the last
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.ports import FileSystem
from ottla.storage.segment import Segment, segment_path
from ottla.wire.records.errors import BatchError

Report = Callable[[str], None]
"""Callback for messages about repairs that were made."""
_INDEX_EXTENSIONS = ("index", "timeindex", "txnindex")
_UNFINISHED = (".deleted", ".cleaned", ".swap", ".tmp")


def finish_interrupted_work(fs: FileSystem, directory: str, report: Report) -> None:
    """Complete interrupted swaps, and remove the files of other unfinished operations."""
    names = [name for name in fs.list(directory) if name.endswith(_UNFINISHED)]
    if not names:
        return
    for name in names:
        if name.endswith((".deleted", ".cleaned", ".tmp")):
            fs.remove(f"{directory}/{name}")
    swaps = sorted(name for name in names if name.endswith(".log.swap"))
    for name in swaps:
        _finish_swap(fs, directory, int(name.split(".")[0]))
        report(f"{directory}: completed an interrupted compaction ({name})")
    for name in fs.list(directory):
        if name.endswith(".swap"):
            fs.remove(f"{directory}/{name}")


def _finish_swap(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Remove the segments that a complete `.swap` segment replaces, and rename it into place."""
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
    """Open all segments in the directory, ordered by base offset. Remove orphaned files."""
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
    """Remove the files of empty segments and return the other segments.

    A segment is empty after a roll that failed, or if a power failure lost its records. The first
    segment stays in any case, because the log begins there. The last one stays unless the segment
    before it extends beyond its base offset.
    """
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
