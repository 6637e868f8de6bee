"""Broker properties for idempotent producers and transactions."""

from __future__ import annotations

from ottla.base.config.definition import (
    DAY_MS,
    HOUR_MS,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    ConfigKey,
)
from ottla.base.config.validator import AtLeast
from ottla.base.config.vocabulary import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT

TRANSACTION_KEYS = [
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        DAY_MS,
        "How long a partition remembers a producer that has stopped writing to it.",
        AtLeast(1),
        LOW,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        10 * MINUTE_MS,
        "How often remembered producers are looked at for their expiry.",
        AtLeast(1),
        LOW,
        internal=True,
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        7 * DAY_MS,
        "How long a transactional id without a transaction is remembered.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        INT,
        15 * MINUTE_MS,
        "The longest timeout that a transaction may ask for.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        INT,
        2,
        "The min.insync.replicas of the transaction topic.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        INT,
        5 * MIB,
        "How much is read at a time when transactions are loaded.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        INT,
        50,
        "How many partitions the transaction topic has; never change it once it exists.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        "How many replicas the transaction topic has.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        INT,
        100 * MIB,
        "How large the segments of the transaction topic grow.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10 * SECOND_MS,
        "How often transactions past their timeout are aborted.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        HOUR_MS,
        "How often expired transactional ids are forgotten.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        20,
        "Interval between a partition leader's attempts to add its partition to a transaction, "
        "while the producer's previous one is being completed, in milliseconds. The coordinator "
        "holds each attempt for up to this time, and grants it as soon as it can.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        100,
        "Total time that a partition leader tries to add its partition to a transaction before it "
        "answers CONCURRENT_TRANSACTIONS, in milliseconds. It does not apply to verification, and "
        "request.timeout.ms limits it.",
        AtLeast(0),
        HIGH,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "Whether a partition asks the coordinator before it takes a transactional batch.",
        None,
        LOW,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "Whether producers may prepare a transaction for a coordinator outside Kafka.",
        None,
        LOW,
    ),
]
