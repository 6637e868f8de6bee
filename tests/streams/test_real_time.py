"""Applications with latency="real-time": Python functions beside Spark's tasks, and refusals."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import ottla.streams as st
from ottla.streams.errors import TopologyError

ORDERS = st.Json("item string, amount double")


def app_of(**settings: Any) -> st.App:
    return st.App("real", latency="real-time", **settings)


# ------------------------------------------------------------------------- without Spark


def test_arguments_are_checked() -> None:
    with pytest.raises(TopologyError, match="latency='fast' is invalid"):
        st.App("real", latency="fast")
    with pytest.raises(TopologyError, match="commit_interval applies only to latency='real-time'"):
        st.App("real", commit_interval="10 seconds")
    with pytest.raises(TopologyError, match="commit_interval"):
        app_of(commit_interval="1 second")
    assert app_of().application().commit_interval == "30000 milliseconds"


def joined(app: st.App) -> st.Stream:
    left, right = (app.stream(topic, value=ORDERS) for topic in ("a", "b"))
    return left.join(right, lambda a, b: {"n": a.amount}, within="1 minute")


def reduced(app: st.App) -> Any:
    texts = app.stream("a", value=st.String)
    return texts.group_by_key().reduce(lambda a, b: a + b)


@pytest.mark.parametrize(
    ("build", "operator"),
    [
        (joined, "inner join"),
        (reduced, "reduce"),
        (lambda app: app.table("a", value=ORDERS).filter(lambda o: o.amount > 1), "table"),
    ],
)
def test_operators_that_need_micro_batches_are_refused_by_name(build: Any, operator: str) -> None:
    with pytest.raises(TopologyError, match=rf"^{operator} \(.*\): a real-time app"):
        build(app_of()).to("out")


def test_printing_is_refused() -> None:
    with pytest.raises(TopologyError, match="print"):
        app_of().stream("a", value=ORDERS).print("seen")


# ---------------------------------------------------------------------------- with Spark


def read_until(bootstrap: str, topic: str, count: int, running: Any) -> list[tuple[str, Any]]:
    from ottla import Consumer, TopicPartition

    found: list[tuple[str, Any]] = []
    deadline = time.monotonic() + 120
    with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        while len(found) < count:
            assert time.monotonic() < deadline, (found, running.status())
            running.supervise(print)
            found += [
                (each.key.decode(), json.loads(each.value)) for each in consumer.poll(timeout_s=0.2)
            ]
    return found


@pytest.mark.timeout(600)
def test_python_functions_run_in_real_time(spark: Any, broker: Any, tmp_path: Path) -> None:
    from ottla import Admin, NewTopic, Producer

    bootstrap = broker.bootstrap
    with Admin(bootstrap) as admin:
        for topic in ("orders", "large"):
            admin.create_topics(NewTopic(topic, 1))
    app = st.App("shop", bootstrap, state_dir=tmp_path, latency="real-time", commit_interval="5 s")
    orders = app.stream("orders", value=ORDERS)

    def words(order: Any) -> list[dict[str, Any]]:
        return [{"word": word, "size": len(word)} for word in order.item.split()]

    large = orders.filter(lambda order: order.amount > 10)
    large.flat_map_values(words, schema="word string, size int").filter(
        lambda word: str(word.word).isalpha()
    ).to("large")
    with Producer(bootstrap) as producer:
        for item, amount in (("red apples", 20), ("figs", 5), ("4 pears", 30)):
            producer.send("orders", json.dumps({"item": item, "amount": amount}).encode(), key=b"k")
    running = app.start()
    try:
        found = read_until(bootstrap, "large", 3, running)
        assert found == [
            ("k", {"word": "red", "size": 3}),
            ("k", {"word": "apples", "size": 6}),
            ("k", {"word": "pears", "size": 5}),
        ]
    finally:
        running.stop()


@pytest.mark.timeout(600)
def test_windows_are_counted_in_real_time(spark: Any, broker: Any, tmp_path: Path) -> None:
    from ottla import Admin, NewTopic, Producer

    bootstrap = broker.bootstrap
    with Admin(bootstrap) as admin:
        for topic in ("clicks", "counts"):
            admin.create_topics(NewTopic(topic, 1))
    app = st.App(
        "web", bootstrap, state_dir=tmp_path, latency="real-time", commit_interval="5 s",
        spark={"spark.sql.shuffle.partitions": "1"},  # the tests' session has three cores
    )  # fmt: skip
    clicks = app.stream("clicks", value=st.String).select_key(_host, schema="string")
    counts = clicks.group_by_key().windowed(st.tumbling("1 minute")).aggregate(n=st.count())
    counts.to("counts", key=st.String, value=st.Json)
    running = app.start()
    try:
        with Producer(bootstrap) as producer:
            for url in ("http://a/1", "http://b/1", "http://a/2"):
                producer.send("clicks", url.encode(), timestamp=60_000)
        found = read_until(bootstrap, "counts", 3, running)
        assert [(key, value["n"]) for key, value in found] == [("a", 1), ("b", 1), ("a", 2)]
    finally:
        running.stop()


def commits(folder: Path) -> set[str]:
    return {each.name for each in folder.glob("[0-9]*")}


def wait_for_commits(running: Any, folder: Path, count: int) -> None:
    """Wait until the query has committed `count` batches more."""
    before = commits(folder)
    deadline = time.monotonic() + 120
    while len(commits(folder) - before) < count:
        assert time.monotonic() < deadline
        running.supervise(print)
        time.sleep(0.05)


@pytest.mark.timeout(600)
def test_duplicates_are_dropped_in_real_time_and_after_a_restart(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    from ottla import Admin, NewTopic, Producer

    bootstrap = broker.bootstrap
    with Admin(bootstrap) as admin:
        for topic in ("events", "once"):
            admin.create_topics(NewTopic(topic, 1))
    batches = tmp_path / "dedup" / "once" / "commits"

    def start() -> Any:
        app = st.App(
            "dedup", bootstrap, state_dir=tmp_path, latency="real-time", commit_interval="5 s",
            spark={"spark.sql.shuffle.partitions": "1"},
        )  # fmt: skip
        events = app.stream("events", value=st.Json("id string, n int"))
        sized = events.map_values(_with_size, schema="id string, size int")
        sized.deduplicate(lambda event: event.id, within="1 minute").to("once", value=st.Json)
        return app.start()

    def send(minute: int, *names: str) -> None:
        with Producer(bootstrap) as producer:
            for each in names:
                value = json.dumps({"id": each, "n": minute}).encode()
                producer.send("events", value, key=b"k", timestamp=minute * 60_000)

    def seen(count: int, running: Any) -> list[str]:
        return [value["id"] for _, value in read_until(bootstrap, "once", count, running)]

    send(10, "a", "b", "a", "c")
    running = start()
    try:
        assert seen(3, running) == ["a", "b", "c"]
        wait_for_commits(running, batches, 1)
    finally:
        running.stop()
    send(10, "b", "d")
    running = start()
    try:
        assert seen(4, running) == ["a", "b", "c", "d"]
        send(20, "e")
        assert seen(5, running)[4:] == ["e"]
        wait_for_commits(running, batches, 2)  # the watermark passes minute 11 between them
        send(18, "late")
        send(20, "a", "e", "f")
        assert seen(7, running)[5:] == ["a", "f"]
    finally:
        running.stop()


@pytest.mark.timeout(600)
def test_a_window_counts_what_a_deduplication_leaves_in_real_time(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    from ottla import Admin, NewTopic, Producer

    if spark.sparkContext.defaultParallelism < 3:
        pytest.skip("needs three cores, and another folder's tests have started this session")
    bootstrap = broker.bootstrap
    with Admin(bootstrap) as admin:
        for topic in ("visits", "visitors"):
            admin.create_topics(NewTopic(topic, 1))
    app = st.App(
        "site", bootstrap, state_dir=tmp_path, latency="real-time", commit_interval="5 s",
        spark={"spark.sql.shuffle.partitions": "1"},
    )  # fmt: skip
    visits = app.stream("visits", key=st.String, value=st.String)
    unique = visits.deduplicate(lambda visitor: visitor, within="1 minute")
    windows = unique.group_by_key().windowed(st.tumbling("1 hour", grace="1 minute"))
    windows.aggregate(n=st.count()).to("visitors", key=st.String, value=st.Json)
    running = app.start()
    try:
        with Producer(bootstrap) as producer:
            for visitor in ("ann", "bob", "ann", "eve"):
                producer.send("visits", visitor.encode(), key=b"page", timestamp=60_000)
        found = read_until(bootstrap, "visitors", 3, running)
        assert [(key, value["n"]) for key, value in found] == [("page", n) for n in (1, 2, 3)]
    finally:
        running.stop()


@pytest.mark.timeout(600)
def test_a_real_time_query_gains_and_loses_topics(spark: Any, broker: Any, tmp_path: Path) -> None:
    from ottla import Admin, NewTopic, Producer

    bootstrap = broker.bootstrap
    with Admin(bootstrap) as admin:
        for topic in ("here", "there", "both"):
            admin.create_topics(NewTopic(topic, 1))

    def run(seen: int, *topics: str) -> list[Any]:
        app = st.App(
            "move", bootstrap, state_dir=tmp_path, latency="real-time", commit_interval="5 s"
        )
        streams = [app.stream(topic, value=st.String) for topic in topics]
        for each in streams[1:]:
            streams[0] = streams[0].merge(each)
        streams[0].map_values(lambda value: {"value": value}).to("both", value=st.Json)
        for topic in topics:
            with Producer(bootstrap) as producer:
                producer.send(topic, topic.encode(), key=b"k")
        running = app.start()
        try:
            found = read_until(bootstrap, "both", seen, running)
            wait_for_commits(running, tmp_path / "move" / "both" / "commits", 1)
        finally:
            running.stop()
        return sorted(each["value"] for _, each in found)

    assert run(1, "here") == ["here"]
    assert run(3, "here", "there") == ["here", "here", "there"]
    assert run(4, "there") == ["here", "here", "there", "there"]
    assert run(6, "here", "there") == ["here"] * 3 + ["there"] * 3


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).netloc


def _with_size(event: Any) -> dict[str, Any]:
    return {"id": event.id, "size": len(event.id)}
