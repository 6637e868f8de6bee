"""CRC-32C (Castagnoli), the checksum of v2 batches.

The `crc32c` package takes 55 ms to import, because it imports argparse and reads its own metadata.
Its C extension does all the work and loads in a tenth of that time, so it is loaded directly. If
the extension cannot be found, the package is imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview


def _load() -> Callable[[Buffer], int]:
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            return cast(Callable[[Buffer], int], module.crc32c)
    from crc32c import crc32c as packaged

    return packaged


crc32c: Callable[[Buffer], int] = _load()
"""Checksum function for any contiguous buffer. Releases the GIL for large ones."""
