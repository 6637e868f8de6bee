from __future__ import annotations

from pathlib import Path

from ottla.broker.kraft_log import KraftMetadata, read_kraft_metadata
from ottla.storage.file import OsFileSystem
from ottla.wire.records.builder import build_batch


def topic_record(name: str) -> bytes:
    topic_id = name.encode().rjust(16, b"\1")
    return b"\1\2\0" + bytes([len(name) + 1]) + name.encode() + topic_id + b"\0"


def batch(first_offset: int, *names: str, control: bool = False) -> bytes:
    records = [(None, topic_record(name), (), 0) for name in names]
    return build_batch(records, base_offset=first_offset, control=control)


def write(home: Path, **files: bytes) -> KraftMetadata | None:
    directory = home / "__cluster_metadata-0"
    directory.mkdir(exist_ok=True)
    for stem, data in files.items():
        kind, _, rest = stem.partition("_")
        if kind == "log":
            path = directory / f"{int(rest):020d}.log"
        else:
            path = directory / f"{int(rest):020d}-0000000001.checkpoint"
        path.write_bytes(data)
    return read_kraft_metadata(OsFileSystem(10), [str(home)])


def names_in(metadata: KraftMetadata | None) -> list[str]:
    assert metadata is not None
    return sorted(topic.name for topic in metadata.image.topics.values())


def test_there_is_nothing_where_kafka_never_was(tmp_path: Path) -> None:
    assert read_kraft_metadata(OsFileSystem(10), [str(tmp_path), str(tmp_path / "no")]) is None


def test_the_log_is_read_from_its_beginning_without_a_snapshot(tmp_path: Path) -> None:
    found = write(tmp_path, log_0=batch(0, "a", "b"), log_2=batch(2, "c"))
    assert names_in(found) == ["a", "b", "c"]
    assert found is not None
    assert found.is_certain


def test_what_format_left_is_read_until_the_log_has_records(tmp_path: Path) -> None:
    """`kafka-storage format --add-scram` of Kafka writes users there."""
    (tmp_path / "bootstrap.checkpoint").write_bytes(batch(0, "first"))
    assert names_in(read_kraft_metadata(OsFileSystem(10), [str(tmp_path)])) == ["first"]
    found = write(tmp_path, snapshot_0=batch(0, "snap", control=True))
    assert names_in(found) == ["first"]
    assert found is not None
    assert found.is_certain
    found = write(tmp_path, snapshot_3=batch(0, "kept"))
    assert names_in(found) == ["kept"], "the first record may have been removed since"


def test_the_newest_snapshot_stands_for_what_came_before_it(tmp_path: Path) -> None:
    found = write(
        tmp_path,
        log_0=batch(0, "old", "older") + batch(2, "kept", "new"),
        snapshot_3=batch(0, "snap", control=True) + batch(1, "kept"),
        snapshot_1=batch(0, "ancient"),
    )
    assert names_in(found) == ["kept", "new"]
    assert found is not None
    assert found.is_certain


def test_a_batch_that_a_crash_cut_off_is_as_if_never_written(tmp_path: Path) -> None:
    found = write(tmp_path, log_0=batch(0, "a") + batch(1, "b")[:-3])
    assert names_in(found) == ["a"]
    assert found is not None
    assert found.is_certain


def test_damage_makes_the_image_uncertain(tmp_path: Path) -> None:
    damaged = bytearray(batch(0, "a") + batch(1, "b") + batch(2, "c"))
    damaged[len(batch(0, "a")) - 1] ^= 1
    found = write(tmp_path, log_0=bytes(damaged))
    assert found is not None
    assert not found.is_certain


def test_a_gap_behind_the_snapshot_makes_the_image_uncertain(tmp_path: Path) -> None:
    found = write(tmp_path, snapshot_1=batch(0, "a"), log_5=batch(5, "b"))
    assert names_in(found) == ["a", "b"]
    assert found is not None
    assert not found.is_certain


def test_a_damaged_snapshot_is_passed_over_for_an_older_one(tmp_path: Path) -> None:
    found = write(
        tmp_path,
        snapshot_1=batch(0, "a"),
        snapshot_2=batch(0, "x")[:-1],
        log_0=batch(0, "a") + batch(1, "b"),
    )
    assert names_in(found) == ["a", "b"]
    assert found is not None
    assert not found.is_certain
