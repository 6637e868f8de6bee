"""Checkpoint files that Spark creates without running chmod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.spark.realtime.jvm_part import LOCAL_CHECKPOINT_FILES


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
        assert log.fileManager().getClass().getName() == LOCAL_CHECKPOINT_FILES
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert {each.name for each in Path(checkpoint).rglob("0") if each.is_file()} == {"0"}
    assert Path(checkpoint, "commits", "0").is_file()
    assert list(Path(checkpoint, "state").rglob("1.changelog"))


def test_hadoop_copies_local_files_as_snapshots_of_the_state_need_it(
    spark: Any, tmp_path: Path
) -> None:
    hadoop = spark._jvm.org.apache.hadoop.fs
    configuration = spark._jsc.hadoopConfiguration()
    (tmp_path / "from").write_text("state")
    source, target = (hadoop.Path(str(tmp_path / name)) for name in ("from", "to"))
    source.getFileSystem(configuration).copyFromLocalFile(source, target)
    assert (tmp_path / "to").read_text() == "state"
