"""Checkpoint files that Spark creates without running chmod."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from ottla.spark import checkpoint_files
from ottla.spark.spark_session import with_overrides


def test_the_jar_contains_the_class_of_the_source(spark: Any) -> None:
    with zipfile.ZipFile(checkpoint_files.JAR) as jar:
        assert jar.read(checkpoint_files.ENTRY) == checkpoint_files.compiled()


def test_a_stream_with_state_writes_its_checkpoint_with_the_class(
    spark: Any, checkpoint: str
) -> None:
    counts = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    query = (
        counts.groupBy("value")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .trigger(once=True)
        .start()
    )
    try:
        log = query._jsq.streamingQuery().offsetLog()
        assert log.fileManager().getClass().getName() == checkpoint_files.CLASS
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert {each.name for each in Path(checkpoint).rglob("0") if each.is_file()} == {"0"}
    assert Path(checkpoint, "commits", "0").is_file()
    assert list(Path(checkpoint, "state").rglob("1.changelog"))


def test_the_jars_of_the_user_are_added_to_the_one_of_the_package() -> None:
    defaults = {"spark.jars": "ours.jar", "spark.ui.enabled": "false"}
    found = with_overrides(defaults, {"spark.jars": "theirs.jar", "spark.ui.enabled": "true"})
    assert found == {"spark.jars": "ours.jar,theirs.jar", "spark.ui.enabled": "true"}
