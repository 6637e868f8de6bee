"""Errors of Spark's Python processes that consist of one sentence.

PySpark reports an exception of a Python process with its traceback. That of a wrong option or a
missing topic shows nothing but the code of Ottla and PySpark, around the one line that matters. For
errors that a user can correct, `plain_errors` turns the traceback off; others keep it.

An exception while a stream's reader is created hides its own cause: PySpark then calls a method of
the reader that does not exist, and reports an UnboundLocalError. `RejectedStreamReader` therefore
raises the error when it is first used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.base.errors import KafkaError, UserError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Environment variable that PySpark reads when it reports an exception."""
_WORKER_VARIABLES = "PYTHON_WORKER_FACTORY_"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Make PySpark report a KafkaError or UserError without its traceback.

    This has an effect only in a process that Spark started. Such a process ends with the error."""
    try:
        yield
    except (KafkaError, UserError):
        if any(name.startswith(_WORKER_VARIABLES) for name in os.environ):
            os.environ[HIDE_TRACEBACK] = "1"
        raise


class RejectedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader that raises an error as soon as it is used."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @plain_errors()
    def _reject(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._reject()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._reject()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._reject()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._reject()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._reject()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._reject()
