"""Tests of notebook output: tables of records, topics, groups and queries, escaped and bounded."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from ottla.base import notebook
from ottla.base.types import TopicPartition
from ottla.client.admin import (
    GroupDescription,
    GroupLag,
    GroupListing,
    Listing,
    MemberDescription,
    PartitionDescription,
    PartitionLag,
    Results,
    TopicDescription,
    TopicListing,
)
from ottla.client.consumer.record import Record, Records
from ottla.client.errors import UnknownTopic
from ottla.streams.progress import QueryStatus, SourceMetrics, queries_html

ATTACK = "<script>alert('&')</script>"


def record(value: Any, key: Any = b"k", offset: int = 0) -> Record:
    return Record("orders", 0, offset, 1_700_000_000_000, 0, key, value, (), 0)


def parsed(html: str) -> ElementTree.Element:
    """Parse the HTML as XML, which fails on unescaped text and unclosed tags."""
    return ElementTree.fromstring(f"<div>{html}</div>")


def cells(html: str) -> list[list[str]]:
    rows = parsed(html).iter("tr")
    return [["".join(each.itertext()) for each in row if each.tag == "td"] for row in rows][1:]


def headings(html: str) -> list[str]:
    return [str(each.text or "") for each in parsed(html).iter("th")]


def test_records_are_a_table() -> None:
    html = Records([record(b"v", offset=7)])._repr_html_()
    assert headings(html) == [
        "topic", "partition", "offset", "timestamp", "key", "value", "headers",
    ]  # fmt: skip
    assert cells(html) == [
        ["orders", "0", "7", "2023-11-14T22:13:20.000+00:00", "k", "v", ""],
    ]  # fmt: skip
    assert record(b"v", offset=7)._repr_html_() == html


def test_what_is_left_out_is_counted() -> None:
    html = Records([record(b"v", offset=each) for each in range(1000)])._repr_html_()
    assert len(cells(html)) == notebook.MAX_ROWS
    assert html.endswith("<p>… 990 more</p>")
    assert "1,000 records" in html


@pytest.mark.parametrize(
    "value",
    [ATTACK, ATTACK.encode(), {"a": ATTACK}, [ATTACK], (ATTACK,), {ATTACK: 1}, ElementTree],
)
def test_nothing_in_a_record_becomes_markup(value: Any) -> None:
    row = Record(ATTACK, 0, 0, 0, 0, value, value, ((ATTACK, ATTACK.encode()),), 0)
    html = Records([row])._repr_html_()
    assert {each.tag for each in parsed(html).iter()} == {
        "div", "table", "caption", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    assert "<script" not in html


def test_a_long_value_is_cut_and_not_read_whole() -> None:
    for value in ("x" * 10**6, b"x" * 10**6, "é" * 10**6, ["x" * 10**6] * 10**5):
        text = cells(Records([record(value)])._repr_html_())[0][5]
        assert len(text) == notebook.MAX_CELL_CHARS
        assert text.endswith("…")


def test_bytes_that_are_no_text_and_unprintable_characters_are_shown_as_escapes() -> None:
    assert notebook.cell(b"\xff\x00a") == "\\xff\\x00a"
    assert notebook.cell("a\u202eb\n") == "a\\u202eb\\n"
    assert notebook.cell(None) == "<i>null</i>"


def test_a_timestamp_that_no_date_has_is_a_number() -> None:
    row = record(b"v")._replace(timestamp=2**62)
    assert cells(row._repr_html_())[0][3] == str(2**62)


def test_listings_have_a_column_for_each_field() -> None:
    topics = Listing({"a": TopicListing("a", None, False), "b": TopicListing("b", "id", True)})
    html = topics._repr_html_()
    assert headings(html) == ["name", "topic_id", "is_internal"]
    assert cells(html) == [["a", "null", "False"], ["b", "id", "True"]]
    groups = Listing({"g": GroupListing("g", "consumer", "Stable", "consumer", 1)})
    assert cells(groups._repr_html_()) == [["g", "consumer", "Stable", "consumer", "1"]]
    assert cells(Listing()._repr_html_()) == []


def test_results_show_what_failed() -> None:
    results: Results[str, None] = Results()
    results["a"] = None
    results.errors["b"] = UnknownTopic(ATTACK)
    html = results._repr_html_()
    assert "1 failed" in html
    assert "&lt;script&gt;" in html
    assert "<script" not in html


def test_a_topic_shows_its_partitions_and_a_listing_of_topics_how_many() -> None:
    partitions = tuple(
        PartitionDescription(number, 1, 0, (1, 2), (1,), (2,), None, None) for number in range(12)
    )
    topic = TopicDescription("orders", "id", False, partitions)
    html = topic._repr_html_()
    assert "Topic orders, replication factor 2" in html
    assert cells(html)[0] == ["0", "1", "1, 2", "1", "2"]
    assert html.endswith("… 2 more</p>")
    assert cells(Listing({"orders": topic})._repr_html_()) == [["orders", "id", "False", "12"]]


def test_a_group_shows_its_members() -> None:
    assignment = (TopicPartition("orders", 0), TopicPartition("orders", 1))
    member = MemberDescription("m-1", None, "client", "/127.0.0.1", assignment)
    group = GroupDescription("billing", "classic", "Stable", "consumer", "range", (member,), None)
    html = group._repr_html_()
    assert "Group billing, classic, Stable" in html
    assert cells(html) == [["m-1", "client", "/127.0.0.1", "orders-0, orders-1"]]


def test_a_groups_lag_is_a_table_with_the_total() -> None:
    lag = GroupLag({
        TopicPartition("orders", 0): PartitionLag(3, 10),
        TopicPartition("gone", 0): PartitionLag(1, None),
    })  # fmt: skip
    html = lag._repr_html_()
    assert "Total lag 7" in html
    assert cells(html) == [["orders", "0", "3", "10", "7"], ["gone", "0", "1", "null", "null"]]
    assert cells(Listing({"billing": lag})._repr_html_()) == [["billing", "7"]]


def test_queries_show_their_progress() -> None:
    source = SourceMetrics("orders", 10, 5.0, 3)
    status = QueryStatus(
        "totals", True, 4, 12.3, 45.6, 78, 3, 0, ATTACK, sources=(source,)
    )  # fmt: skip
    html = queries_html([status], caption="Application shop")
    assert "Application shop" in html
    assert cells(html)[0] == ["totals", ATTACK, "4", "12", "46", "78", "3", "0"]
    assert ["source", "orders", "10", "3"] in cells(status._repr_html_())
