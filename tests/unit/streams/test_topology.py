"""Tests that topologies are validated as they are built, and of their explain() output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import assert_type

import pytest
from examples import windowed_totals, word_count

import ottla.streams as st
from ottla.streams.durations import duration_ms, format_duration
from ottla.streams.serdes import PlainSerde, SinkSerde

ORDER = st.Json("id string, item string, amount double")
PLAIN_SERDES = [st.Bytes, st.Long, st.String]


@pytest.fixture
def app() -> st.App:
    return st.App("shop")


@pytest.fixture
def orders(app: st.App) -> st.Stream:
    return app.stream("orders", value=ORDER)


def test_explain_of_windowed_totals(app: st.App) -> None:
    windowed_totals.build(app)
    assert app.explain() == (
        " 1  stream  topic orders: key string string, value json "
        "(id string, item string, amount double)\n"
        " 2  filter  amount > 10  [columns]\n"
        " 3  select_key  item -> string  [columns]\n"
        " 4  aggregate  total=sum(amount), n=count() by key, "
        "tumbling 1 minute, grace 10 seconds  [state]\n"
        " 5  to  topic totals: key windowed string, value json  [changes]"
    )


def test_explain_of_word_count(app: st.App) -> None:
    word_count.build(app)
    assert app.explain() == (
        " 1  stream  topic lines: key string string, value string string\n"
        " 2  flat_map_values  split(lower(value), ' ') -> string  [columns]\n"
        " 3  filter  value != ''  [columns]\n"
        " 4  select_key  value -> string  [columns]\n"
        " 5  aggregate  count=count() by key  [state]\n"
        " 6  to  topic counts: key string, value json  [changes]"
    )


def test_explain_shows_what_runs_in_python_and_what_is_joined(
    app: st.App, orders: st.Stream
) -> None:
    names = app.table("names", value=st.Json("name string"))
    loud = orders.map_values(lambda o: f"{o.item}!", schema="string")
    loud.join(names, lambda item, name: {"item": item, "name": name.name}, how="left").to("named")
    assert app.explain() == (
        " 1  stream  topic orders: key string string, value json "
        "(id string, item string, amount double)\n"
        " 2  map_values  <lambda>() -> string  [Python: an f-string]\n"
        " 3  table  topic names: key string string, value json (name string)\n"
        " 4  left join of 2, 3  with the table as it is: item=left, name=right.name  [columns]\n"
        " 5  to  topic named: key string, value json  [appends]"
    )


def test_explain_of_dead_letters_and_of_duplicates(app: st.App) -> None:
    orders = app.stream("orders", value=ORDER, bad_records=st.DeadLetter("bad"))
    orders.deduplicate(lambda o: o.id, within="1 hour").to("once")
    columns = "(id string, item string, amount double)"
    assert app.explain() == (
        f" 1  bad records  topic orders: value json {columns}\n"
        " 2  to  topic bad: key bytes, value bytes  [appends]\n"
        "\n"
        f" 1  stream  topic orders: key string string, value json {columns}\n"
        " 2  deduplicate  id within 1 hour  [state]\n"
        " 3  to  topic once: key string, value json  [appends]"
    )


def test_explain_of_a_join_of_streams(app: st.App, orders: st.Stream) -> None:
    payments = app.stream("payments", value=st.Json("paid double"))
    orders.join(payments, within="5 minutes", grace="1 minute").to("paid-orders")
    assert app.explain().splitlines()[2] == (
        " 3  inner join of 1, 2  within 5 minutes, grace 1 minute: id=left.id, item=left.item, "
        "amount=left.amount, paid=right.paid  [state]"
    )


def build_merge_of_others(app: st.App, orders: st.Stream) -> None:
    orders.merge(app.stream("lines", value=st.String))


def build_two_sinks(app: st.App, orders: st.Stream) -> None:
    orders.to("x")
    orders.filter(lambda o: o.amount > 1).to("x")


def late_windows(orders: st.Stream) -> st.Grouped:
    return orders.group_by_key().windowed(st.tumbling("1 s"), late=st.DeadLetter("late"))


def table(app: st.App, topic: str = "t") -> st.Table:
    return app.table(topic, value=ORDER)


class Silent(st.Processor):
    pass


def build_second_aggregate(app: st.App, orders: st.Stream) -> None:
    orders.group_by_key().count().to_stream().group_by_key().count()


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda app, o: o.filter(lambda v: v.amount),
            "filter .*: the function must return a boolean",
        ),
        (
            lambda app, o: o.map_values(lambda v: f"{v.id}"),
            r"map_values .* runs in Python \(an f-string\), so specify what it returns: schema=",
        ),
        (
            lambda app, o: o.group_by_key().aggregate(x=st.sum("amuont")),
            "aggregate .*unknown column 'amuont'; columns: id, item, amount",
        ),
        (
            lambda app, o: o.group_by_key().aggregate(x=st.sum("item")),
            "column item string is not a number",
        ),
        (
            lambda app, o: o.group_by_key().aggregate(x=st.max()),
            "name one of the columns: id, item, amount",
        ),
        (lambda app, o: o.group_by_key().aggregate(), "name at least one aggregate"),
        (lambda app, o: o.group_by_key().count().suppress(), "only windows close"),
        (
            lambda app, o: o.group_by_key().windowed("1 minute"),
            r"windowed .*the window must be st\.tumbling, st\.hopping, st\.sliding or st\.session",
        ),
        (
            lambda app, o: o.group_by_key().windowed(st.session("5 s"), late="keep"),
            r"late='keep' is invalid; use drop or st\.DeadLetter\(topic\)",
        ),
        (
            lambda app, o: late_windows(o).count().to_stream().filter(lambda v: v.count > 1),
            r"to_stream .*write the table with to\(topic\) first, and continue from app\.table",
        ),
        (lambda app, o: o.group_by_key().aggregate(dict), r"pass two functions"),
        (lambda app, o: o.group_by_key().aggregate(dict, max), r"specify the result: schema="),
        (
            lambda app, o: o.group_by_key().aggregate(dict, lambda a: a, schema="int"),
            "must take 2 or 3 arguments",
        ),
        (
            lambda app, o: o.group_by_key().aggregate(dict, max, schema="int", n=st.count()),
            "pass either functions or n, not both",
        ),
        (
            lambda app, o: (
                o.group_by_key()
                .windowed(st.session("5 s"))
                .aggregate(int, lambda a, v: a + 1, schema="int")
            ),
            "aggregate .*sessions can merge; pass merge=",
        ),
        (
            lambda app, o: o.group_by_key().reduce(max).to_stream().process(Silent, schema="int"),
            r"process .*is already aggregated; write it with to\(topic\) and continue from app",
        ),
        (lambda app, o: o.map(lambda v: v.id), r"map .*must return \(key, value\)"),
        (lambda app, o: o.map(lambda v: (v.id, f"{v.id}")), r'key_schema="string", schema='),
        (lambda app, o: o.repartition(0), "repartition .*is invalid; use an integer of at least 1"),
        (lambda app, o: o.peek(3), "peek .*3 is not a function"),
        (lambda app, o: o.print("a b"), "print .*label 'a b'"),
        (lambda app, o: o.process(dict, schema="int"), r"does not create an st\.Processor"),
        (
            lambda app, o: o.process(Silent, schema="int"),
            r"Silent does not define process\(self, record\)",
        ),
        (
            lambda app, o: table(app).join(table(app, "u"), how="right"),
            "valid values: inner, left, outer",
        ),
        (
            lambda app, o: table(app).join(table(app, "u"), on=lambda t: t.id, how="outer"),
            "valid values: inner, left$",
        ),
        (
            lambda app, o: table(app).join(
                app.table("u", value=st.Json("name string")), on=lambda t: t.amount
            ),
            "join on .*the foreign key is double, the key of the other table string",
        ),
        (lambda app, o: table(app).join(o), "a table joins only tables"),
        (
            lambda app, o: o.group_by_key().count().join(table(app)),
            r"join .*is already aggregated; write it with to\(topic\)",
        ),
        (lambda app, o: o.join(table(app), lambda a, b: a.id, on=lambda v: v.id), "global_table"),
        (lambda app, o: o.join(3, within="1 s"), "3 is not a stream, table or global table"),
        (
            lambda app, o: o.join(
                app.global_table("g", value=ORDER), lambda a, b: a.id, on=lambda v: v.amount
            ),
            "keys differ: double and string; use on=",
        ),
        (lambda app, o: o.join(o, lambda a, b: a.id), 'join .*within="5 minutes"'),
        (lambda app, o: o.join(o, within="1 s"), "both sides have id, item, amount"),
        (lambda app, o: o.join(o, within="1 s", how="cross"), "valid values: inner, left, outer"),
        (
            lambda app, o: o.select_key(lambda v: v.amount).join(o, within="1 s"),
            "keys differ: double and string; use select_key",
        ),
        (
            lambda app, o: o.join(o.group_by_key().count()),
            "the table must be a topic",
        ),
        (lambda app, o: o.flat_map_values(lambda v: v.item), "must return a list"),
        (lambda app, o: o.to("x", value=st.Long), "cannot be written as long"),
        (build_merge_of_others, r"values differ: \(id string, .*\) and string"),
        (lambda app, o: o.to("orders"), "would read topic 'orders' as well, so it would never end"),
        (
            lambda app, o: (
                o.group_by_key().count().to_stream().merge(o.group_by_key().count().to_stream())
            ),
            r"merge .*a query can have only one; write one of them with to\(topic\)",
        ),
        (build_two_sinks, "topic 'x' is already written"),
        (build_second_aggregate, r"is already aggregated; write it with to\(topic\)"),
        (lambda app, o: app.stream("t", value="json"), "value='json' is not a serde"),
        (lambda app, o: app.stream("t", value=st.Json), r"value=st\.Json needs the columns"),
        (lambda app, o: app.table("t", value=st.Json()), r"value=st\.Json needs the columns"),
        (lambda app, o: o.to("t", value="json"), "value='json' is not a serde"),
        (
            lambda app, o: app.stream("t", bad_records="ignore"),
            r"valid values: stop, drop, st.DeadLetter\(topic\)",
        ),
        (
            lambda app, o: app.table("t", value=ORDER, bad_records=st.DeadLetter("x")),
            "valid values: stop, drop$",
        ),
        (
            lambda app, o: o.deduplicate(lambda v: f"{v.id}", within="1 s"),
            "deduplicate .*would run in Python",
        ),
        (lambda app, o: app.explain(), "writes no topic"),
        (lambda app, o: st.App("a b"), "App name 'a b'"),
        (lambda app, o: st.Json("id strin"), "'strin' is not a type; types: bigint, binary"),
        (lambda app, o: st.Json("id string, id int"), "'id' twice"),
        (lambda app, o: st.tumbling("1 lightyear"), 'is invalid. Use "10 seconds"'),
        (lambda app, o: st.tumbling("0 s"), "size must be at least 1 milliseconds"),
        (lambda app, o: st.hopping("1 s", every="2 s"), "longer than size"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(
    app: st.App, orders: st.Stream, build: Callable[[st.App, st.Stream], object], sentence: str
) -> None:
    with pytest.raises(st.TopologyError, match=sentence):
        build(app, orders)


def test_explain_distinguishes_python_state_from_sparks(app: st.App, orders: st.Stream) -> None:
    amounts = orders.map_values(lambda o: o.amount).group_by_key()
    amounts.reduce(lambda one, other: one + other).to("summed")
    amounts.reduce(lambda one, other: max(one, other, 0.0)).to("most")
    amounts.reduce(min).to("least")
    late_windows(orders).count().suppress().to("closed")
    explained = [each.splitlines() for each in app.explain().split("\n\n")]
    assert explained[0][2:] == [
        " 3  aggregate  value=sum() by key  [state]",
        " 4  map_values  value -> double  [columns]",
        " 5  to  topic summed: key string, value json  [changes]",
    ]
    assert explained[1][2:] == [
        " 3  reduce  <lambda>() by key -> double  [Python state: functions with state]",
        " 4  to  topic most: key string, value json  [appends]",
    ]
    assert explained[2][2] == " 3  aggregate  value=min() by key  [state]"
    assert explained[3][1:] == [
        " 2  aggregate  count=count() by key, tumbling 1 second, grace 0 seconds -> "
        "(window_start timestamp, window_end timestamp, count bigint)  "
        "[Python state: late records are emitted]",
        " 3  suppress  until the window closes",
        " 4  to  topic closed: key windowed string, value json, late records to late  [appends]",
    ]


def test_explain_shows_what_of_a_lookup_runs_in_python(app: st.App, orders: st.Stream) -> None:
    names = app.global_table("names", value=st.Json("name string"))
    orders.join(names, on=lambda o: f"{o.id}").print("named")
    assert app.explain().splitlines()[2:] == [
        " 3  inner join of 1, 2  on <lambda>(), with the table as it is: id=left.id, "
        "item=left.item, amount=left.amount, name=right.name  [columns; on: Python: an f-string]",
        " 4  print  [named]: key, value  [appends]",
    ]


def test_operators_leave_their_stream_as_it_was(orders: st.Stream) -> None:
    renamed = orders.map_values(lambda o: {"what": o.item})
    assert orders.columns == ("id", "item", "amount")
    assert renamed.columns == ("what",)


def test_the_topology_identifies_python_functions_by_their_code(app: st.App) -> None:
    def plan(function: Callable[..., object]) -> str:
        made = st.App("x")
        made.stream("t", value=ORDER).filter(function).to("u")
        return made.topology()

    def processed(kind: type[st.Processor]) -> str:
        made = st.App("x")
        made.stream("t", value=ORDER).process(kind, schema="int").to("u")
        return made.topology()

    class One(st.Processor):
        def process(self, record: st.Record) -> None:
            self.forward(1)

    class Two(st.Processor):
        def process(self, record: st.Record) -> None:
            self.forward(2)

    Two.__name__ = "One"
    assert plan(lambda o: o.amount // 2 > 1) != plan(lambda o: o.amount // 3 > 1)
    assert processed(One) != processed(Two)
    assert "[" not in plan(lambda o: o.amount > 1)


def test_durations() -> None:
    assert duration_ms("1 minute 30 seconds", name="x") == 90_000
    assert duration_ms("500ms", name="x") == 500
    assert duration_ms(timedelta(hours=2), name="x") == 7_200_000
    assert [format_duration(each) for each in (0, 1, 1000, 90_000, 120_000, 86_400_000)] == [
        "0 seconds",
        "1 milliseconds",
        "1 second",
        "90 seconds",
        "2 minutes",
        "1 day",
    ]


def test_building_and_explaining_needs_no_spark() -> None:
    code = (
        "import sys, ottla.streams as st; a = st.App('x'); a.stream('t').to('u'); a.explain(); "
        "sys.exit(any(m in sys.modules for m in ('pyspark', 'pyarrow', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("serde", PLAIN_SERDES)
def test_a_serde_without_parameters_may_be_called(serde: PlainSerde) -> None:
    assert_type(serde(), PlainSerde)
    assert serde() is serde
    app = st.App("called")
    app.stream("a", key=serde(), value=serde()).to("b", key=serde(), value=serde())
    plain = st.App("called")
    plain.stream("a", key=serde, value=serde).to("b", key=serde, value=serde)
    assert app.explain() == plain.explain()


def test_every_serde_without_parameters_is_tested() -> None:
    plain = [each for each in vars(st).values() if isinstance(each, PlainSerde)]
    assert plain == PLAIN_SERDES


@pytest.mark.parametrize("serde", [st.Json, st.Json(), ORDER])
def test_to_writes_json_with_its_own_columns(serde: SinkSerde) -> None:
    app = st.App("json")
    app.stream("orders", value=ORDER).to("copies", value=serde)
    plain = st.App("json")
    plain.stream("orders", value=ORDER).to("copies")
    assert app.explain() == plain.explain()


def test_json_may_be_a_plain_value(app: st.App) -> None:
    halves = app.stream("halves", key=st.Json("int"), value=st.Json("double"))
    halves.to("copies", key=st.Json, value=st.Json("double"))
    assert app.explain() == (
        " 1  stream  topic halves: key json int, value json double\n"
        " 2  to  topic copies: key json, value json  [appends]"
    )
    records = halves.map_values(lambda half: {"value": half})
    with pytest.raises(st.TopologyError, match="cannot be written as json double"):
        records.to("records", value=st.Json("double"))
    with pytest.raises(st.TopologyError, match="cannot be written as json"):
        halves.to("records", value=st.Json("value double"))


# ------------------------------------------------------------------------------ deprecated names


def topology_of(build: Callable[[st.App], None]) -> str:
    app = st.App("old")
    build(app)
    return app.topology()


def test_through_is_deprecated_in_favour_of_to_and_a_source() -> None:
    columns = "id string, item string, amount double"

    def old(app: st.App) -> None:
        orders = app.stream("orders", value=st.Json(columns))
        with pytest.warns(DeprecationWarning, match=r"Use to\(topic\), .* app\.stream") as warned:
            between = orders.through("between")
        assert warned[0].filename == __file__
        between.filter(lambda o: o.amount > 1).to("out")
        counts = orders.group_by_key().count()
        with pytest.warns(DeprecationWarning, match=r"Use to\(topic\), .* app\.table") as warned:
            table = counts.through("counts")
        assert warned[0].filename == __file__
        table.filter(lambda v: v.count > 1).to("many")

    def new(app: st.App) -> None:
        orders = app.stream("orders", value=st.Json(columns))
        orders.to("between")
        app.stream("between", value=st.Json(columns)).filter(lambda o: o.amount > 1).to("out")
        orders.group_by_key().count().to("counts")
        counts = app.table("counts", value=st.Json("count bigint"))
        counts.filter(lambda v: v.count > 1).to("many")

    assert topology_of(old) == topology_of(new)


def test_transform_is_deprecated_in_favour_of_transform_df() -> None:
    def old(made: st.App) -> None:
        with pytest.warns(DeprecationWarning, match="Use transform_df") as warned:
            made.stream("t", value=ORDER).transform(len, "n int", key_schema="int").to("u")
        assert warned[0].filename == __file__

    def new(made: st.App) -> None:
        made.stream("t", value=ORDER).transform_df(len, "n int", key_schema="int").to("u")

    assert topology_of(old) == topology_of(new)


def test_df_is_deprecated_in_favour_of_to_df(
    orders: st.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(st.Stream, "to_df", lambda stream: "rows")
    with pytest.warns(DeprecationWarning, match=r"Use to_df\(\)") as warned:
        rows = orders.df
    assert rows == "rows"
    assert warned[0].filename == __file__
