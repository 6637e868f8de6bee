"""Records, and the operations that every client has to support."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 20.0

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    """Timestamp in milliseconds, or None to use the client's clock."""


class Received(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


OnRecord: TypeAlias = Callable[[Received], None]


class Client(ABC):
    """One client library. Each call opens its own connections and closes them again."""

    name: str
    codecs: Sequence[str] = CODECS
    sets_timestamps = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def can_send(self, record: Sent) -> bool:
        """Return whether the client library can send this record."""
        return True

    @abstractmethod
    def create_topic(self, topic: str, partitions: int = 1) -> None: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        """Send the records and return when all are acknowledged, or sent if `acks` is 0."""

    @abstractmethod
    def consume(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int = 0,
        max_wait_ms: int = 500,
        on_record: OnRecord = lambda record: None,
    ) -> list[Received]:
        """Return `count` records from `offset` on, read without a group."""

    @abstractmethod
    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        """Return the offset of the first record at or after a time, or None if there is none."""


class ManagingClient(Client):
    """A client library that can also delete topics."""

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...


class ProduceRefused(Exception):
    """An error from the client for a rejected record; the argument is Kafka's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
