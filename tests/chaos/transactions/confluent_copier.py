"""A consume-transform-produce loop in transactions, as a process that a test can kill.

It copies the topic `input` to `output`, puts each value in brackets, and commits the consumed
offsets in the same transaction. It prints "copied" after each transaction."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer

PATIENCE_S = 30
BATCH = 20


def main(bootstrap: str, transactional_id: str) -> None:
    common = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
        # With `rebootstrap`, librdkafka forgets a broker that is down but still takes it for the
        # coordinator of the group, and never sends offsets on the new connection (seen with
        # 2.16.0).
        "metadata.recovery.strategy": "none",
    }
    while True:
        producer = Producer(
            {
                **common,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 5_000,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
            }
        )
        consumer = Consumer(
            {
                **common,
                "group.id": "copiers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            producer.init_transactions(PATIENCE_S)
            consumer.subscribe(["input"])
            while True:
                copy(consumer, producer)
        except KafkaException:
            consumer.close()  # fenced or timed out: start again


def copy(consumer: Consumer, producer: Producer) -> None:
    messages = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
    if not messages:
        return
    producer.begin_transaction()
    try:
        for message in messages:
            value = message.value() or b""
            producer.produce("output", b"[" + value + b"]", partition=message.partition())
        position = consumer.position(consumer.assignment())
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(position, group, PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
    except KafkaException as failure:
        if failure.args[0].txn_requires_abort():
            producer.abort_transaction(PATIENCE_S)
        raise
    print("copied", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
