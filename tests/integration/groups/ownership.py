"""A watch on partition ownership: at any time, at most one live member reads a partition."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from tests.integration.groups.consumers import ConsumerProcess

LOOKS_PER_S = 200


class OwnershipWatch:
    """A thread that keeps comparing the partitions that the members own.

    A member that was killed, or paused past its session, does not count: it cannot learn that
    its partitions were revoked."""

    def __init__(self, *members: ConsumerProcess) -> None:
        self.members = list(members)
        self.conflicts: list[str] = []
        self.looks = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def _look_on(self) -> None:
        while not self._is_over.is_set():
            self._look()
            time.sleep(1 / LOOKS_PER_S)

    def _look(self) -> None:
        owners: dict[int, int] = {}
        for index, member in enumerate(list(self.members)):
            for partition in list(member.owned):
                if partition in owners:
                    self.conflicts.append(f"{partition}: members {owners[partition]} and {index}")
                owners[partition] = index
        self.looks += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
