import subprocess
import sys

from ottla.wire.records.crc import crc32c


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
