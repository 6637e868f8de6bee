"""Bulk loads that Spark reads in parts: complete, exactly once, and from one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.connect.databases.test_jdbc import Source, Target, target

from ottla.base.errors import UserError
from ottla.connect import session
from ottla.connect.api import RetriableError
from ottla.connect.connectors.jdbc import spark_read

__all__ = ["target"]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[Any]:
    """Yield the Spark session of the process, which connectors do not close here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "stop", lambda: None)
        patch.setattr(session, "_session", None)
        session.configure({"spark.master": "local[2]"})
        yield session.spark_session()


def in_parts(target: Target, folder: Path, **given: str) -> Source:
    given = {"poll_interval_ms": "600000", "batch_max_rows": "700", **given}
    return Source(target, mode="bulk", num_partitions="4", checkpoint_location=str(folder), **given)


def fill(target: Target, rows: int) -> None:
    kind = "DATETIME(6)" if target.kind == "mariadb" else "TIMESTAMP"
    target.run(
        f"CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, price NUMERIC(8,2), at {kind})"
    )
    at = "2024-02-{:02} 12:34:56.789000"
    values = (f"({n}, {n}.25, '{at.format(n % 28 + 1)}')" for n in range(rows))
    target.run(
        f"INSERT INTO items VALUES {', '.join(values)}", "INSERT INTO items (id) VALUES (-7)"
    )


@pytest.mark.parametrize(
    "column", ["", *(pytest.param(each, marks=pytest.mark.chaos) for each in ("at", "price"))]
)
def test_a_load_in_parts_is_that_of_one_whatever_restarts(
    target: Target, tmp_path: Path, column: str
) -> None:
    fill(target, 3000)
    plain = Source(target, mode="bulk", poll_interval_ms="600000")
    wanted = plain.until(3001)
    plain.task.stop()
    source = in_parts(target, tmp_path / "loads", partition_column=column)
    found = source.until(3001, restarts=True)
    assert sorted(found, key=lambda row: row["id"]) == wanted
    assert source.records[0].value_schema == plain.records[0].value_schema
    assert source.records[0].topic == "t-items"
    assert source.offsets[0][1] == {"turn": 1}
    source.task.commit(source.offsets)
    assert not list((tmp_path / "loads").glob("*/*"))
    source.task.stop()


def test_a_query_is_read_in_parts(target: Target, tmp_path: Path) -> None:
    fill(target, 1000)
    query = "SELECT id AS number, 'a:b' AS said FROM items WHERE id >= 0"
    source = in_parts(
        target, tmp_path, query=query, topic_prefix="numbers", partition_column="number"
    )
    found = source.until(1000)
    assert sorted(row["number"] for row in found) == list(range(1000))
    assert {row["said"] for row in found} == {"a:b"}
    source.task.stop()
    source = in_parts(target, tmp_path / "x", query=query, topic_prefix="n", partition_column="no")
    with pytest.raises(UserError, match="The query returns no column no"):
        source.until(1)
    source.task.stop()
    source = in_parts(
        target, tmp_path / "x", query=query, topic_prefix="n", partition_column="said"
    )
    with pytest.raises(UserError, match="'a:b' is neither a number nor a time"):
        source.until(1)
    source.task.stop()


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_all_parts_are_of_one_moment(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows move between parts while the load is planned, but all parts are of one snapshot."""
    fill(target, 1000)
    split = spark_read.split

    def split_late(*bounds: Any) -> Any:
        target.run("UPDATE items SET id = 5000 - id", "DELETE FROM items WHERE id > 4500")
        return split(*bounds)

    monkeypatch.setattr(spark_read, "split", split_late)
    source = in_parts(target, tmp_path)
    assert sorted(row["id"] for row in source.until(1001)) == [-7, *range(1000)]
    source.task.stop()


def test_what_cannot_be_read_in_parts_is_reported(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(target, 10)
    target.run("CREATE TABLE words (word VARCHAR(9) NOT NULL PRIMARY KEY)")
    target.run("CREATE TABLE loose (n INTEGER)")
    with pytest.raises(UserError, match=r"items .*has no column nothing.*num\.partitions=1"):
        in_parts(target, tmp_path, partition_column="nothing", table_whitelist="items")
    reason = (
        "words cannot be read in parallel because it has neither numbers nor times in column word"
    )
    with pytest.raises(UserError, match=reason):
        in_parts(target, tmp_path, table_whitelist="words")
    with pytest.raises(UserError, match=r"loose .*has no primary key\. Set partition"):
        in_parts(target, tmp_path, table_whitelist="loose")
    (tmp_path / "file").write_text("")
    source = in_parts(target, tmp_path / "file" / "x", table_whitelist="items")
    with pytest.raises(UserError, match=r"Cannot use checkpoint\.location"):
        source.until(1)
    source.task.stop()


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_a_part_that_fails_fails_the_load_which_is_restarted(
    target: Target, tmp_path: Path
) -> None:
    """The query fails only in one part: the rows from which its columns are inferred are good."""
    target.run(
        "CREATE TABLE items (id int PRIMARY KEY, bad boolean)",
        "INSERT INTO items SELECT i, i = 1400 FROM generate_series(1, 1500) i",
        """CREATE FUNCTION touch(bad boolean) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
           IF bad THEN RAISE EXCEPTION 'no room to sort' USING ERRCODE = 'disk_full'; END IF;
           RETURN 1; END $$""",
    )
    query = "SELECT id, touch(bad) AS one FROM items"
    source = in_parts(target, tmp_path, query=query, topic_prefix="n", partition_column="id")
    with pytest.raises(RetriableError, match="no room to sort"):
        source.until(1)
    target.run("UPDATE items SET bad = false")
    assert sorted(row["id"] for row in source.until(1500)) == list(range(1, 1501))
    source.task.stop()
