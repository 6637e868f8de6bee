"""Request to stop a task, which its run polls or is notified of."""

from __future__ import annotations

import threading
from collections.abc import Callable


class StopSignal(threading.Event):
    """Event that also calls a function when it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._listener: Callable[[], None] | None = None

    def set(self) -> None:
        with self._guard:
            super().set()
            listener = self._listener
        if listener is not None:
            listener()

    def when_set(self, listener: Callable[[], None] | None) -> None:
        """Call the function when the event is set, at once if it is. None removes it."""
        with self._guard:
            self._listener = listener
            is_late = self.is_set()
        if is_late and listener is not None:
            listener()
