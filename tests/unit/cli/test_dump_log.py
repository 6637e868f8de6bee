"""Tests that kafka-dump-log prints the same bytes as Apache Kafka's tool.

`compat/checks/our_dump_log.py` compares the two tools in more depth."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.base.errors import UserError
from ottla.cli.kafka_dump_log import kafka_dump_log
from ottla.storage.producer_state import BatchMetadata, ProducerEntry, ProducerState
from ottla.wire.records.builder import build_batch, end_txn_marker

LOG = "00000000000000000000.log"
GROUP_KEY = struct.pack(">hh", 2, 1) + b"g"


def batch(*values: bytes | None, base_offset: int = 0, **settings: object) -> bytes:
    records = [(b"k", value, [("h", b"1")], 1_000 + n) for n, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, leader_epoch=3, **settings)  # type: ignore[arg-type]


def dump(*arguments: str) -> Result:
    return CliRunner().invoke(
        kafka_dump_log, list(arguments), catch_exceptions=False, standalone_mode=False
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / LOG
    path.write_bytes(
        batch(b"one", None, compression="gzip", producer_id=7, producer_epoch=0, base_sequence=5)
        + end_txn_marker(7, 0, True, 4, 2_000, base_offset=2, leader_epoch=3)
    )
    return path


def crc_of(data: bytes, position: int = 0) -> int:
    return int(struct.unpack_from(">I", data, position + 17)[0])


def test_batches_are_printed_in_kafkas_words(log: Path) -> None:
    data = log.read_bytes()
    first = struct.unpack_from(">i", data, 8)[0] + 12
    assert dump("--files", str(log)).stdout.splitlines() == [
        f"Dumping {log}",
        "Log starting offset: 0",
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 5 lastSequence: 6 producerId: 7 "
        "producerEpoch: 0 partitionLeaderEpoch: 3 isTransactional: false isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1001 "
        f"size: {first} magic: 2 compresscodec: gzip crc: {crc_of(data)} isvalid: true",
        "baseOffset: 2 lastOffset: 2 count: 1 baseSequence: -1 lastSequence: -1 producerId: 7 "
        "producerEpoch: 0 partitionLeaderEpoch: 3 isTransactional: true isControl: true "
        f"deleteHorizonMs: OptionalLong.empty position: {first} CreateTime: 2000 "
        f"size: 78 magic: 2 compresscodec: none crc: {crc_of(data, first)} isvalid: true",
    ]


def test_records_are_printed_with_what_they_hold_if_asked(log: Path) -> None:
    records = [
        "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 3 sequence: 5 headerKeys: [h]",
        "| offset: 1 CreateTime: 1001 keySize: 1 valueSize: -1 sequence: 6 headerKeys: [h]",
        "| offset: 2 CreateTime: 2000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: COMMIT coordinatorEpoch: 4",
    ]
    deep = dump("--files", str(log), "--deep-iteration").stdout.splitlines()
    assert [line for line in deep if line.startswith("|")] == records
    printed = dump("--files", str(log), "--print-data-log").stdout.splitlines()
    assert [line for line in printed if line.startswith("|")] == [
        f"{records[0]} key: k payload: one",
        f"{records[1]} key: k",
        records[2],
    ]
    bare = dump("--files", str(log), "--print-data-log", "--skip-record-metadata")
    assert [line for line in bare.stdout.splitlines() if line.startswith("|")] == [
        "| key: k payload: one",
        "| key: k",
    ]


def test_with_json_each_line_is_an_object(log: Path) -> None:
    lines = dump("--files", str(log), "--print-data-log", "--json").stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    assert all(entry["file"] == str(log) for entry in entries)
    assert [entry["baseOffset"] for entry in entries if "baseOffset" in entry] == [0, 2]
    records = [entry["record"] for entry in entries if "record" in entry]
    assert [record["offset"] for record in records] == [0, 1, 2]
    assert (records[0]["key"], records[0]["payload"]) == ("k", "one")


def test_damage_is_reported_and_the_rest_is_read(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[61:65] = b"junk"
    log.write_bytes(data + b"\x00" * 30)
    found = dump("--files", str(log), "--deep-iteration")
    lines = found.stdout.splitlines()
    assert [line.rpartition(" ")[2] for line in lines if "isvalid" in line] == ["false", "true"]
    assert lines[-1] == f"Found 30 invalid bytes at the end of {LOG}"
    assert f"The records of the batch at position 0 of {log} cannot be read" in found.stderr
    assert found.return_value == 0


def test_gaps_between_records_are_reported(tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.write_bytes(batch(b"a") + batch(b"b", base_offset=5))
    found = dump("--files", str(path), "--deep-iteration").stderr
    assert found == f"Non-consecutive offsets in {path}\n  0 is followed by 5\n"


def test_only_so_many_bytes_are_read_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / LOG
    first = batch(b"a")
    path.write_bytes(first + batch(b"b", base_offset=1))
    found = dump("--files", str(path), "--max-bytes", str(len(first) + 10)).stdout
    assert (found.count("baseOffset"), "invalid bytes" in found) == (1, False)


def test_an_index_is_held_against_its_log(tmp_path: Path) -> None:
    first = batch(b"a")
    (tmp_path / LOG).write_bytes(first + batch(b"b", base_offset=1))
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">4i", 1, len(first), 2, len(first)) + bytes(16))
    found = dump("--files", str(index))
    assert found.stdout.splitlines()[1:] == [
        f"offset: 1 position: {len(first)}",
        f"offset: 2 position: {len(first)}",
    ]
    assert found.stderr == f"Mismatches in :{index}\n  Index offset: 2, log offset: 1\n"
    assert dump("--files", str(index), "--verify-index-only").stdout == f"Dumping {index}\n"


def test_an_index_of_a_killed_broker_ends_where_its_zeros_begin(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(b"")
    for kind in ("index", "timeindex"):
        index = tmp_path / f"00000000000000000000.{kind}"
        index.write_bytes(bytes(24_000))
        found = dump("--files", str(index))
        assert (found.stderr, "offset" in found.stdout) == ("", False)


def test_a_time_index_is_held_against_its_log(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(batch(b"a", b"b") + batch(b"c", base_offset=2))
    index = tmp_path / "00000000000000000000.timeindex"
    entries = ((1_001, 1), (1_001, 2), (1_003, 9))
    index.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
    found = dump("--files", str(index))
    assert found.stdout.splitlines()[1] == "timestamp: 1001 offset: 1"
    assert found.stderr.splitlines() == [
        f"Found timestamp mismatch in :{index}",
        "  Index timestamp: 1001, log timestamp: 1000",
        f"Found out of order timestamp in :{index}",
        "  Index timestamp: 1001, Previously indexed timestamp: 1001",
        f"The following indexed offsets are not found in the log {index}.",
        "  Indexed offset: 9, found log offset: -1",
    ]


def test_a_torn_index_fails_the_check_that_brokers_make(tmp_path: Path) -> None:
    good, torn = tmp_path / "00000000000000000005.index", tmp_path / "00000000000000000009.index"
    good.write_bytes(struct.pack(">2i", 1, 99))
    torn.write_bytes(b"123")
    found = dump("--files", f"{good},{torn}", "--index-sanity-check")
    assert f"{good} passed sanity check." in found.stdout
    assert f"Index file {torn} is corrupt, found 3 bytes" in found.stderr
    assert found.return_value == 1


def test_aborted_transactions_and_producers_are_printed(tmp_path: Path) -> None:
    aborted = tmp_path / "00000000000000000000.txnindex"
    aborted.write_bytes(struct.pack(">hqqqq", 0, 5, 12, 22, 17))
    state = ProducerState()
    producer = ProducerEntry(8, 0, last_timestamp=99, txn_first_offset=72)
    producer.batches.append(BatchMetadata(19, 91, 19, 99))
    state.producers[8] = producer
    snapshot = tmp_path / "00000000000000000092.snapshot"
    snapshot.write_bytes(state.encode())
    assert dump("--files", f"{aborted},{snapshot}").stdout.splitlines()[1::2] == [
        "version: 0 producerId: 5 firstOffset: 12 lastOffset: 22 lastStableOffset: 17",
        "producerId: 8 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: "
        "OptionalLong[72] lastTimestamp: 99 firstSequence: 0 lastSequence: 19 lastOffset: 91 "
        "offsetDelta: 19 timestamp: 99",
    ]


def test_one_bad_file_does_not_hide_the_others(log: Path, tmp_path: Path) -> None:
    missing, foreign = tmp_path / "00000000000000000007.log", tmp_path / "meta.properties"
    found = dump("--files", f"{missing},{foreign},{log}")
    assert found.stderr.splitlines() == [
        f"Cannot read {missing}: no such file or directory.",
        f"Ignoring unknown file {foreign}",
    ]
    assert found.stdout.count("baseOffset") == 2
    assert found.return_value == 1


def test_records_of_groups_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / LOG
    value = struct.pack(">hhiBB", 3, 0, 0, 0xFF, 0xFF) + b"\xff\xff" + struct.pack(">qi", 9, 0)
    path.write_bytes(
        build_batch(
            [
                (GROUP_KEY, value, (), 1),
                (GROUP_KEY, None, (), 1),
                (struct.pack(">h", 99), b"", (), 1),
                (GROUP_KEY, b"\x00\x03\x00\x09", (), 1),
            ]
        )
    )
    lines = dump("--files", str(path), "--offsets-decoder").stdout.splitlines()
    shown = [line.partition("headerKeys: [] ")[2] for line in lines if line.startswith("|")]
    assert shown == [
        'key: {"type":"2","data":{"group":"g"}} payload: {"version":"3","data":{"protocolType":"",'
        '"generation":0,"protocol":null,"leader":null,"currentStateTimestamp":9,"members":[]}}',
        'key: {"type":"2","data":{"group":"g"}} payload: <DELETE>',
        "key: Unknown record type 99 at offset 2, skipping.",
        "key: Error at offset 3, skipping. a field claims 9 bytes, but only 0 bytes remain",
    ]


def test_decoders_of_java_are_known_by_name_and_others_refused(log: Path) -> None:
    number = "org.apache.kafka.tools.api.IntegerDecoder"
    found = dump("--files", str(log), "--value-decoder-class", number).stdout
    assert f"payload: {int.from_bytes(b'one', 'big')}" in found
    with pytest.raises(UserError, match="Ottla cannot load Java classes"):
        dump("--files", str(log), "--value-decoder-class", "com.example.Decoder")
    with pytest.raises(UserError, match="tiered storage"):
        dump("--files", str(log), "--remote-log-metadata-decoder")
    with pytest.raises(
        UserError, match="--offsets-decoder and --transaction-log-decoder cannot be combined"
    ):
        dump("--files", str(log), "--offsets-decoder", "--transaction-log-decoder")
