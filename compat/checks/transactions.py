"""Transactions with Java's producer (version 2 of the protocol), and kafka-transactions."""

from __future__ import annotations

import json
import re
import time
import uuid

from confluent_kafka import Producer

from compat.checks.tools import ADD_PARTITIONS_TO_TXN, Tools
from compat.java import TIMEOUT_S
from compat.report import Skipped

COPIER = "transactional-message-copier"
RECORDS = 600


def _require_transactions(tools: Tools) -> None:
    tools.require_groups()
    if ADD_PARTITIONS_TO_TXN not in tools.apis:
        raise Skipped("needs transactions")


def _read(tools: Tools, topic: str, count: int, isolation: str) -> list[str]:
    return tools.succeed(
        "kafka-console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(count), "--timeout-ms", "10000", "--isolation-level", isolation),
    ).lines


def copies_with_random_aborts(tools: Tools) -> None:
    """TransactionalMessageCopier copies exactly once, in order, with random aborts.

    A third of the transactions is aborted.
    """
    _require_transactions(tools)
    source, target = tools.new_topic(), tools.new_topic()
    lines = [f"line {number}" for number in range(RECORDS)]
    tools.succeed("kafka-console-producer", "--topic", source, stdin="\n".join(lines) + "\n")
    for group_metadata in ((), ("--use-group-metadata",)):
        output = tools.java.succeed(
            COPIER,
            *("--broker-list", tools.bootstrap, "--input-topic", source, "--input-partition", "0"),
            *("--output-topic", target, "--transactional-id", f"copier-{target}"),
            *("--consumer-group", f"copiers-{target}-{len(group_metadata)}"),
            *("--transaction-size", "20", "--enable-random-aborts", *group_metadata),
        )
        last = json.loads(output.lines[-1])
        assert last["totalProcessed"] == RECORDS, last
    found = _read(tools, target, 2 * RECORDS, "read_committed")
    assert found == lines + lines, f"{len(found)} lines, {len(set(found))} different"
    # Aborted records and markers are in the log, but hidden.
    assert tools.offsets(target)[0] > 2 * RECORDS + 2 * RECORDS // 20


def copies_go_on_where_they_were(tools: Tools) -> None:
    """TransactionalMessageCopier resumes from the offsets that it committed in transactions."""
    _require_transactions(tools)
    source, target = tools.new_topic(), tools.new_topic()
    lines = [f"line {number}" for number in range(200)]
    tools.succeed("kafka-console-producer", "--topic", source, stdin="\n".join(lines) + "\n")
    for count in (60, -1):
        tools.java.succeed(
            COPIER,
            *("--broker-list", tools.bootstrap, "--input-topic", source, "--input-partition", "0"),
            *("--output-topic", target, "--transactional-id", f"copier-{target}"),
            *("--consumer-group", f"copiers-{target}", "--transaction-size", "20"),
            *("--max-messages", str(count)),
        )
    found = _read(tools, target, 200, "read_committed")
    assert found == lines, f"{len(found)} lines, {len(set(found))} different"


def perf_test_in_transactions(tools: Tools) -> None:
    """kafka-producer-perf-test writes in transactions of 100 ms."""
    _require_transactions(tools)
    name = tools.new_topic()
    output = tools.java.succeed(
        "kafka-producer-perf-test",
        *("--topic", name, "--num-records", "20000", "--record-size", "200"),
        *("--throughput", "20000", "--transaction-duration-ms", "100"),
        *("--transactional-id", f"perf-{name}"),
        *("--command-property", f"bootstrap.servers={tools.bootstrap}"),
    )
    assert output.lines[-1].startswith("20000 records sent"), output.all
    assert tools.offsets(name)[0] > 20_000


def transactions_are_listed_and_described(tools: Tools) -> None:
    """kafka-transactions lists and describes transactions, and aborts an open one."""
    _require_transactions(tools)
    name, transactional_id = tools.new_topic(), f"listed-{uuid.uuid4().hex}"
    producer = Producer(
        {"bootstrap.servers": tools.bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(TIMEOUT_S)
    listed = tools.succeed("kafka-transactions", "list").out
    assert re.search(rf"{transactional_id}\s+\d+\s+\d+\s+Ongoing", listed), listed
    described = tools.succeed(
        "kafka-transactions", "describe", "--transactional-id", transactional_id
    ).out
    assert re.search(rf"Ongoing\s+60000\s+\d+\s+\d+\s+{name}-0", described), described
    tools.succeed(
        "kafka-transactions",
        *("abort", "--topic", name, "--partition", "0", "--start-offset", "0"),
    )
    tools.fill(name, 1)
    assert len(_read(tools, name, 1, "read_committed")) == 1


def hanging_transactions_are_found(tools: Tools) -> None:
    """kafka-transactions find-hanging finds no hanging transaction."""
    _require_transactions(tools)
    name = tools.new_topic()
    tools.fill(name, 10)
    time.sleep(0.1)
    output = tools.succeed(
        "kafka-transactions",
        *("find-hanging", "--topic", name, "--max-transaction-timeout", "1"),
    )
    assert len(output.lines) <= 1, output.out


CHECKS = (
    copies_with_random_aborts,
    copies_go_on_where_they_were,
    perf_test_in_transactions,
    transactions_are_listed_and_described,
    hanging_transactions_are_found,
)
