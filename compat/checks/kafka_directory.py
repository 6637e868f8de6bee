"""Migration of a data directory from Apache Kafka to our broker, and back."""

from __future__ import annotations

import hashlib
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, ScramMechanism

from compat.apache_kafka import ApacheKafka
from compat.checks.files import COMPACTED
from compat.checks.tools import JOIN_GROUP, offered_apis
from compat.contents import TopicContents, broker_configs, differences, read_contents, read_records
from compat.dump_log import EVERYTHING, dump, files_in
from compat.java import Java
from compat.load import COMMITTED_OFFSET, GROUP, USER, USER_ITERATIONS, Load
from compat.report import Skipped
from ottla.testing.broker import HOST, BrokerProcess

NODE_ID = 7
MORE_PER_PARTITION = 25
TIMEOUT_S = 20.0
OUR_METADATA = "ottla-metadata"


@dataclass
class AdoptedDirectory:
    """Data directory of Kafka, a copy of it for our broker, and the contents that Kafka served."""

    java: Java
    how_left: str
    original: Path
    copy: Path
    kafka: ApacheKafka
    """Broker to which the copy can be returned."""
    contents: dict[str, TopicContents]
    broker: BrokerProcess = field(init=False)

    def __post_init__(self) -> None:
        self.broker = BrokerProcess(self.copy)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.broker.port}"


def write_directories(java: Java, scratch: Path) -> list[AdoptedDirectory]:
    """Return directories as left by a clean shutdown and by a kill."""
    kafka = ApacheKafka(java, scratch / "source", node_id=NODE_ID)
    kafka.start()
    try:
        load = Load(kafka.bootstrap, transactions=True, groups=True)
        load.fill()
        contents = read_contents(kafka.bootstrap)
        kafka.stop()
        stopped = _copied(java, kafka, scratch, "clean", contents)
        kafka.start()
        load.leave_transaction_open()
        contents = read_contents(kafka.bootstrap)
        kafka.kill()
        killed = _copied(java, kafka, scratch, "killed", contents)
    except BaseException:
        kafka.end()
        raise
    return [stopped, killed]


def _copied(
    java: Java, kafka: ApacheKafka, scratch: Path, how_left: str, contents: dict[str, TopicContents]
) -> AdoptedDirectory:
    """Copy Kafka's directory twice: unchanged for comparison, and for our broker."""
    home = scratch / f"left-{how_left}"
    shutil.copytree(kafka.data_dir, home / "original")
    shutil.copytree(kafka.data_dir, home / "data")
    again = ApacheKafka(java, home, node_id=NODE_ID)
    return AdoptedDirectory(java, how_left, home / "original", again.data_dir, again, contents)


# --------------------------------------------------------------------------------------- checks


def opens(taken: AdoptedDirectory) -> None:
    """Our broker starts on it and serves every topic, config, offset and record as Kafka did."""
    taken.broker.start()
    found = differences(taken.contents, read_contents(taken.bootstrap))
    assert not found, "\n".join(found)
    assert "FAILED" not in taken.broker.log()


def aborted_records_are_hidden(taken: AdoptedDirectory) -> None:
    """Consumers with read_committed see no record of aborted or open transactions."""
    partitions = read_records(
        taken.bootstrap, [("transactions", 0), ("transactions", 1)], "read_committed"
    )
    values = [record.value or b"" for records in partitions.values() for record in records]
    assert len(values) == 60, len(values)
    assert all(value.startswith(b"commit-") for value in values), values


def a_transaction_left_open_can_be_ended(taken: AdoptedDirectory) -> None:
    """Kafka's transactional IDs are known, and an open transaction can be ended.

    Its producer initializes again, which aborts the transaction. Consumers with read_committed can
    then read past it.
    """
    producer = Producer({"bootstrap.servers": taken.bootstrap, "transactional.id": "left-open"})
    producer.init_transactions(TIMEOUT_S)
    partition = TopicPartition("transactions", 0)
    admin = AdminClient({"bootstrap.servers": taken.bootstrap})
    ends = [
        admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)[partition]
        .result(TIMEOUT_S)
        .offset
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    ]
    assert ends[0] == ends[1], ends


def identity_is_kept(taken: AdoptedDirectory) -> None:
    """The cluster ID, the broker's ID and its own configs are Kafka's."""
    meta = (taken.original / "meta.properties").read_text().split()
    cluster = AdminClient({"bootstrap.servers": taken.bootstrap}).list_topics(timeout=TIMEOUT_S)
    assert f"cluster.id={cluster.cluster_id}" in meta, (cluster.cluster_id, meta)
    assert list(cluster.brokers) == [NODE_ID], cluster.brokers
    configs = broker_configs(taken.bootstrap, NODE_ID)
    assert configs["log.retention.ms"] == "987654321", configs


def users_are_kept(taken: AdoptedDirectory) -> None:
    """The users of Kafka exist with their SCRAM credentials."""
    admin = AdminClient({"bootstrap.servers": taken.bootstrap})
    found = admin.describe_user_scram_credentials([USER])[USER].result(TIMEOUT_S)
    (info,) = found.scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_512, USER_ITERATIONS)


def group_offsets_are_kept(taken: AdoptedDirectory) -> None:
    """A group resumes from the offsets that it committed to Kafka."""
    if JOIN_GROUP not in offered_apis(taken.java, taken.bootstrap):
        raise Skipped("needs consumer groups")
    consumer = Consumer({"bootstrap.servers": taken.bootstrap, "group.id": GROUP})
    try:
        (committed,) = consumer.committed([TopicPartition("codecs", 0)], TIMEOUT_S)
    finally:
        consumer.close()
    assert committed.error is None, committed.error
    assert committed.offset == COMMITTED_OFFSET, committed


def writing_goes_on(taken: AdoptedDirectory) -> None:
    """New records get the next offsets, and producers get IDs that were never used."""
    partitions = taken.contents["codecs"].partitions
    producer = Producer({"bootstrap.servers": taken.bootstrap, "enable.idempotence": True})
    offsets: dict[int, list[int]] = {index: [] for index in partitions}

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        offsets[partition].append(offset)

    for number in range(MORE_PER_PARTITION):
        for index in partitions:
            producer.produce("codecs", f"new-{number}", partition=index, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    for index, partition in partitions.items():
        end = partition.end_offset
        assert offsets[index] == list(range(end, end + MORE_PER_PARTITION)), offsets[index]


def bytes_are_kept(taken: AdoptedDirectory) -> None:
    """Every segment of Kafka still begins with the bytes that Kafka wrote."""
    taken.broker.stop()
    kept = 0
    for before in files_in(taken.original, [".log"]):
        after = taken.copy / before.relative_to(taken.original)
        if before.parent.name.startswith(("compacted-", "expiring-")):
            continue  # compaction and retention go on in these
        old = before.read_bytes()
        assert _digest(after.read_bytes()[: len(old)]) == _digest(old), before
        kept += len(old)
    assert kept > 4_000_000, kept


def files_are_good(taken: AdoptedDirectory) -> None:
    """kafka-dump-log finds nothing wrong in the directory after our broker used it."""
    files = files_in(taken.copy, EVERYTHING)
    assert any(path.suffix == ".txnindex" for path in files), files
    dumped = dump(taken.java, files, "--deep-iteration", "--print-data-log")
    problems = dumped.problems(compacted=COMPACTED)
    assert not problems, problems
    ids = {
        is_new: {
            batch.producer_id
            for batch in dumped.batches()
            if batch.path.parent.name == "codecs-0" and batch.producer_id >= 0
            if (batch.base_offset >= taken.contents["codecs"].partitions[0].end_offset) == is_new
        }
        for is_new in (False, True)
    }
    assert ids[False], ids
    assert ids[True], ids
    assert min(ids[True]) > max(ids[False]), ids


def goes_back(taken: AdoptedDirectory) -> None:
    """Apache Kafka opens it again, without our metadata, and serves what we served."""
    taken.broker.start()
    ours = read_contents(taken.bootstrap)
    taken.broker.stop()
    (taken.copy / OUR_METADATA).rename(taken.copy.parent / OUR_METADATA)
    with taken.kafka as kafka:
        found = differences(ours, read_contents(kafka.bootstrap))
        # Kafka's coordinator aborts the transaction that was left open, which adds a marker.
        found = [each for each in found if not each.startswith("transactions-0: offsets")]
        assert not found, "\n".join(found)
        assert "orrupt" not in kafka.log(), kafka.log()


def starts_with_kafkas_properties(taken: AdoptedDirectory) -> None:
    """Our kafka-server-start accepts the server.properties that Kafka ran with."""
    own = ApacheKafka(taken.java, taken.copy.parent / "own", node_id=NODE_ID)
    shutil.copytree(taken.original, own.data_dir)
    with KafkaServerStart(own.write_properties()) as broker:
        assert broker.port == own.port
        topics = AdminClient({"bootstrap.servers": own.bootstrap}).list_topics(timeout=TIMEOUT_S)
        assert taken.contents.keys() <= topics.topics.keys(), topics.topics
        assert broker.stop() == 0
        assert "ERROR" not in broker.log(), broker.log()


class KafkaServerStart(BrokerProcess):
    """Our broker, started by kafka-server-start."""

    def __init__(self, properties: Path) -> None:
        super().__init__()
        self._properties = properties

    def command(self) -> list[str]:
        start = "from ottla.cli.kafka_server_start import main; main()"
        return [sys.executable, "-c", start, str(self._properties)]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


CHECKS = [
    opens,
    aborted_records_are_hidden,
    a_transaction_left_open_can_be_ended,
    identity_is_kept,
    users_are_kept,
    group_offsets_are_kept,
    writing_goes_on,
    bytes_are_kept,
    files_are_good,
    goes_back,
    starts_with_kafkas_properties,
]
