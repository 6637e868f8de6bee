"""Checks of kafka-dump-log on the files of our broker."""

from __future__ import annotations

import re
import shutil
import threading
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from compat.checks.tools import ADD_PARTITIONS_TO_TXN, JOIN_GROUP, offered_apis
from compat.contents import TopicContents, read_contents
from compat.dump_log import EVERYTHING, INDEXES, Dump, dump, files_in
from compat.java import Java
from compat.load import COMMITTED_OFFSET, CONSUMER_GROUP, GROUP, MEMBERS_GROUP, Load
from compat.report import Skipped
from ottla.testing.broker import HOST, BrokerProcess

COMPACTED = ("compacted", "recreated", "__consumer_offsets", "__transaction_state")
OVERRIDES = {
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.message.timestamp.before.max.ms": "9223372036854775807",
}
UNDER_LOAD_S = 0.5


@dataclass
class WrittenFiles:
    """Files of our broker: after a kill, and after it had recovered and stopped."""

    java: Java
    killed: Path
    stopped: Path
    contents: dict[str, TopicContents]

    @cached_property
    def dump_of_stopped(self) -> Dump:
        files = files_in(self.stopped, EVERYTHING)
        return dump(self.java, files, "--deep-iteration", "--print-data-log")


def write_files(java: Java, scratch: Path) -> WrittenFiles:
    stopped, killed = scratch / "stopped", scratch / "killed"
    with BrokerProcess(stopped, overrides=OVERRIDES) as broker:
        bootstrap = f"{HOST}:{broker.port}"
        apis = offered_apis(java, bootstrap)
        has_transactions = ADD_PARTITIONS_TO_TXN in apis
        load = Load(bootstrap, transactions=has_transactions, groups=JOIN_GROUP in apis)
        load.fill()
        writing = threading.Thread(target=load.write_until_gone)
        writing.start()
        writing.join(UNDER_LOAD_S)
        broker.kill()
        writing.join()
        shutil.copytree(stopped, killed)
        broker.start()
        contents = read_contents(bootstrap)
        load.write_more()
    return WrittenFiles(java, killed, stopped, contents)


def reads_every_segment(files: WrittenFiles) -> None:
    """kafka-dump-log --deep-iteration reads every record of every segment."""
    dumped = files.dump_of_stopped
    assert not dumped.problems(compacted=COMPACTED), dumped.problems(compacted=COMPACTED)
    counted: Counter[str] = Counter()
    for batch in dumped.batches():
        counted[batch.path.parent.name] += batch.record_count
    assert sum(counted.values()) == dumped.record_count() > 10_000
    for topic in ("codecs", "append-time", "segments"):
        for index, partition in files.contents[topic].partitions.items():
            name = f"{topic}-{index}"
            assert counted[name] >= len(partition.records), (name, counted[name])


def segments_were_rolled_compacted_and_deleted(files: WrittenFiles) -> None:
    """The logs were rolled, compacted, trimmed and shortened by retention."""
    logs = Counter(path.parent.name for path in files_in(files.stopped, [".log"]))
    assert logs["segments-0"] >= 4, logs
    contents = {name: topic.partitions[0] for name, topic in files.contents.items()}
    assert len(contents["compacted"].records) < 1_500
    assert contents["trimmed"].start_offset == 77
    assert contents["expiring"].start_offset > 0


def indexes_agree(files: WrittenFiles) -> None:
    """kafka-dump-log finds that offset and time indexes agree with their logs."""
    indexes = files_in(files.stopped, INDEXES)
    assert len(indexes) >= 10, indexes
    dumped = dump(files.java, indexes, "--verify-index-only")
    assert not dumped.problems(), dumped.problems()
    printed = dump(files.java, indexes)
    entries = [line for line in printed.text.splitlines() if line.startswith("offset: ")]
    assert len(entries) > 100, len(entries)


def indexes_are_sane(files: WrittenFiles) -> None:
    """kafka-dump-log --index-sanity-check passes every index."""
    indexes = files_in(files.stopped, INDEXES)
    dumped = dump(files.java, indexes, "--index-sanity-check")
    passed = dumped.text.count(" passed sanity check.")
    empty = dumped.text.count(" is empty.")
    assert passed + empty == len(indexes), dumped.text
    assert passed > empty, dumped.text


def snapshots_are_read(files: WrittenFiles) -> None:
    """kafka-dump-log reads producer snapshots."""
    snapshots = files_in(files.stopped, [".snapshot"])
    assert snapshots
    dumped = dump(files.java, snapshots)
    assert not dumped.problems(), dumped.problems()
    rows = [line for line in dumped.text.splitlines() if line.startswith("producerId: ")]
    assert len(rows) >= 5, dumped.text


def group_records_are_decoded(files: WrittenFiles) -> None:
    """kafka-dump-log --offsets-decoder reads the committed offsets and the members of groups."""
    logs = [
        path
        for path in files_in(files.stopped, [".log"])
        if path.parent.name.startswith("__consumer_offsets-")
    ]
    if not logs:
        raise Skipped("needs consumer groups")
    text = dump(files.java, logs, "--offsets-decoder").text
    committed = f'{{"group":"{GROUP}","topic":"codecs","partition":0}}'
    assert re.search(re.escape(committed) + rf'.*"offset":{COMMITTED_OFFSET}\b', text), text
    assert re.search(rf'"group":"{MEMBERS_GROUP}"}}.*"members":\[{{"memberId":"', text), text
    for kind, field in ((3, "epoch"), (5, "subscribedTopicNames"), (7, "topicPartitions"), (8, "")):
        key = rf'"type":"{kind}","data":{{"groupId":"{CONSUMER_GROUP}"'
        assert re.search(rf"{key}.*{field}", text), (kind, text)


def transaction_records_are_decoded(files: WrittenFiles) -> None:
    """kafka-dump-log --transaction-log-decoder reads the states of transactions."""
    logs = [
        path
        for path in files_in(files.stopped, [".log"])
        if path.parent.name.startswith("__transaction_state-")
    ]
    if not logs:
        raise Skipped("needs transactions")
    dumped = dump(files.java, logs, "--transaction-log-decoder")
    assert not dumped.problems(compacted=COMPACTED), dumped.problems(compacted=COMPACTED)
    for state in range(6):
        pattern = rf'"transactionalId":"writer-\d"}}}} payload: .*"transactionStatus":{state},'
        assert re.search(pattern, dumped.text), f"state {state} is not in {dumped.text[-2000:]}"


def aborted_transactions_are_read(files: WrittenFiles) -> None:
    """kafka-dump-log reads the indexes of aborted transactions."""
    indexes = files_in(files.stopped, [".txnindex"])
    if not indexes:
        raise Skipped("needs transactions")
    dumped = dump(files.java, indexes)
    assert not dumped.problems(), dumped.problems()
    assert re.search(r"version: 0 producerId: \d+ firstOffset: \d+ lastOffset: \d+", dumped.text)


def a_killed_broker_leaves_good_files(files: WrittenFiles) -> None:
    """The files that kill -9 leaves are valid up to the interrupted write."""
    left = files_in(files.killed, EVERYTHING)
    dumped = dump(files.java, left, "--deep-iteration")
    problems = [
        line
        for line in dumped.problems(compacted=COMPACTED)
        if "invalid bytes at the end" not in line
    ]
    assert not problems, problems
    assert sum(batch.record_count for batch in dumped.batches()) > 10_000


def damage_is_seen(files: WrittenFiles) -> None:
    """kafka-dump-log reports damage, so its silence is meaningful."""
    source = files.stopped / "segments-0"
    damaged = files.stopped.parent / "damaged" / "segments-0"
    shutil.copytree(source, damaged)
    try:
        for suffix, position in ((".index", 3), (".timeindex", 11), (".log", 5_000)):
            path = next(iter(sorted(damaged.glob(f"*{suffix}"))))
            data = bytearray(path.read_bytes())
            data[position] ^= 0x15
            path.write_bytes(data)
        problems = dump(files.java, files_in(damaged.parent, EVERYTHING)).problems()
    finally:
        shutil.rmtree(damaged.parent)
    text = "\n".join(problems)
    assert "Mismatches in :" in text, text
    assert "not found in" in text or "timestamp" in text, text
    assert "isvalid: false" in text, text


CHECKS = [
    reads_every_segment,
    segments_were_rolled_compacted_and_deleted,
    indexes_agree,
    indexes_are_sane,
    snapshots_are_read,
    group_records_are_decoded,
    transaction_records_are_decoded,
    aborted_transactions_are_read,
    a_killed_broker_leaves_good_files,
    damage_is_seen,
]
