"""The loop of confluent_copier.py, with Ottla's own clients."""

from __future__ import annotations

import sys

from ottla import Consumer, Producer
from ottla.base.errors import KafkaError

BATCH = 20


def main(bootstrap: str, transactional_id: str) -> None:
    while True:
        try:
            with (
                Producer(
                    bootstrap,
                    transactional_id=transactional_id,
                    transaction_timeout_ms=5_000,
                    linger_ms=0,
                    reconnect_backoff_max_ms=100,
                ) as producer,
                Consumer(
                    bootstrap,
                    group_id="copiers",
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    isolation_level="read_committed",
                    session_timeout_ms=6_000,
                    fetch_max_wait_ms=50,
                    reconnect_backoff_max_ms=100,
                ) as consumer,
            ):
                consumer.subscribe(["input"])
                while True:
                    copy(consumer, producer)
        except KafkaError as error:  # fenced or timed out: start again
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


def copy(consumer: Consumer, producer: Producer) -> None:
    records = consumer.poll(0.2, max_records=BATCH)
    if not records:
        return
    with producer.transaction():
        for record in records:
            producer.send("output", b"[" + record.value + b"]", partition=record.partition)
        producer.send_offsets(consumer)
    print("copied", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
