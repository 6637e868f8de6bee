"""Kafka's compression codecs, by ID and name.

    id  name    written as                                          also read
     0  none
     1  gzip    one member; isal up to level 3, zlib above          several members
     2  snappy  xerial framing: 16-byte header, then blocks of      one raw snappy block
                at most 32 KB, each after its length (int32)        (as librdkafka sends)
     3  lz4     one frame, independent 64 KB blocks, no content     linked blocks, checksums,
                size (Java's client rejects linked blocks)          content size
     4  zstd    one frame with its content size                     frames without a size

Invariants: `decompress` never holds more than `max_size` bytes plus one chunk, whatever the input
claims, and raises only `BatchError`. The library of each codec is imported on first use, so a
broker that never sees gzip never loads it. There is no shared state; all functions are thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from ottla.base.errors import ErrorCode
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import BatchError, CorruptBatch, InvalidBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_DECOMPRESSED = 128 * 1024 * 1024
"""Default limit for the decompressed size of one batch."""

_IDS = {name: codec for codec, name in enumerate(NAMES)} | {"uncompressed": NONE}
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK = 32 * 1024
_SNAPPY_MAX_RATIO = 22
"""Maximum compression ratio. A snappy copy element of 3 bytes expands to at most 64."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WBITS = 31
_GZIP_MAX_MEMBERS = 100
"""Maximum number of gzip members. Each one copies the rest, so the total cost is quadratic."""
_LAST_ISAL_LEVEL = 3
_FIRST_LZ4HC_LEVEL = 3
_ZSTD_MAX_WINDOW = 1 << 27
_FIRST_CHUNK = 64 * 1024
_LAST_CHUNK = 4 * 1024 * 1024


class Levels(NamedTuple):
    """The levels that Kafka allows for `compression.<codec>.level`."""

    lowest: int
    highest: int
    default: int


LEVELS = {GZIP: Levels(1, 9, -1), LZ4: Levels(1, 17, 9), ZSTD: Levels(-131072, 22, 3)}


def codec_id(name: str) -> int:
    """Return Kafka's ID of a codec. `uncompressed`, as in topic configurations, is none.

    Raises:
        ValueError: The codec is unknown.
    """
    try:
        return _IDS[name]
    except KeyError:
        raise ValueError(f"unknown compression {name!r}; known: {', '.join(_IDS)}") from None


def compress(codec: int | str, data: Buffer, level: int | None = None) -> bytes:
    """Compress data in the format that Kafka clients expect.

    Args:
        codec: ID or name of the codec.
        data: The data to compress.
        level: Compression level, or None for the default of the codec.

    Raises:
        ValueError: The codec or the level is unknown.
    """
    number = codec_id(codec) if isinstance(codec, str) else codec
    levels = LEVELS.get(number)
    if level is None or levels is None:
        level = levels.default if levels else 0
    elif level != levels.default and not levels.lowest <= level <= levels.highest:
        lowest, highest, _ = levels
        raise ValueError(f"{NAMES[number]} has levels {lowest} to {highest}, not {level}")
    if not 0 <= number < len(NAMES):
        raise ValueError(f"unknown compression {number}")
    return _COMPRESS[number](data, level)


def decompress(codec: int | str, data: Buffer, max_size: int = MAX_DECOMPRESSED) -> bytes:
    """Decompress data that any Kafka client may have written.

    Args:
        codec: ID or name of the codec.
        data: The compressed data.
        max_size: Maximum size of the result.

    Raises:
        InvalidBatch: The codec is unknown, or the result exceeds `max_size`.
        CorruptBatch: The data is damaged.
    """
    number = codec_id(codec) if isinstance(codec, str) else codec
    if not 0 <= number < len(NAMES):
        raise InvalidBatch(f"unknown compression {number}")
    return _DECOMPRESS[number](data, max_size)


def _too_large(max_size: int) -> BatchError:
    return InvalidBatch(
        f"the batch decompresses to more than {max_size} bytes", ErrorCode.MESSAGE_TOO_LARGE
    )


def _damaged(codec: int, reason: object) -> BatchError:
    return CorruptBatch(f"the {NAMES[codec]} data is damaged: {reason}")


def _copy(data: Buffer, level: int) -> bytes:
    return bytes(data)


def _copy_bounded(data: Buffer, max_size: int) -> bytes:
    if len(data) > max_size:
        raise _too_large(max_size)
    return bytes(data)


def _compress_gzip(data: Buffer, level: int) -> bytes:
    if level > _LAST_ISAL_LEVEL:
        import zlib

        return zlib.compress(data, level, wbits=_GZIP_WBITS)
    from isal import isal_zlib

    if level < 0:
        level = isal_zlib.Z_DEFAULT_COMPRESSION
    return isal_zlib.compress(data, level, wbits=_GZIP_WBITS)


def _decompress_gzip(data: Buffer, max_size: int) -> bytes:
    from isal import isal_zlib

    IsalError = cast(type[Exception], isal_zlib.IsalError)  # noqa: N806 (a class, mistyped there)
    parts: list[bytes] = []
    room = max_size
    rest: Buffer = data
    while not parts or rest[:2] == _GZIP_MAGIC:
        if len(parts) == _GZIP_MAX_MEMBERS:
            raise _damaged(GZIP, f"it has more than {_GZIP_MAX_MEMBERS} members")
        member = isal_zlib.decompressobj(wbits=_GZIP_WBITS)
        try:
            part = member.decompress(rest, room + 1)
        except (IsalError, EOFError) as error:
            raise _damaged(GZIP, error) from None
        if len(part) > room:
            raise _too_large(max_size)
        if not member.eof:
            raise _damaged(GZIP, "it ends too early")
        parts.append(part)
        room -= len(part)
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_snappy(data: Buffer, level: int) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, max_size, max_size)
    parts: list[bytes] = []
    position, room = len(_XERIAL_HEADER), max_size
    if position > len(view):
        raise _damaged(SNAPPY, "its header is cut off")
    while position < len(view):
        start = position + 4
        position = start + int.from_bytes(view[start - 4 : start], "big")
        if position > len(view):
            raise _damaged(SNAPPY, "a block is cut off")
        part = _snappy_block(view[start:position], room, max_size)
        room -= len(part)
        parts.append(part)
    return b"".join(parts)


def _snappy_block(block: memoryview, room: int, max_size: int) -> bytes:
    from cramjam import DecompressionError, snappy

    if not block:
        raise _damaged(SNAPPY, "a block is empty")
    try:
        size = snappy.decompress_raw_len(block)
        if size > _SNAPPY_MAX_RATIO * len(block):
            raise _damaged(SNAPPY, f"{len(block)} bytes cannot hold {size}")
        if size > room:
            raise _too_large(max_size)
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise _damaged(SNAPPY, error) from None


def _compress_lz4(data: Buffer, level: int) -> bytes:
    from lz4 import frame

    # As in Kafka, the default level selects the fast compressor, and any other level LZ4 HC.
    is_default = level == LEVELS[LZ4].default
    compressed: bytes = frame.compress(
        data,
        compression_level=0 if is_default else max(level, _FIRST_LZ4HC_LEVEL),
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _decompress_lz4(data: Buffer, max_size: int) -> bytes:
    from lz4.frame import LZ4FrameDecompressor

    reader = LZ4FrameDecompressor()
    pending: Buffer = data

    def read(size: int) -> bytes:
        nonlocal pending
        if reader.eof:
            return b""
        chunk: bytes = reader.decompress(pending, size)
        pending = b""
        if not chunk and not reader.eof:
            raise _damaged(LZ4, "it ends too early")
        return chunk

    try:
        return _read_all(read, len(data), max_size)
    except RuntimeError as error:
        raise _damaged(LZ4, error) from None


def _compress_zstd(data: Buffer, level: int) -> bytes:
    from zstandard import ZstdCompressor

    return ZstdCompressor(level=level).compress(data)


def _decompress_zstd(data: Buffer, max_size: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError, frame_content_size

    decompressor = ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    try:
        claimed = frame_content_size(data)
        if claimed > max_size:
            raise _too_large(max_size)
        reader = decompressor.stream_reader(data, read_across_frames=True)
        result = _read_all(reader.read, len(data), max_size)
    except ZstdError as error:
        raise _damaged(ZSTD, error) from None
    if len(result) < claimed:
        raise _damaged(ZSTD, "it ends too early")
    return result


def _read_all(read: Callable[[int], bytes], compressed_size: int, max_size: int) -> bytes:
    """Read everything in growing chunks, so that memory use follows the data, not its claims."""
    chunk_size = min(max(4 * compressed_size, _FIRST_CHUNK), _LAST_CHUNK)
    parts: list[bytes] = []
    total = 0
    while part := read(chunk_size):
        total += len(part)
        if total > max_size:
            raise _too_large(max_size)
        parts.append(part)
        chunk_size = min(2 * chunk_size, _LAST_CHUNK)
    return parts[0] if len(parts) == 1 else b"".join(parts)


_COMPRESS: tuple[Callable[[Buffer, int], bytes], ...] = (
    _copy,
    _compress_gzip,
    _compress_snappy,
    _compress_lz4,
    _compress_zstd,
)
_DECOMPRESS: tuple[Callable[[Buffer, int], bytes], ...] = (
    _copy_bounded,
    _decompress_gzip,
    _decompress_snappy,
    _decompress_lz4,
    _decompress_zstd,
)
