"""Number of partitions of a query's state, and its change while the query is stopped.

Spark stores the number with each batch and ignores `spark.sql.shuffle.partitions` afterwards, as
each key must stay where its state is. If the application sets it to another number, the state is
moved before the query starts, by Spark, in a batch of its own that reads and writes no records:

    last batch unfinished          Run the query once to finish it. Otherwise its records would be
                                   written again, under another number of the batch
    move interrupted earlier       Finish it. Spark starts no query before
    number differs                 Move the state

Python state moves like Spark's own. Its 128 buckets of keys (`state.program`) remain, so more
partitions than buckets are of no use to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.spark.spark_connect import is_connect
from ottla.streams.application import Application
from ottla.streams.checkpoint import FileSystem, checkpoint
from ottla.streams.checkpoint_log import read_log
from ottla.streams.operators.topics import Sink
from ottla.streams.plan.node import has_state
from ottla.streams.query_failures import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class StatePartitions:
    """Number of partitions of the last committed batch, and of one that is not committed."""

    committed: int
    unfinished: int | None


def stored_partitions(files: FileSystem, path: str) -> StatePartitions | None:
    """Return the numbers from a checkpoint's log, or None before its first batch is committed."""
    log = read_log(files, path)
    committed = None if log.committed is None else log.committed.settings.get(PARTITIONS)
    if committed is None:
        return None
    unfinished = None if log.unfinished is None else log.unfinished.settings.get(PARTITIONS)
    return StatePartitions(int(committed), None if unfinished is None else int(unfinished))


def move_state(
    app: Application,
    sink: Sink,
    spark: SparkSession,
    files: FileSystem,
    finish_batch: Callable[[], None],
    report: Callable[[str], None],
) -> None:
    """Give the state of a stopped query the number of partitions that the application sets.

    Args:
        app: The application.
        sink: Sink of the query.
        spark: The session.
        files: File system of the checkpoint.
        finish_batch: Function that runs the query until its last batch is committed.
        report: Function that shows a line to the user.

    Raises:
        UserError: The number is invalid, or Spark cannot move the state.
    """
    wanted = _wanted(app)
    if not has_state(sink) or is_connect(spark):
        return
    path = checkpoint(app, sink)
    now = stored_partitions(files, path)
    if now is None:
        return
    at = f"App {app.name!r}, topic {sink.topic!r}"
    number = now.committed
    if now.unfinished is not None and now.unfinished != number:
        report(f"{at}: continuing to move the state to {now.unfinished} partitions")
        _move(spark, path, now.unfinished, at)
        number = now.unfinished
    if wanted is None or wanted == number:
        return
    if now.unfinished == now.committed:
        finish_batch()
    report(f"{at}: moving the state from {number} to {wanted} partitions")
    _move(spark, path, wanted, at)


def _wanted(app: Application) -> int | None:
    text = app.spark_settings.get(PARTITIONS)
    if text is None:
        return None
    if not str(text).isdecimal() or int(text) < 1:
        raise UserError(
            f"App {app.name!r}: {PARTITIONS}={text!r} is invalid. Use an integer of at least 1."
        )
    return int(text)


def _move(spark: SparkSession, path: str, number: int, at: str) -> None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    manager: Any = spark._streamingCheckpointManager  # not public yet in Spark 4.3
    try:
        manager.repartition(path, number)
    except Py4JJavaError as error:
        cause = cause_of(str(error.java_exception.getMessage()))
    except PySparkException as error:
        cause = cause_of(str(error))
    else:
        return
    raise UserError(
        f"{at}: Spark could not move the state to {number} partitions: {cause}. Remove the setting "
        f"{PARTITIONS} to start with the former number."
    )
