"""Lock that keeps a query from planning micro-batches while an action runs. For `testing`.

Spark asks the sources of a query for new data one after the other, so data that is added between
two of these calls is seen by some sources only. Spark holds a lock of the query while it asks; its
own tests take this lock for the same reason (`withProgressLocked`), and so does this module. The
lock exists in classic Spark sessions, not in Spark Connect, and needs callbacks from the JVM, which
`foreachBatch` has enabled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def with_planning_paused(query: StreamingQuery, action: Callable[[], None]) -> None:
    """Run `action` while the query plans no micro-batch. Exceptions of `action` are raised here."""
    wrapper: Any = query._jsq
    called = _Function0(action)
    wrapper.streamingQuery().withProgressLocked(called)
    if called.error is not None:
        raise called.error


class _Function0:
    """Scala function that calls a Python one.

    It keeps an exception on the Python side, since the JVM would replace it with its own error.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self.error: BaseException | None = None

    def apply(self) -> None:
        try:
            self._action()
        except BaseException as error:
            self.error = error

    class Java:
        """Java interfaces of this object, for py4j."""

        implements = ("scala.Function0",)
