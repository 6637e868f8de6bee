from __future__ import annotations

from ottla.client.producer.accumulator import NEVER_S, Accumulator, BufferExhausted, PartitionQueue
from ottla.client.producer.batch import record_bound
from ottla.client.producer.future import RecordFuture

BATCH = 1000
LINGER_S = 0.5


def accumulator(memory: int = 10_000) -> Accumulator:
    return Accumulator(batch_size=BATCH, linger_s=LINGER_S, buffer_memory=memory)


def add(
    waiting: Accumulator, queue: PartitionQueue, size: int = 300, now_s: float = 0.0
) -> RecordFuture | BufferExhausted:
    value = bytes(size)
    bound = record_bound(None, value, ())
    return waiting.append(queue, None, value, (), 0, bound, lambda: now_s)[0]


def test_a_batch_is_ready_after_linger_or_when_the_next_is_opened() -> None:
    waiting, queue = accumulator(), PartitionQueue("t", 0)
    assert waiting.ready_at_s(queue) == NEVER_S
    add(waiting, queue, now_s=10.0)
    assert waiting.ready_at_s(queue) == 10.0 + LINGER_S
    add(waiting, queue)
    add(waiting, queue)
    assert len(queue.batches) == 2
    assert waiting.ready_at_s(queue) == 0.0


def test_flushing_and_waiting_for_memory_make_every_batch_ready() -> None:
    waiting, queue = accumulator(), PartitionQueue("t", 0)
    add(waiting, queue, now_s=10.0)
    waiting.flushing = 1
    assert waiting.ready_at_s(queue) == 0.0
    waiting.flushing = 0
    waiting.reserve(1_000_000, lambda: None)
    assert waiting.ready_at_s(queue) == 0.0


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    waiting, queue = accumulator(), PartitionQueue("t", 0)
    add(waiting, queue, 5000)
    add(waiting, queue, 10)
    assert [batch.count for batch in queue.batches] == [1, 1]
    assert waiting.available_bytes < 10_000 - 5000 - BATCH


def test_memory_is_given_back_when_a_batchs_fate_is_known() -> None:
    waiting, queue = accumulator(), PartitionQueue("t", 0)
    add(waiting, queue)
    batch = waiting.pop_ready(queue)
    batch.in_request = True
    assert waiting.available_bytes == 10_000 - BATCH
    waiting.finish(batch)
    waiting.finish(batch)
    assert waiting.available_bytes == 10_000


def test_memory_goes_to_the_first_in_line() -> None:
    waiting, queues = accumulator(2 * BATCH), [PartitionQueue("t", number) for number in range(3)]
    add(waiting, queues[0])
    add(waiting, queues[1])
    assert isinstance(add(waiting, queues[2]), BufferExhausted)
    granted: list[str] = []
    first = waiting.reserve(2 * BATCH, lambda: granted.append("first"))
    second = waiting.reserve(BATCH, lambda: granted.append("second"))
    waiting.finish(waiting.pop_ready(queues[0]))
    assert granted == []  # the second would fit, but reservations are granted in order
    assert isinstance(add(waiting, queues[2]), BufferExhausted)
    waiting.finish(waiting.pop_ready(queues[1]))
    assert granted == ["first"]
    waiting.cancel(first)
    assert granted == ["first", "second"]
    waiting.cancel(second)
    assert waiting.available_bytes == 2 * BATCH


def test_a_reservation_that_is_not_needed_after_all_is_given_back() -> None:
    waiting, queue = accumulator(BATCH), PartitionQueue("t", 0)
    reservation = waiting.reserve(BATCH, lambda: None)
    value = bytes(10)
    for _ in range(2):
        waiting.append(queue, None, value, (), 0, 50, lambda: 0.0, reservation)
        if waiting.available_bytes == 0:
            reservation = waiting.reserve(0, lambda: None)
    assert queue.batches[0].count == 2
    assert waiting.available_bytes == 0


def test_batches_go_back_to_where_their_sequences_belong() -> None:
    waiting, queue = accumulator(100_000), PartitionQueue("t", 0)
    for _ in range(4):
        add(waiting, queue, 900)
    first, second, third = (waiting.pop_ready(queue) for _ in range(3))
    for sequence, batch in enumerate((first, second, third)):
        batch.set_producer_state(1, 0, sequence)
        queue.sequences.in_flight.append(batch)
    last = queue.batches[0]
    waiting.requeue(queue, [second])
    waiting.requeue(queue, [third])
    waiting.requeue(queue, [first])
    assert list(queue.batches) == [first, second, third, last]


def test_what_has_expired_is_found_oldest_first() -> None:
    waiting, queue = accumulator(100_000), PartitionQueue("t", 0)
    for now_s in (1.0, 2.0, 3.0):
        add(waiting, queue, 900, now_s)
    assert waiting.oldest_s() == 1.0
    assert [batch.created_s for batch in waiting.expired(2.0)] == [1.0, 2.0]
