"""A full disk: the broker rejects writes, serves reads, and recovers once there is space.

There are two ways to run out of space: a small file system, which needs a privilege to mount,
and a limit on the size of the process's files, which does not."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.raw_client import Api, RawClient, eventually, values

from ottla.testing.broker import BrokerProcess

KAFKA_STORAGE_ERROR = 56
EXISTS = 36
DISK_BYTES = 24 << 20
RECORD = bytes(200_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}"]
    try:
        mounted = subprocess.run(
            ["mount", *options, "tmpfs", str(disk)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted without the privilege")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(client: RawClient, topic: str) -> int:
    """Produce until the broker rejects a record, and return the number of accepted records."""
    for count in range(DISK_BYTES // len(RECORD) + 50):
        answer = client.produce(topic, [(b"%d" % count, RECORD, (), 1)])
        if answer.error_code:
            assert answer.error_code == KAFKA_STORAGE_ERROR, answer
            assert answer.error_message
            return count
    pytest.fail("the disk did not get full")


def take_all_room(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def assert_is_readable(client: RawClient, topic: str, count: int) -> None:
    records = client.records(topic)
    assert [record.key for record in records] == [b"%d" % number for number in range(count)]
    assert all(record.value == RECORD for record in records)


def test_a_full_disk_refuses_writes_until_there_is_room(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(12 << 20))
    with BrokerProcess(small_disk / "data") as broker:
        with RawClient(broker.port) as client:
            client.create_topic("t")
            client.create_topic("other")
            client.produce("other", [(None, b"before", (), 1)])
            count = fill(client, "t")
            assert count > 10
            assert_is_readable(client, "t", count)
            assert client.offsets("t") == (0, count)
            assert client.produce("t", [(None, RECORD, (), 1)]).error_code == KAFKA_STORAGE_ERROR
            assert values(client.records("other")) == [b"before"]

            filler.unlink()
            answer = client.produce("t", [(b"%d" % count, RECORD, (), 1)])
            assert (answer.error_code, answer.base_offset) == (0, count)
            client.create_topic("after")
            assert client.produce("after", [(None, b"v", (), 1)]).error_code == 0
        broker.restart(kill=True)
        with RawClient(broker.port) as client:
            assert_is_readable(client, "t", count + 1)


def test_topics_on_a_full_disk_are_refused_or_wait_for_room(small_disk: Path) -> None:
    with BrokerProcess(small_disk / "data") as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        filler = small_disk / "filler"
        take_all_room(filler)
        codes = {name: create(client, name, partitions=20) for name in ("a", "b", "c", "d")}
        for name, code in codes.items():
            if code == 0:
                assert client.produce(name, [(None, b"v", (), 1)]).error_code == KAFKA_STORAGE_ERROR
        assert client.offsets("t") == (0, 0)
        filler.unlink()
        for name in codes:
            eventually(partial(create, client, name, 20), lambda code: code in (0, EXISTS))
            eventually(partial(try_produce, client, name), lambda code: code == 0)


def create(client: RawClient, name: str, partitions: int) -> int:
    new = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    answer = client.call(Api.CREATE_TOPICS, topics=[new], timeout_ms=5_000)
    code: int = answer.topics[0].error_code
    return code


def try_produce(client: RawClient, name: str) -> int:
    code: int = client.produce(name, [(None, b"v", (), 1)]).error_code
    return code


def test_a_file_that_cannot_grow_refuses_writes_until_it_can() -> None:
    with BrokerProcess() as broker:
        with RawClient(broker.port) as client:
            client.create_topic("t")
            client.create_topic("other")
            limit_files(broker, 1_500_000)
            count = fill(client, "t")
            assert 5 <= count <= 7
            assert_is_readable(client, "t", count)
            assert client.produce("other", [(None, b"small", (), 1)]).error_code == 0
            assert client.produce("t", [(None, b"small", (), 1)]).error_code == 0
            limit_files(broker, resource.RLIM_INFINITY)
            answer = client.produce("t", [(b"last", RECORD, (), 1)])
            assert (answer.error_code, answer.base_offset) == (0, count + 1)
        broker.restart(kill=True)
        with RawClient(broker.port) as client:
            assert values(client.records("t")) == [RECORD] * count + [b"small", RECORD]


def limit_files(broker: BrokerProcess, size: int) -> None:
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
