"""Fetched data that is not returned to the user yet, and the records that were returned last.

    fetched ─ take ─► in hand ─ mark_consumed ─► positions

Records *in hand* have been returned to the user, who may still be processing them. They count as
consumed, and the positions move past them, when the user calls the consumer again: with the next
poll, a commit, or close. If an exception ends the user's `with` block, they do not count as
consumed and will be delivered again.

Threads: the event loop adds, and the user's thread takes. Neither relies on the other pausing: each
change is a single deque operation or a single assignment. Everything else happens on the loop, and
only while the user's thread waits for it.

Ctrl-C may interrupt at any point. `is_delivered` is False while records are being taken; the
function that returns them to the user sets it to True as its last step. If it is still False on the
next call, the user never received those records, and they are fetched again from the positions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.consumer.fetched import FetchedPartition
from ottla.client.consumer.record import Record
from ottla.client.consumer.subscription import PartitionState, Subscription
from ottla.client.errors import ClientError, DeserializationFailed
from ottla.client.serializers import Deserializer
from ottla.wire.records.fetched import MAX_OFFSET

InHand = dict[TopicPartition, tuple[PartitionState, int, int, int]]
"""Partition to its state, that state's version, the position after the records, the epoch."""
ReadWhole = Callable[[FetchedPartition, int], tuple[list[Any], int]]
"""Function that reads a fetched partition up to an offset, and returns parts that have a length and
the position after them."""
Order = Callable[[list[FetchedPartition]], list[FetchedPartition]]


class RecordBuffer:
    def __init__(
        self,
        subscription: Subscription,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self._subscription = subscription
        self._key = key_deserializer
        self._value = value_deserializer
        self._fetches: deque[FetchedPartition] = deque()
        self._in_hand: InHand = {}
        self._iterated: tuple[list[Record], Iterator[Record]] | None = None
        """Records that are returned one by one, and the iterator over them."""
        self.is_delivered = True
        self.on_room: Callable[[], None] = lambda: None
        """Callback for when fetched data is used up, so that there is room for more."""
        self.order: Order | None = None
        """Function that selects and orders the data to consume now; None: first in, first out."""

    # --------------------------------------------------------------- called on the event loop

    def add(self, fetched: FetchedPartition) -> None:
        self._fetches.append(fetched)

    def sizes(self) -> dict[TopicPartition, int]:
        """Return the buffered bytes of each partition."""
        found: dict[TopicPartition, int] = {}
        for fetched in tuple(self._fetches):
            if fetched.is_current:
                found[fetched.state.tp] = found.get(fetched.state.tp, 0) + fetched.size
        return found

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard what was fetched from these partitions."""
        gone = set(partitions)
        for fetched in tuple(self._fetches):
            if fetched.state.tp in gone:
                self._remove(fetched)

    def clear(self) -> None:
        self._fetches.clear()
        self._in_hand = {}
        self._iterated = None
        self.is_delivered = True

    # ------------------------------------------------------------------------- taking records

    def has_records(self) -> bool:
        return bool(self.ready())

    def ready(self) -> list[FetchedPartition]:
        """Return the data that may be consumed now, in order, and discard data that is obsolete."""
        found: list[FetchedPartition] = []
        for fetched in tuple(self._fetches):
            if not fetched.is_current or self._subscription.get(fetched.state.tp) is not (
                fetched.state
            ):
                self._remove(fetched)
            elif not fetched.state.is_paused and not fetched.state.is_held:
                found.append(fetched)
        return found if self.order is None else self.order(found)

    def take(self, limit: int) -> list[Record]:
        """Take up to `limit` records, which are in hand from then on.

        Call `mark_consumed` first, and set `is_delivered` once the user has the records."""
        self.is_delivered = False
        records: list[Record] = []
        handed: InHand = {}
        for fetched in self.ready():
            try:
                found = self._take_from(fetched, limit - len(records))
            except ClientError:
                if records:
                    break  # return the records before the failure first
                self.is_delivered = True
                raise
            state = fetched.state
            handed[state.tp] = (state, fetched.version, fetched.next_offset, fetched.next_epoch)
            records = records + found if records else found
            if fetched.is_exhausted:
                self._remove(fetched)
                self.on_room()
            if len(records) >= limit:
                break
        self._in_hand = handed
        if not records:
            self.is_delivered = True
        return records

    def _take_from(self, fetched: FetchedPartition, limit: int) -> list[Record]:
        taken: list[Record] = []
        while limit > len(taken):
            try:
                found = fetched.peek(limit - len(taken))
                good = found if fetched.is_final else self._deserialized(found)
            except ClientError:
                if taken:
                    return taken
                raise
            if not good:
                break
            fetched.advance(good)
            taken = taken + good if taken else good
        return taken

    def _deserialized(self, records: list[Record]) -> list[Record]:
        """Deserialize the records up to the first failure; raise if that is the first record."""
        if self._key is None and self._value is None:
            return records
        made: list[Record] = []
        for record in records:
            try:
                key, value = record.key, record.value
                if self._key is not None and key is not None:
                    key = self._key(key)
                if self._value is not None and value is not None:
                    value = self._value(value)
            except Exception as error:
                if made:
                    break
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                raise DeserializationFailed(
                    f"the record in {where} could not be deserialized: {error!r}",
                    topic=record.topic, partition=record.partition, offset=record.offset,
                ) from error  # fmt: skip
            made.append(record._replace(key=key, value=value))
        return made

    def take_whole(self, read: ReadWhole, max_records: int | None, max_bytes: int) -> list[Any]:
        """Take whole fetched partitions, converted by `read`, until about `max_bytes` are taken.

        Args:
            read: Converts the data of one fetched partition.
            max_records: Maximum number of records, or None.
            max_bytes: Approximate limit on the bytes taken.

        Returns:
            The converted parts. As with `take`, they are in hand from then on.
        """
        self.is_delivered = False
        made: list[Any] = []
        moved: list[tuple[FetchedPartition, int]] = []
        for fetched in self.ready():
            if fetched.is_final:  # already decoded into records, so fetch the data again
                self._remove(fetched)
                fetched.state.rewind()
                self.on_room()
                continue
            end = MAX_OFFSET if fetched.state.stop_at is None else fetched.state.stop_at
            if max_records is not None:
                end = min(end, fetched.next_offset + max_records)
            try:
                parts, position = read(fetched, end)
            except ClientError:
                if made:
                    break  # return the records before the failure first
                self.is_delivered = True
                raise
            made += parts
            moved.append((fetched, position))
            max_bytes -= fetched.size
            if max_records is not None:
                max_records -= sum(map(len, parts))
            if max_bytes <= 0 or max_records == 0:
                break
        self._advance_past(moved)
        if not made:
            self.is_delivered = True
        return made

    def _advance_past(self, moved: list[tuple[FetchedPartition, int]]) -> None:
        handed: InHand = {}
        for fetched, position in moved:
            fetched.skip_to(position)
            state = fetched.state
            handed[state.tp] = (state, fetched.version, fetched.next_offset, fetched.next_epoch)
            if fetched.is_exhausted:
                self._remove(fetched)
                self.on_room()
        self._in_hand = handed

    def _remove(self, fetched: FetchedPartition) -> None:
        try:
            self._fetches.remove(fetched)
        except ValueError:
            pass

    # --------------------------------------------------------------------------- records in hand

    def iterate(self, records: list[Record]) -> Iterator[Record]:
        """Return an iterator over taken records. Those that it has not yielded are not in hand."""
        rest = iter(records)
        self._iterated = (records, rest)
        self.is_delivered = True
        return rest

    @property
    def has_in_hand(self) -> bool:
        return bool(self._in_hand)

    def in_hand_position(self, tp: TopicPartition) -> int | None:
        """Return the position after the records in hand, or None if none are of this partition."""
        self._return_rest()
        handed = self._in_hand.get(tp)
        return handed[2] if handed is not None and handed[0].version == handed[1] else None

    def mark_consumed(self) -> None:
        """Count the records in hand as consumed: move the positions past them."""
        if not self.is_delivered:
            self.recover()
        self._return_rest()
        handed, self._in_hand = self._in_hand, {}
        for state, version, position, epoch in handed.values():
            if state.version == version:
                state.position = position
                if epoch >= 0:
                    state.position_epoch = epoch

    def discard_in_hand(self) -> None:
        """Do not count the records in hand as consumed, because processing them raised.

        If they were returned one by one, this applies only to the last one."""
        if self.is_delivered and self._iterated is not None:
            self._return_rest(in_hand=1)
            self.mark_consumed()
        else:
            self.recover()

    def recover(self) -> None:
        """Discard everything taken since the positions were last moved, and fetch it again."""
        self._in_hand = {}
        self._iterated = None
        self._fetches.clear()
        for state in self._subscription:
            if state.is_known:
                state.rewind()
        self.is_delivered = True
        self.on_room()

    def _return_rest(self, in_hand: int = 0) -> None:
        """Return the records that an iterator has not yielded to the front of the buffer.

        Args:
            in_hand: Number of records yielded last that are returned to the buffer, too.
        """
        if self._iterated is None:
            return
        records, iterator = self._iterated
        cut = max(len(records) - length_hint(iterator) - in_hand, 0)
        rest = records[cut:]
        self.is_delivered = False
        self._iterated = None
        by_partition: dict[TopicPartition, list[Record]] = {}
        for record in rest:
            tp = TopicPartition(record.topic, record.partition)
            by_partition.setdefault(tp, []).append(record)
        for tp, returned in reversed(list(by_partition.items())):
            state, version, end, _ = self._in_hand[tp]
            before = (each for each in reversed(records[:cut]) if each[:2] == tp)
            epoch = next((each.leader_epoch for each in before), -1)
            self._in_hand[tp] = (state, version, returned[0].offset, epoch)
            self._fetches.appendleft(FetchedPartition.of_records(state, version, returned, end))
        self.is_delivered = True
