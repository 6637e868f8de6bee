"""Broker properties for idempotent producers and transactions."""

from __future__ import annotations

from ottla.base.config.aliases import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT
from ottla.base.config.definition import (
    DAY_MS,
    HOUR_MS,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    ConfigKey,
)
from ottla.base.config.validator import AtLeast

TRANSACTION_KEYS = [
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        DAY_MS,
        "Time after which a partition removes the state of a producer that has stopped writing "
        "to it, in milliseconds.",
        AtLeast(1),
        LOW,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        10 * MINUTE_MS,
        "Interval between checks for expired producer IDs, in milliseconds.",
        AtLeast(1),
        LOW,
        internal=True,
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        7 * DAY_MS,
        "Time after which the coordinator removes a transactional ID that is not in use, in "
        "milliseconds.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        INT,
        15 * MINUTE_MS,
        "Maximum transaction timeout that a producer may request, in milliseconds.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        INT,
        2,
        "min.insync.replicas of the transaction topic.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        INT,
        5 * MIB,
        "Read size when the coordinator loads transactions into memory, in bytes.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        INT,
        50,
        "Number of partitions of the transaction topic. Do not change it after the topic has "
        "been created.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        "Replication factor of the transaction topic.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        INT,
        100 * MIB,
        "Maximum size of a segment of the transaction topic, in bytes.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10 * SECOND_MS,
        "Interval between checks for transactions to abort because they have timed out, in "
        "milliseconds.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        HOUR_MS,
        "Interval between checks for expired transactional IDs, in milliseconds.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        20,
        "Interval between attempts of a partition leader to add its partition to a transaction "
        "while the previous one is being completed, in milliseconds. The coordinator holds each "
        "attempt for up to this time.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        100,
        "Maximum time that a partition leader tries to add its partition to a transaction before "
        "it returns CONCURRENT_TRANSACTIONS, in milliseconds. It does not apply to verification, "
        "and request.timeout.ms limits it.",
        AtLeast(0),
        HIGH,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "Whether a partition leader verifies with the coordinator that the partition is part of "
        "the transaction before it appends a transactional batch.",
        None,
        LOW,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "Whether producers may take part in two-phase commits of an external transaction "
        "coordinator. No effect: two-phase commits are not in this release.",
        None,
        LOW,
    ),
]
