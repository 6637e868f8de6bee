from __future__ import annotations

import gzip
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.wire.records.compression import (
    GZIP,
    LEVELS,
    LZ4,
    NAMES,
    SNAPPY,
    ZSTD,
    codec_id,
    compress,
    decompress,
)
from ottla.wire.records.errors import BatchError, CorruptBatch, InvalidBatch

TEXT = b"".join(b'{"id": %d, "name": "user-%d"}' % (n, n * 7919 % 1000) for n in range(6_000))
MEBIBYTE = 1 << 20
real_codecs = pytest.mark.parametrize("codec", NAMES[1:])


@given(st.sampled_from(NAMES), st.binary(max_size=2_000), st.integers(0, 40))
def test_data_comes_back(codec: str, data: bytes, repeats: int) -> None:
    original = data * repeats
    compressed = compress(codec, memoryview(original))
    assert decompress(codec, memoryview(compressed), max(len(original), 1)) == original


@real_codecs
def test_compression_makes_text_smaller_at_every_level(codec: str) -> None:
    number = codec_id(codec)
    levels = LEVELS.get(number)
    choices = [None] if levels is None else [None, levels.default, 1, levels.highest]
    for level in choices:
        compressed = compress(number, TEXT, level)
        assert len(compressed) < len(TEXT) / 2
        assert decompress(number, compressed) == TEXT


def test_names_and_ids_are_kafkas() -> None:
    assert [codec_id(name) for name in NAMES] == [0, 1, 2, 3, 4]
    assert codec_id("uncompressed") == 0
    with pytest.raises(ValueError, match="unknown compression 'brotli'"):
        codec_id("brotli")


def test_levels_outside_kafkas_ranges_are_refused() -> None:
    for codec, level in ((GZIP, 0), (GZIP, 10), (LZ4, 0), (LZ4, 18), (ZSTD, 23)):
        with pytest.raises(ValueError, match="has levels"):
            compress(codec, b"", level)


def test_unknown_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown compression 5"):
        compress(5, b"")
    with pytest.raises(InvalidBatch, match="unknown compression 7"):
        decompress(7, b"")


def test_lz4_frames_have_independent_blocks_and_no_content_size() -> None:
    for level in (None, 1, 17):
        info = lz4.frame.get_frame_info(compress(LZ4, TEXT, level))
        assert not info["block_linked"]
        assert (info["content_size"], info["block_size"]) == (0, 65_536)


def test_lz4_frames_of_other_writers_are_read() -> None:
    linked = lz4.frame.compress(
        TEXT, block_linked=True, content_checksum=True, block_checksum=True, store_size=True
    )
    assert decompress(LZ4, linked) == TEXT


def test_snappy_is_written_with_xerial_framing_and_also_read_raw() -> None:
    framed = compress(SNAPPY, TEXT)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(SNAPPY, framed) == TEXT
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_zstd_frames_without_a_content_size_are_read() -> None:
    writer = zstandard.ZstdCompressor().compressobj()
    streamed = writer.compress(TEXT) + writer.flush()
    assert zstandard.frame_content_size(streamed) == -1
    assert decompress(ZSTD, streamed) == TEXT
    assert decompress(ZSTD, streamed + compress(ZSTD, b"more")) == TEXT + b"more"


def test_gzip_of_any_level_and_of_several_members_is_read() -> None:
    assert decompress(GZIP, gzip.compress(TEXT, 9)) == TEXT
    assert decompress(GZIP, gzip.compress(b"one, ") + gzip.compress(b"two")) == b"one, two"
    assert zlib.decompress(compress(GZIP, TEXT, 5), wbits=31) == TEXT


def test_gzip_members_are_bounded() -> None:
    with pytest.raises(CorruptBatch, match="more than 100 members"):
        decompress(GZIP, gzip.compress(b"") * 101)


@real_codecs
def test_data_that_is_cut_off_is_corrupt(codec: str) -> None:
    compressed = compress(codec, TEXT)
    for size in (0, 3, 10, len(compressed) // 2, len(compressed) - 1):
        with pytest.raises(CorruptBatch):
            decompress(codec, compressed[:size])


@real_codecs
def test_the_limit_is_exact(codec: str) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(InvalidBatch, match="more than") as caught:
        decompress(codec, compressed, len(TEXT) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def zstd_without_size(data: bytes) -> bytes:
    writer = zstandard.ZstdCompressor().compressobj()
    return writer.compress(data) + writer.flush()


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@pytest.mark.parametrize(
    ("codec", "make"),
    [
        (GZIP, gzip.compress),
        (SNAPPY, lambda data: compress(SNAPPY, data)),
        (SNAPPY, raw_snappy),
        (LZ4, lambda data: compress(LZ4, data)),
        (LZ4, lambda data: lz4.frame.compress(data, store_size=True)),
        (ZSTD, lambda data: compress(ZSTD, data)),
        (ZSTD, zstd_without_size),
    ],
)
def test_a_bomb_is_refused_before_it_fills_memory(
    codec: int, make: Callable[[bytes], bytes]
) -> None:
    bomb = make(bytes(64 * MEBIBYTE))
    tracemalloc.start()
    try:
        with pytest.raises(BatchError):
            decompress(codec, bomb, MEBIBYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MEBIBYTE


def test_sizes_that_are_only_claimed_allocate_nothing() -> None:
    hundred_megabytes = b"\x80\x80\x80\x32"
    with pytest.raises(CorruptBatch, match="cannot hold"):
        decompress(SNAPPY, hundred_megabytes + b"\x00a")
    claimed = bytearray(compress(ZSTD, bytes(100_000)))
    assert zstandard.frame_content_size(bytes(claimed)) == 100_000
    claimed[5:9] = (100_000_000).to_bytes(4, "little")
    with pytest.raises(CorruptBatch):
        decompress(ZSTD, claimed)


@given(st.sampled_from(NAMES), st.binary(max_size=400))
def test_random_bytes_only_ever_raise_batch_errors(codec: str, data: bytes) -> None:
    try:
        decompress(codec, data, MEBIBYTE)
    except BatchError:
        pass


@given(st.sampled_from(NAMES[1:]), st.data())
def test_damaged_data_only_ever_raises_batch_errors(codec: str, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, TEXT[:3_000]))
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decompress(codec, damaged, MEBIBYTE)
    except BatchError:
        pass


@real_codecs
def test_threads_may_share_a_codec(codec: str) -> None:
    texts = [TEXT[start:] for start in range(0, 40_000, 1_000)]
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda text: decompress(codec, compress(codec, text)), texts)
        assert list(results) == texts


def test_no_codec_is_imported_before_its_first_use() -> None:
    script = (
        "import sys; from ottla.wire.records import builder, compression, rewrite\n"
        "print([m for m in ('isal', 'cramjam', 'lz4', 'zstandard', 'numpy') if m in sys.modules])"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
