"""Checkpoint files of a Spark Connect server, which are read and written through DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.base.errors import UserError
from ottla.streams.checkpoint import LocalFiles, ServerFiles, SparkFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = "stream orders\n  to large\n"


def test_a_text_is_read_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    files, path = ServerFiles(spark), str(tmp_path / "large.topology")
    assert not files.exists(path)
    assert files.read(path) is None
    for text in ("before\n", TEXT):
        files.write(path, text)
    assert files.exists(path)
    assert files.read(path) == TEXT


def test_sessions_without_spark_connect_read_it_and_replace_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    for at, files in enumerate((LocalFiles(), SparkFiles(spark))):
        path = str(tmp_path / f"{at}.topology")
        ServerFiles(spark).write(path, TEXT)
        assert files.read(path) == TEXT
        files.write(path, "after\n")
        assert files.read(path) == "after\n"
        assert ServerFiles(spark).read(path) == "after\n"


def test_files_of_a_server_are_not_deleted_by_the_client(spark: SparkSession) -> None:
    with pytest.raises(UserError, match="cannot list and delete files"):
        ServerFiles(spark).delete("s3a://bucket/state/shop")
