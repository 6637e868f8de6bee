"""A query that plans no micro-batch while something is done. For `testing`.

Spark asks a query's sources one after the other what is new: what comes between two questions is
half seen. It asks under a lock of the query's own, which Spark's tests of itself take for the same
reason (`withProgressLocked`), and so do we. It is there in Spark's classic sessions, not in those
of Spark Connect, and takes callbacks from the JVM, which `foreachBatch` has started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def while_held(query: StreamingQuery, action: Callable[[], None]) -> None:
    """Raises what `action` raises."""
    wrapper: Any = query._jsq
    called = _Called(action)
    wrapper.streamingQuery().withProgressLocked(called)
    if called.error is not None:
        raise called.error


class _Called:
    """A function of Scala's. What it raises waits outside of the JVM, which would make another
    error of it."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self.error: BaseException | None = None

    def apply(self) -> None:
        try:
            self._action()
        except BaseException as error:
            self.error = error

    class Java:
        """As py4j has it."""

        implements = ("scala.Function0",)
