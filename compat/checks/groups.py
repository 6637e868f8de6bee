"""Java's consumers with the consumer protocol (KIP-848), alone and beside classic members."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from compat.checks.tools import Tools
from compat.java import QUIET, TIMEOUT_S, TOOLS
from compat.report import Skipped

CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_PROTOCOL = ("--command-property", "group.protocol=consumer")
POLL_S = 0.1


def require_consumer_protocol(tools: Tools) -> None:
    if CONSUMER_GROUP_HEARTBEAT not in tools.apis:
        raise Skipped("needs the consumer protocol")


def a_console_consumer_reads_in_a_group(tools: Tools) -> None:
    """kafka-console-consumer reads with group.protocol=consumer and resumes from its offsets."""
    require_consumer_protocol(tools)
    name, group = tools.new_topic(3), "compat-848-console"
    tools.fill(name, 100)
    read = (
        *("kafka-console-consumer", "--topic", name, "--group", group),
        *("--command-property", "auto.offset.reset=earliest", *CONSUMER_PROTOCOL),
    )
    assert len(tools.succeed(*read, "--max-messages", "60").lines) == 60
    assert len(tools.succeed(*read, "--max-messages", "40").lines) == 40
    described = tools.succeed("kafka-consumer-groups", "--describe", "--group", group)
    rows = [line.split() for line in described.lines if line.startswith(group)]
    assert sorted(row[2] for row in rows) == ["0", "1", "2"], described.all
    assert {row[5] for row in rows} == {"0"}, described.all
    listed = tools.succeed("kafka-consumer-groups", "--list", "--type", "consumer").out
    assert [group, "Consumer"] in [line.split() for line in listed.splitlines()], listed
    assert group not in tools.succeed("kafka-consumer-groups", "--list", "--type", "classic").out


def a_group_with_members_is_described(tools: Tools) -> None:
    """kafka-consumer-groups describes the state, members and partitions of a consumer group."""
    require_consumer_protocol(tools)
    name, group = tools.new_topic(4), "compat-848-described"
    with verifiable_consumers(tools, name, group, 2) as consumers:
        wait_for(lambda: [len(each.owned) for each in consumers] == [2, 2])
        state = tools.succeed("kafka-consumer-groups", "--describe", "--state", "--group", group)
        row = next(line.split() for line in state.lines if line.startswith(group))
        assert row[-3:] == ["uniform", "Stable", "2"], state.all
        members = tools.succeed(
            *("kafka-consumer-groups", "--describe", "--members", "--verbose", "--group", group)
        )
        assert sum(line.startswith(group) for line in members.lines) == 2, members.all
        refused = tools.run("kafka-consumer-groups", "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused.all, refused.all
    deleted = tools.succeed("kafka-consumer-groups", "--delete", "--group", group)
    assert "successful" in deleted.all, deleted.all


def consumers_share_and_take_over(tools: Tools) -> None:
    """kafka-verifiable-consumer: two share a topic with the consumer protocol; one takes over."""
    require_consumer_protocol(tools)
    name, group = tools.new_topic(4), "compat-848-shared"
    with verifiable_consumers(tools, name, group, 2) as (first, second):
        wait_for(lambda: len(first.owned) == len(second.owned) == 2)
        assert not first.owned & second.owned, (first.owned, second.owned)
        tools.fill(name, 200)
        wait_for(lambda: first.consumed + second.consumed == 200)
        second.stop()
        wait_for(lambda: len(first.owned) == 4)
        tools.fill(name, 100)
        wait_for(lambda: first.consumed + second.consumed == 300)


def a_classic_group_moves_to_the_consumer_protocol_and_back(tools: Tools) -> None:
    """A live classic group of librdkafka accepts a Java consumer of the consumer protocol."""
    require_consumer_protocol(tools)
    name, group = tools.new_topic(4), "compat-848-migrated"
    owned: set[int] = set()

    def is_assigned(_: object, partitions: list[TopicPartition]) -> None:
        owned.update(each.partition for each in partitions)

    def is_revoked(_: object, partitions: list[TopicPartition]) -> None:
        owned.difference_update(each.partition for each in partitions)

    config = {"bootstrap.servers": tools.bootstrap, "group.id": group}
    classic = Consumer({**config, "auto.offset.reset": "earliest"})
    classic.subscribe([name], on_assign=is_assigned, on_revoke=is_revoked)

    def share(*sizes: int) -> Callable[[], bool]:
        def is_shared() -> bool:
            classic.poll(POLL_S)
            return (len(owned), *(len(each.owned) for each in javas)) == sizes

        return is_shared

    javas: list[VerifiableConsumer] = []
    try:
        wait_for(share(4))
        with verifiable_consumers(tools, name, group, 1) as javas:
            wait_for(share(2, 2))
            assert not owned & javas[0].owned, (owned, javas[0].owned)
            assert group_type(tools, group) == "consumer"
        javas = []
        wait_for(share(4))
        assert group_type(tools, group) == "classic"
    finally:
        classic.close()


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < give_up, "the condition was not met in time"
        time.sleep(POLL_S)


def group_type(tools: Tools, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": tools.bootstrap, "log_level": 2})
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    return next(each.type.name.lower() for each in listed if each.group_id == group)


class VerifiableConsumer:
    """Process of kafka-verifiable-consumer, which reports its actions as JSON lines."""

    def __init__(self, tools: Tools, topic: str, group: str) -> None:
        self._owned: set[int] = set()
        self._consumed = 0
        self._output = tools.scratch / f"verifiable-{time.monotonic_ns()}"
        self._position = 0
        with self._output.open("wb") as out:
            self._process = subprocess.Popen(
                [
                    *tools.java.arguments(TOOLS["kafka-verifiable-consumer"], *QUIET),
                    *tools.where,
                    *("--topic", topic, "--group-id", group, "--group-protocol", "consumer"),
                    *("--reset-policy", "earliest"),
                ],
                stdout=out,
            )

    @property
    def owned(self) -> set[int]:
        self._read()
        return self._owned

    @property
    def consumed(self) -> int:
        self._read()
        return self._consumed

    def _read(self) -> None:
        with self._output.open() as file:
            file.seek(self._position)
            while (line := file.readline()).endswith("\n"):
                self._position = file.tell()
                self._apply_event(json.loads(line))

    def _apply_event(self, event: dict[str, object]) -> None:
        partitions = event.get("partitions")
        if event["name"] == "partitions_assigned":
            assert isinstance(partitions, list)
            self._owned |= {each["partition"] for each in partitions}
        elif event["name"] == "partitions_revoked":
            assert isinstance(partitions, list)
            self._owned -= {each["partition"] for each in partitions}
        elif event["name"] == "records_consumed":
            assert isinstance(event["count"], int)
            self._consumed += event["count"]

    def stop(self) -> None:
        """Leave the group and end the process."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(TIMEOUT_S)


@contextmanager
def verifiable_consumers(
    tools: Tools, topic: str, group: str, count: int
) -> Iterator[list[VerifiableConsumer]]:
    consumers = [VerifiableConsumer(tools, topic, group) for _ in range(count)]
    try:
        yield consumers
    finally:
        for each in consumers:
            each.stop()


CHECKS = [
    a_console_consumer_reads_in_a_group,
    a_group_with_members_is_described,
    consumers_share_and_take_over,
    a_classic_group_moves_to_the_consumer_protocol_and_back,
]
