"""`ottla sql`: queries answered without Spark have Spark's results, and errors are one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.spark.conftest import Topic

import ottla.spark
from ottla import Producer
from ottla.cli.sql import direct, on_spark
from ottla.cli.sql.command import sql
from ottla.cli.sql.on_spark import ParseOptions, Source
from ottla.cli.sql.statement import parse
from ottla.spark.topic_snapshot import TopicSnapshot

ROWS = [
    '{"id": 1, "price": 1.5, "region": "n", "ok": true}',
    '{"price": 2, "id": 2, "region": "s"}',
    None,
    '{"id": null, "region": "\\u00e9\\n\\"", "price": -3e-7}',
    '{"id": -9223372036854775808, "region": "", "ok": false}',
    '{"id": 1, "price": 1.5, "region": "n", "ok": true}',
    "{}",
]
SIMPLE = [
    "select count(*) from {}",
    "select COUNT(*) AS n from {} limit 1;",
    "select count(*) from {} limit 0",
    "select count(*) from {} where _partition = 1 and _offset >= 2",
    "select * from {}",
    "select * from {} limit 3",
    "select _offset, id i, region as `the region`, id from {} where _partition <> 1",
    "select id, price from {} where price >= 1.5 and region = 'n'",
    "select id from {} where price < 2",
    "select id from {} where ok is null and id is not null",
    "select count(*) from {} where id > 1",
    "select region from {} where region > '' and _topic <> 'x'",
    "select _key, _timestamp, _topic from {} where _offset < 2",
]


@pytest.fixture
def shared_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(ottla.spark, "session", lambda *_, **__: spark, raising=False)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    return spark


def run(topic: Topic, statement: str, *options: str) -> Result:
    where = ["--bootstrap-server", topic.broker.bootstrap]
    return CliRunner().invoke(sql, [statement.format(f"`{topic.name}`"), *where, *options])


def source(topic: Topic) -> Source:
    options = {"subscribe": topic.name, "kafka.bootstrap.servers": topic.broker.bootstrap}
    return Source(TopicSnapshot(options), options)


def typed(rows: list[tuple[Any, ...]]) -> list[list[tuple[type, Any]]]:
    return [[(type(value), value) for value in map(plain, row)] for row in rows]


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def both(topic: Topic, statement: str, value_format: str) -> None:
    """Check that a statement has the same result with and without Spark."""
    text = statement.format(f"`{topic.name}`")
    simple = parse(text)
    assert simple is not None
    found = direct.execute(simple, source(topic).snapshot, value_format, 1000)
    columns, rows = on_spark.run(
        text, [source(topic)], ParseOptions(value_format, None, "fail"), [topic.name],
        master="local[2]", max_rows=1000, log=None,
    )  # fmt: skip
    assert (found.columns, typed(found.rows)) == (columns, typed(rows)), text


def test_simple_statements_have_the_answers_of_spark(
    shared_session: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(3)
    topic.fill(ROWS, partition=0, key=b"\xffkey", timestamp=1_234_567_890_123)
    topic.fill(ROWS[:3], partition=1)
    for statement in SIMPLE:
        both(topic, statement, "auto")


def test_texts_and_bytes_have_the_answers_of_spark(
    shared_session: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(["one", "", None, "zwei ü", '{"id": 1}'])
    both(topic, "select * from {} where value > 'a'", "auto")
    both(topic, "select value, _offset from {}", "string")
    both(topic, "select value from {} limit 2", "raw")


def test_a_count_leaves_out_markers_and_aborted_records(
    shared_session: Any, make_topic: Callable[..., Topic], tmp_path: Any
) -> None:
    topic = make_topic(1)
    with Producer(topic.broker.bootstrap, transactional_id=f"{topic.name}-writer") as producer:
        with producer.transaction():
            producer.send(topic.name, b"kept")
        producer.begin_transaction()
        producer.send(topic.name, b"aborted")
        producer.flush()
        producer.abort_transaction()
    topic._settle()
    both(topic, "select count(*) from {}", "auto")
    config = tmp_path / "client.properties"
    config.write_text("isolation.level=read_committed\n")
    done = run(topic, "select count(*) from {}", "--command-config", str(config))
    assert done.output.split() == ["count(1)", "1"], done.exception


@pytest.mark.parametrize(
    "values",
    [
        ['{"id": 1}', '{"id": "one"}'],  # one field with two types
        ['{"id": 1, "ID": 2}'],
        ['{"id": 99999999999999999999}'],
        ['{"id": {"nested": 1}}'],
        ['{"id": null}'],
        ['{"id": 1, "id": 2}'],
        ['{"id": NaN}'],
        ['{"_offset": 1}'],
    ],
)
def test_values_that_parsers_disagree_about_are_left_to_spark(
    broker: Any, make_topic: Callable[..., Topic], values: list[str]
) -> None:
    topic = make_topic(1)
    topic.fill(values)
    simple = parse(f"select * from `{topic.name}`")
    assert simple is not None
    with pytest.raises(direct.NeedsSpark):
        direct.execute(simple, source(topic).snapshot, "auto", 10)


def test_statements_run_on_spark_and_print_tables_or_json(
    shared_session: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill([json.dumps({"region": "n" if n % 2 else "s", "price": n}) for n in range(6)])
    statement = "select region, sum(price) total from {} group by region order by region"
    done = run(topic, statement)
    assert done.output.splitlines() == ["region total", "n      9", "s      6"], done.exception
    assert json.loads(run(topic, statement, "--json").output) == [
        {"region": "n", "total": 9},
        {"region": "s", "total": 6},
    ]


def test_large_topics_are_read_by_sparks_own_tasks(
    shared_session: Any, make_topic: Callable[..., Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1)
    topic.fill(['{"id": 1}', '{"id": 2}'])
    monkeypatch.setattr(on_spark, "MAX_LOCAL_BYTES", 10)
    assert run(topic, "select sum(id) from {}").output.split() == ["sum(id)", "3"]


def test_a_note_explains_why_values_are_not_read_as_json(
    shared_session: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(['{"id": 1}', '{"id": 2}', "broken {", '{"id": 4}'])
    done = run(topic, "select value from {} limit 1")
    assert done.stdout.splitlines() == ["value", '{"id": 1}']
    assert "1 of its 4 newest values is not a JSON object" in done.stderr
    assert "partition 0, offset 2: 'broken {' is not JSON" in done.stderr
    assert "--value-format json --mode drop" in done.stderr
    done = run(topic, "select id from {}", "--value-format", "json", "--mode", "drop")
    assert done.stdout.split() == ["id", "1", "2", "4"], done.exception
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("select regio from {}", "Column 'regio' does not exist. Did you mean 'region'?"),
        ("select sum(regio) from {}", "Column 'regio' does not exist. Did you mean 'region'?"),
        ("select value from {}", "--value-format string reads them as text."),
        ("select * from `{}x`", "' does not exist. Did you mean `topic-"),
        ("select max(id) from `{}x`", "' does not exist. Did you mean `topic-"),
        ("select id frm {} x", "Syntax error in the SQL at line 1, position "),
        ("select cast(region as int) from {}", "The value 'n' of the type \"STRING\" cannot be"),
        ("select * from web-logs", "Quote names that are not plain words with backticks: `web-"),
    ],
)
def test_errors_are_one_sentence_that_names_the_object(
    shared_session: Any, make_topic: Callable[..., Topic], statement: str, sentence: str
) -> None:
    topic = make_topic(1)
    topic.fill(['{"id": 1, "region": "n"}'])
    text = statement.replace("`{}x`", f"`{topic.name}x`")
    done = run(topic, text)
    assert sentence in str(done.exception)
    assert "\n" not in str(done.exception)
    assert len(str(done.exception)) < 400
    assert done.output == ""


def test_a_bad_value_among_json_is_named(
    shared_session: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(['{"id": 1}', "broken"])
    done = run(topic, "select max(id) from {}", "--value-format", "json")
    assert "partition 0, offset 1: 'broken' is not JSON" in str(done.exception)
    assert "--mode drop" in str(done.exception)
    topic.fill([b"\xff"])
    done = run(topic, "select max(value) from {}", "--value-format", "string")
    assert "is not UTF-8" in str(done.exception)
