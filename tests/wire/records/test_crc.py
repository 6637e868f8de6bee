import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.records.batch import HEADER_SIZE, stamp_producer
from ottla.wire.records.builder import build_batch
from ottla.wire.records.crc import combine, crc32c


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_any_buffer_is_taken_without_a_copy() -> None:
    data = bytearray(b"..123456789..")
    assert crc32c(memoryview(data)[2:11]) == 0xE3069283


def test_the_packages_slow_import_is_avoided() -> None:
    script = "import sys; from ottla.wire.records import crc; print('argparse' in sys.modules)"
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_checksum_of_two_pieces_follows_from_those_of_each(first: bytes, second: bytes) -> None:
    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


def test_checksums_of_large_pieces_combine() -> None:
    second = bytes(range(256)) * 4097
    assert combine(crc32c(b"header"), crc32c(second), len(second)) == crc32c(b"header" + second)


def test_a_batch_is_stamped_alike_with_and_without_the_checksum_of_its_records() -> None:
    whole = bytearray(build_batch([(b"key", b"value" * 50, (), 1), (None, b"more", (), 2)]))
    known = bytearray(whole)
    records_crc = crc32c(memoryview(known)[HEADER_SIZE:])
    stamp_producer(whole, 17, 2, 5, transactional=True)
    stamp_producer(known, 17, 2, 5, transactional=True, records_crc=records_crc)
    assert known == whole
