"""Tests of operators with Python state, by Kafka Streams' rules and without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import ottla.streams as st
from ottla.streams.state.folds import Fold, of_aggregates, of_aggregator, of_reducer
from ottla.streams.state.foreign import ENTER, LEAVE, Subscribed, Subscriptions
from ottla.streams.state.processors import Processing
from ottla.streams.state.program import Batch, Output, Program, State
from ottla.streams.state.records import row_class
from ottla.streams.state.sliding import SlidingWindows
from ottla.streams.state.tables import TablesJoined
from ottla.streams.state.totals import Totals
from ottla.streams.state.windows import SessionWindows, TimeWindows

COUNT = of_aggregates((("n", st.count()),))


class Bucket:
    """Runner that calls a program as Spark does: it pickles the state and fires due timers."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.state: State = {}
        self.stream_time_ms = 0

    def send(self, *records: tuple[Any, ...]) -> list[Output]:
        """Process records as one batch, then advance stream time and fire the timers that are due.

        Records are (key, value, timestamp) or (key, value, timestamp, side)."""
        keys, values, times, *sides = zip(*records, strict=True)
        found = self._run(Batch(keys, values, times, sides[0] if sides else [0] * len(keys)))
        self.stream_time_ms = max(self.stream_time_ms, *times)
        while (due := self.program.next_time_ms(self.state)) is not None and (
            self.program.needs_time and due <= self.stream_time_ms
        ):
            found += self._run(Batch())
        return found

    def _run(self, batch: Batch) -> list[Output]:
        found = list(self.program.run(self.state, batch, self.stream_time_ms))
        self.state = pickle.loads(pickle.dumps(self.state))
        return found


def counts(outputs: list[Output]) -> list[tuple[Any, ...]]:
    """Return the key, window and count of each output; the count is None for a deletion."""
    return [
        (each.key, each.window, None if each.value is None else each.value["n"]) for each in outputs
    ]


def total() -> Fold:
    return of_aggregator(lambda: 0, lambda total, value: total + value, 2, None, None)


def test_totals_give_out_each_changed_key_once_at_its_latest_time() -> None:
    bucket = Bucket(Totals(total()))
    assert bucket.send(("a", 1, 10), ("b", 2, 20), ("a", 3, 5)) == [
        Output("a", 4, 10),
        Output("b", 2, 20),
    ]
    assert bucket.send(("a", 1, 7)) == [Output("a", 5, 10)]


def test_a_reducer_begins_with_the_first_value_and_none_deletes() -> None:
    def longest_or_none(one: str, other: str) -> str | None:
        return None if other == "!" else max(one, other, key=len)

    bucket = Bucket(Totals(of_reducer(longest_or_none)))
    assert [each.value for each in bucket.send(("k", "aa", 1), ("k", "b", 2))] == ["aa"]
    assert bucket.send(("k", "!", 3)) == [Output("k", None, 3)]
    assert bucket.state == {}
    assert bucket.send(("k", "c", 4)) == [Output("k", "c", 4)]


def test_aggregates_that_are_changed_in_place_are_given_out_too() -> None:
    def add(words: list[str], word: str) -> list[str]:
        words.append(word)
        return words

    fold = of_aggregator(list, add, 2, lambda one, other: one + other, None)
    bucket = Bucket(SessionWindows(fold, 10, 0, is_final=False, emits_late=False))
    assert [each.value for each in bucket.send(("k", "a", 1))] == [["a"]]
    assert [each.value for each in bucket.send(("k", "b", 1))] == [["a", "b"]]


def test_named_aggregates_leave_nulls_out() -> None:
    value = row_class(("x",))
    named = {
        "n": st.count(),
        "there": st.count("x"),
        "total": st.sum("x"),
        "least": st.min("x"),
        "most": st.max("x"),
        "mean": st.mean("x"),
        "all": st.collect_list("x"),
        "once": st.collect_set("x"),
    }
    fold = of_aggregates(tuple(named.items()))
    aggregate = fold.initial()
    assert fold.finished(aggregate)["total"] is None
    for x in (3, None, 1, 3):
        aggregate = fold.add(aggregate, "k", value((x,)))
    both = fold.merge(aggregate, fold.initial()) if fold.merge else None
    assert fold.finished(both) == {
        "n": 4,
        "there": 3,
        "total": 7,
        "least": 1,
        "most": 3,
        "mean": 7 / 3,
        "all": [3, 1, 3],
        "once": [3, 1],
    }


def test_tumbling_windows_take_records_until_end_and_grace() -> None:
    bucket = Bucket(TimeWindows(COUNT, 100, 100, 20, is_final=False, emits_late=True))
    assert counts(bucket.send(("k", 0, 0), ("k", 0, 99), ("k", 0, 100))) == [
        ("k", (0, 100), 2),
        ("k", (100, 200), 1),
    ]
    bucket.stream_time_ms = 119
    assert counts(bucket.send(("k", 0, 5))) == [("k", (0, 100), 3)]
    bucket.stream_time_ms = 120
    assert bucket.send(("k", "late", 6)) == [Output("k", None, 6, late="late")]


def test_hopping_windows_are_those_that_a_time_is_in() -> None:
    bucket = Bucket(TimeWindows(COUNT, 60, 20, 1000, is_final=False, emits_late=False))
    times = (0, 19, 20, 65, 100)
    expected = []
    for start in range(-60, 120, 20):
        inside = sum(start <= at < start + 60 for at in times)
        expected += [("k", (start, start + 60), inside)] if inside else []
    assert sorted(counts(bucket.send(*(("k", 0, at) for at in times)))) == expected


def test_a_hopping_window_that_is_not_a_multiple_of_its_advance() -> None:
    bucket = Bucket(TimeWindows(COUNT, 5, 3, 1000, is_final=False, emits_late=False))
    found = counts(bucket.send(*(("k", 0, at) for at in range(20))))
    assert found
    assert all(
        count == sum(start <= at < end for at in range(20)) for _, (start, end), count in found
    )
    assert [window[0] for _, window, _ in sorted(found)] == [-3, *range(0, 20, 3)]


def test_final_windows_come_once_when_they_close_though_no_record_comes() -> None:
    bucket = Bucket(TimeWindows(COUNT, 100, 100, 0, is_final=True, emits_late=False))
    assert bucket.send(("a", 0, 1), ("b", 0, 2), ("a", 0, 3)) == []
    assert counts(bucket.send(("c", 0, 100))) == [("a", (0, 100), 2), ("b", (0, 100), 1)]
    assert counts(bucket.send(("a", 0, 50))) == []
    assert counts(bucket.send(("x", 0, 500))) == [("c", (100, 200), 1)]
    assert list(bucket.state) == [500]


def test_sessions_that_grow_or_merge_delete_what_was_given_out() -> None:
    bucket = Bucket(SessionWindows(COUNT, 10, 1000, is_final=False, emits_late=False))
    assert counts(bucket.send(("k", 0, 0), ("k", 0, 30))) == [
        ("k", (0, 0), 1),
        ("k", (30, 30), 1),
    ]
    # A gap of 10 merges sessions, a gap of 11 does not.
    assert counts(bucket.send(("k", 0, 10))) == [("k", (0, 0), None), ("k", (0, 10), 2)]
    assert counts(bucket.send(("k", 0, 41))) == [("k", (41, 41), 1)]
    assert counts(bucket.send(("k", 0, 20))) == [
        ("k", (0, 10), None),
        ("k", (30, 30), None),
        ("k", (0, 30), 4),
    ]
    assert counts(bucket.send(("k", 0, 5))) == [("k", (0, 30), 5)]


def test_an_old_record_is_not_late_for_a_session_that_is_open() -> None:
    bucket = Bucket(SessionWindows(COUNT, 10, 0, is_final=False, emits_late=True))
    bucket.send(("k", 0, 100))
    bucket.send(("other", 0, 109))
    assert counts(bucket.send(("k", 0, 95))) == [("k", (100, 100), None), ("k", (95, 100), 2)]
    assert bucket.send(("k", "old", 80)) == [Output("k", None, 80, late="old")]


def test_final_sessions_come_when_the_gap_has_passed() -> None:
    bucket = Bucket(SessionWindows(COUNT, 10, 5, is_final=True, emits_late=False))
    assert bucket.send(("k", 0, 0), ("k", 0, 8)) == []
    assert counts(bucket.send(("other", 0, 23))) == []
    assert counts(bucket.send(("other", 0, 24))) == [("k", (0, 8), 2)]


def windows_by_definition(times: list[int], difference: int) -> dict[tuple[int, int], int]:
    """Count the records of each distinct sliding window, directly from the definition."""
    found: dict[tuple[int, int], int] = {}
    starts = {max(0, at - difference) for at in times} | {at + 1 for at in times}
    for start in sorted(starts):
        inside = sum(start <= at <= start + difference for at in times)
        if inside:
            found[start, start + difference] = inside
    return found


@pytest.mark.parametrize(
    "times",
    [
        [8000, 9200, 12400],  # the example in Kafka's documentation
        [100, 100, 105],
        [5, 3, 40],
        [50, 20, 35, 21, 49, 30],
    ],
)
def test_sliding_windows_are_one_for_each_set_of_records(times: list[int]) -> None:
    difference = 5000 if max(times) > 1000 else 15
    bucket = Bucket(SlidingWindows(COUNT, difference, 100_000, is_final=False, emits_late=False))
    latest: dict[Any, Any] = {}
    for at in times:
        latest |= {window: count for _, window, count in counts(bucket.send(("k", 0, at)))}
    assert latest == windows_by_definition(times, difference)


def test_sliding_windows_of_kafkas_documentation() -> None:
    """The example has records of alice at 8000, 9200 and 12400, and a time difference of 5000."""
    bucket = Bucket(SlidingWindows(COUNT, 5000, 1_000_000, is_final=False, emits_late=False))
    bucket.send(("alice", 0, 8000))
    bucket.send(("alice", 0, 9200))
    found = counts(bucket.send(("alice", 0, 12400)))
    assert found == [
        ("alice", (7400, 12400), 3),
        ("alice", (8001, 13001), 2),
        ("alice", (9201, 14201), 1),
    ]


def test_sliding_windows_close_once_and_forget_their_records() -> None:
    bucket = Bucket(SlidingWindows(COUNT, 10, 5, is_final=True, emits_late=True))
    assert bucket.send(("k", 0, 100), ("k", 0, 104)) == []
    found = counts(bucket.send(("z", 0, 200)))
    assert found == [("k", (90, 100), 1), ("k", (94, 104), 2), ("k", (101, 111), 1)]
    assert bucket.send(("k", "late", 100)) == [Output("k", None, 100, late="late")]
    assert "k" not in bucket.state


LEFT, RIGHT = 0, 1
CHANGES = [
    ("left", "A"), ("right", "a"), ("left", "B"), ("right", "b"), ("left", None), ("right", None),
    ("right", "d"), ("left", "D"), ("right", None), ("left", None),
]  # fmt: skip
"""Changes to the two tables, each sent as a batch of its own; OUTCOMES was worked out by hand."""
OUTCOMES = {
    "inner": [None, "Aa", "Ba", "Bb", "-", None, None, "Dd", "-", None],
    "left": ["A.", "Aa", "Ba", "Bb", "-", None, None, "Dd", "D.", "-"],
    "outer": ["A.", "Aa", "Ba", "Bb", ".b", "-", ".d", "Dd", "D.", "-"],
}


@pytest.mark.parametrize("how", OUTCOMES)
def test_joins_of_tables_change_with_both_sides_and_delete(how: str) -> None:
    bucket = Bucket(TablesJoined(how))
    found = []
    for at, (side, value) in enumerate(CHANGES):
        outputs = bucket.send(("k", value, at, LEFT if side == "left" else RIGHT))
        texts = [
            "-" if each.value is None else "".join(part or "." for part in each.value)
            for each in outputs
        ]
        assert len(texts) <= 1
        found.append(texts[0] if texts else None)
    assert found == OUTCOMES[how]
    assert bucket.state == {}


def test_changes_of_a_batch_make_one_change_of_a_joined_table() -> None:
    bucket = Bucket(TablesJoined("inner"))
    assert bucket.send(("k", "A", 9, LEFT), ("k", "a", 3, RIGHT), ("k", "b", 4, RIGHT)) == [
        Output("k", ("A", "b"), 9)
    ]
    assert bucket.send(("k", None, 5, LEFT), ("k", "C", 6, LEFT)) == [Output("k", ("C", "b"), 6)]


class ForeignJoin:
    """Both steps of a foreign-key join, with the rows that the columnar step between them makes."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.first = Bucket(Subscriptions())
        self.second = Bucket(Subscribed(how))

    def send(self, *changes: tuple[str, str, Any]) -> dict[str, Any]:
        """Send changes as (side, key, value) and return the outputs by key.

        The value on the left side is (foreign key, text)."""
        left = [(key, value, 1) for side, key, value in changes if side == "left"]
        rows = [(key, value, 1, RIGHT) for side, key, value in changes if side == "right"]
        for each in self.first.send(*left) if left else ():
            before, now, value = each.value
            has_key = now is not None or self.how == "left"
            has_moved = value is not None and has_key
            if (before != now or value is None) and (before is not None or self.how == "left"):
                rows.append((before, (LEAVE, each.key, has_moved, None), 1, 0))
            if has_moved:
                moved = before is not None and before != now
                rows.append((now, (ENTER, each.key, moved, value), 1, 0))
        found = self.second.send(*rows) if rows else []
        assert len({each.key for each in found}) == len(found)
        return {each.key: each.value for each in found}


def test_a_foreign_key_join_follows_both_tables() -> None:
    join = ForeignJoin("inner")
    assert join.send(("left", "o1", ("c1", "tea")), ("left", "o2", ("c1", "jam"))) == {}
    assert join.send(("right", "c1", "Ada")) == {"o1": ("tea", "Ada"), "o2": ("jam", "Ada")}
    assert join.send(("left", "o1", ("c1", "ham"))) == {"o1": ("ham", "Ada")}
    assert join.send(("right", "c1", "Ann")) == {"o1": ("ham", "Ann"), "o2": ("jam", "Ann")}
    # The new customer does not exist, so the earlier output is deleted.
    assert join.send(("left", "o1", ("c2", "ham"))) == {"o1": None}
    assert join.send(("right", "c2", "Bob")) == {"o1": ("ham", "Bob")}
    assert join.send(("left", "o2", None)) == {"o2": None}
    assert join.send(("right", "c1", None)) == {}
    assert join.send(("right", "c2", None)) == {"o1": None}
    assert join.send(("left", "o1", None)) == {}
    assert join.first.state == join.second.state == {}


def test_a_left_foreign_key_join_keeps_those_without_a_partner() -> None:
    join = ForeignJoin("left")
    assert join.send(("left", "o1", ("c1", "tea"))) == {"o1": ("tea", None)}
    assert join.send(("right", "c1", "Ada")) == {"o1": ("tea", "Ada")}
    assert join.send(("left", "o1", (None, "tea"))) == {"o1": ("tea", None)}
    assert join.send(("left", "o1", ("c1", "tea"))) == {"o1": ("tea", "Ada")}
    assert join.send(("right", "c1", None)) == {"o1": ("tea", None)}
    assert join.send(("left", "o1", None)) == {"o1": None}
    assert join.first.state == join.second.state == {}


def test_in_one_batch_a_moved_record_is_joined_with_its_new_partner_only() -> None:
    join = ForeignJoin("inner")
    join.send(("left", "o", ("c1", "tea")), ("right", "c1", "Ada"), ("right", "c2", "Bob"))
    found = join.send(
        ("right", "c1", "Ann"), ("left", "o", ("c3", "x")), ("left", "o", ("c2", "y"))
    )
    assert found == {"o": ("y", "Bob")}


class Reminder(st.Processor):
    open_order = st.ValueStore()

    def process(self, record: st.Record) -> None:
        if record.value == "paid":
            self.cancel(self.open_order.get())
            self.open_order.clear()
        else:
            self.open_order.set(record.timestamp_ms + 100)
            self.schedule(record.timestamp_ms + 100)

    def on_timer(self, timer: st.Timer) -> None:
        self.forward(f"unpaid since {timer.at_ms - 100}")
        self.open_order.clear()


def test_a_timer_rings_when_stream_time_is_there_unless_it_is_cancelled() -> None:
    bucket = Bucket(Processing(Reminder))
    assert bucket.send(("a", "order", 10), ("b", "order", 20)) == []
    assert bucket.send(("b", "paid", 109)) == []
    assert bucket.send(("c", "order", 110)) == [Output("a", "unpaid since 10", 110)]
    assert list(bucket.state) == ["c"]


class Visits(st.Processor):
    last = st.ValueStore(ttl="100 ms")
    pages = st.MapStore(ttl="100 ms")
    seen = st.ListStore(ttl="100 ms")

    def process(self, record: st.Record) -> None:
        self.forward((self.last.get(), sorted(self.pages), list(self.seen), len(self.seen)))
        self.last.set(record.value)
        self.pages[record.value] = self.pages.get(record.value, 0) + 1
        self.seen.append(record.value)


def test_what_stores_hold_is_gone_after_its_time() -> None:
    bucket = Bucket(Processing(Visits))

    def send(value: str, at_ms: int) -> Any:
        (found,) = bucket.send(("k", value, at_ms))
        return found.value

    assert send("a", 1000) == (None, [], [], 0)
    assert send("b", 1050) == ("a", ["a"], ["a"], 1)
    assert send("c", 1100) == ("b", ["a", "b"], ["a", "b"], 2)
    # Stream time is still 1100, from the previous batch; the record written at 1000 has expired.
    assert send("d", 1149) == ("c", ["b", "c"], ["b", "c"], 2)
    assert send("e", 5000) == ("d", ["b", "c", "d"], ["b", "c", "d"], 3)
    assert send("f", 5001) == ("e", ["e"], ["e"], 1)
    bucket.send(("other", "x", 9000))
    assert list(bucket.state) == ["other"]


class Endless(st.Processor):
    def process(self, record: st.Record) -> None:
        self.schedule(record.timestamp_ms)

    def on_timer(self, timer: st.Timer) -> None:
        self.schedule(timer.at_ms)


def test_timers_that_set_each_other_for_ever_are_an_error() -> None:
    bucket = Bucket(Processing(Endless))
    with pytest.raises(RuntimeError, match="Endless: timers of key 'k' have scheduled another"):
        bucket.send(("k", 0, 5))


@pytest.mark.parametrize("name", ["count", "index", "_places", "class", "a b"])
def test_rows_have_their_columns_whatever_they_are_called(name: str) -> None:
    row = row_class((name, "other"))((1, 2))
    assert (row[name], row["other"], row[0], name in row, 1 in row) == (1, 2, 1, True, False)
    again = pickle.loads(pickle.dumps(row))
    assert (again, again["other"]) == (row, 2)
    read: Callable[[Any], Any] = lambda each: each.other  # noqa: E731
    assert read(row) == 2
    with pytest.raises(KeyError, match="no column 'x'; columns: "):
        row["x"]
    with pytest.raises(AttributeError, match="no column 'x'; columns: "):
        row.x  # noqa: B018
