"""A teller that transfers money between accounts, one transaction per transfer.

It runs as a separate process, so that a test can kill it, and ends after a given number of
transfers.

    topic bank       a leg: {"transfer": id, "account": n, "amount": ±x}; both legs of a transfer
                     are in the teller's partition, in separate batches
    topic journal    one record per transfer, with its id

For each transfer it prints its outcome as a line of JSON: {"transfer": id, "outcome": "committed"},
"aborted", or "unknown" if there was no response."""

from __future__ import annotations

import json
import random
import sys
import uuid

from confluent_kafka import KafkaException, Producer

PARTITIONS = 4
ACCOUNTS = 20
PATIENCE_S = 30


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(bootstrap: str, number: int, count: int) -> None:
    done = 0
    while done < count:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"teller-{number}",
                "transaction.timeout.ms": 5_000,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(PATIENCE_S)
            while done < count:
                transfer(producer, number)
                done += 1
        except KafkaException:
            # Fenced or timed out: start again with a new producer, as an application would.
            continue


def transfer(producer: Producer, partition: int) -> None:
    transfer_id = uuid.uuid4().hex
    giver, taker = random.sample(range(ACCOUNTS), 2)
    amount = random.randrange(1, 100)
    producer.begin_transaction()
    try:
        for account, change in ((giver, -amount), (taker, amount)):
            leg = {"transfer": transfer_id, "account": account, "amount": change}
            producer.produce("bank", json.dumps(leg), partition=partition)
            producer.flush(PATIENCE_S)
        producer.produce("journal", transfer_id, partition=random.randrange(PARTITIONS))
        if random.random() < 0.2:
            producer.abort_transaction(PATIENCE_S)
            say(transfer=transfer_id, outcome="aborted")
        else:
            say(transfer=transfer_id, outcome="unknown")
            commit(producer)
            say(transfer=transfer_id, outcome="committed")
    except KafkaException as failure:
        if failure.args[0].txn_requires_abort():
            producer.abort_transaction(PATIENCE_S)
            say(transfer=transfer_id, outcome="aborted")
        else:
            raise


def commit(producer: Producer) -> None:
    while True:
        try:
            producer.commit_transaction(PATIENCE_S)
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
