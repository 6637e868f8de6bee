"""A consumer in a process of its own, which a test interrupts.

It prints the offset of each record that it received, one per line, and ends on the interrupt.

    singly   iterates; the `with` block ends with the exception
    polls    polls lists; catches the exception and closes the consumer explicitly"""

from __future__ import annotations

import os
import sys

from ottla import Consumer, Record

OPTIONS = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 10, "fetch_max_wait_ms": 20}


def say(*offsets: int) -> None:
    """Print the offsets in a single call, so that an interrupt cannot split the output."""
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
            # Assigned before the records are used, because an interrupt may arrive during the next
            # call.
            records = consumer.poll()
            say(*(record.offset for record in records))
    except KeyboardInterrupt:
        say(*(record.offset for record in records))  # perhaps twice, which is harmless
    finally:
        consumer.close()


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    try:
        (iterate if kind == "singly" else poll)(*arguments)
    except KeyboardInterrupt:
        pass
