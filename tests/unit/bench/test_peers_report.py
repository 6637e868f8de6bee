"""Tests of the report that `make bench-peers` prints."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from bench.peers import report, wire_load
from bench.peers.plots import ratios_svg
from bench.peers.rows import Row, Rows

from ottla.wire.records.batch import read_header


@pytest.fixture
def rows() -> list[Row]:
    made = Rows("latency")
    for ours, theirs in ((10.0, 5.0), (30.0, 5.0), (20.0, 5.0)):
        made.add("requests", "requests/s", ours, is_ours=True)
        made.add("requests", "requests/s", theirs, is_ours=False)
        made.add("end to end, p99", "ms", ours, is_ours=True, higher_is_better=False)
        made.add("end to end, p99", "ms", theirs, is_ours=False, higher_is_better=False)
    made.add("only ours", "ms", 1.0, is_ours=True)
    return made.whole()


def test_a_ratio_above_one_is_better_for_us_whatever_is_better(rows: list[Row]) -> None:
    assert [(row.our_figure, row.their_figure, row.ratio) for row in rows] == [
        (20.0, 5.0, 4.0),
        (20.0, 5.0, 0.25),
    ]


def test_the_page_has_every_row_and_the_reason_of_a_lost_one(
    tmp_path: Path, rows: list[Row]
) -> None:
    report.save("latency", rows, {"cores": "2"}, "2026-01-01", tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| requests | requests/s | 20.0 | Apache Kafka | 5.00 | **4.0** |" in page
    assert "| end to end, p99 | ms | 20.0 | Apache Kafka | 5.00 | 0.25 |" in page
    assert "Below 1:" in page
    assert "Measured 2026-01-01: cores 2." in page
    kept = json.loads((tmp_path / "benchmarks.json").read_text())
    assert kept["latency"]["rows"][0]["ours"] == [10.0, 30.0, 20.0], "every round"


def test_a_part_that_is_measured_again_leaves_the_others(tmp_path: Path, rows: list[Row]) -> None:
    report.save("latency", rows, {}, "2026-01-01", tmp_path)
    restarted = Row("restart", "restart", "s", ours=[1.0], theirs=[2.0], higher_is_better=False)
    report.save("restart", [restarted], {}, "2026-01-02", tmp_path)
    report.save("restart", [restarted], {}, "2026-01-03", tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert page.count("## After a crash") == 1
    assert "2026-01-01" in page
    assert "2026-01-02" not in page


def test_the_picture_is_whole_xml_with_a_bar_for_each_row(rows: list[Row]) -> None:
    picture = ElementTree.fromstring(ratios_svg("a < b", rows))
    bars = picture.findall("{http://www.w3.org/2000/svg}rect")
    assert len(bars) == 1 + len(rows), "and the ground"


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_load_is_made_of_whole_batches_that_compress(codec: str) -> None:
    batch, records = wire_load.batch_of(100, 65_536, codec)
    header = read_header(batch)
    assert header.record_count == records > 500
    assert (len(batch) < 40_000) == (codec != "none")
