"""A consumer in a process of its own, which a test interrupts. It says the offset of each record
that it was handed, one a line, and ends with the interrupt.

    singly   iterates; the `with` ends with the exception
    polls    polls lists; the exception is caught, and the consumer closed by hand"""

from __future__ import annotations

import os
import sys

from ottla import Consumer, Record

OPTIONS = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 10, "fetch_max_wait_ms": 20}


def say(*offsets: int) -> None:
    """In one call, which no interrupt can divide: all of it, or nothing, is said."""
    os.write(1, b"".join(b"%d\n" % offset for offset in offsets))


def iterate(bootstrap: str, topic: str) -> None:
    with Consumer(bootstrap, group_id=topic, topics=topic, **OPTIONS) as consumer:
        say(-1)
        for record in consumer:
            say(record.offset)


def poll(bootstrap: str, topic: str) -> None:
    consumer = Consumer(bootstrap, group_id=topic, topics=topic, max_poll_records=5, **OPTIONS)
    records: list[Record] = []
    try:
        say(-1)
        while True:
            # Kept before anything is done with them: an interrupt may come with the next call.
            records = consumer.poll()
            say(*(record.offset for record in records))
    except KeyboardInterrupt:
        say(*(record.offset for record in records))  # perhaps twice, which does no harm
    finally:
        consumer.close()


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    try:
        (iterate if kind == "singly" else poll)(*arguments)
    except KeyboardInterrupt:
        pass
