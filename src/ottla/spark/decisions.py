"""Decisions: the records that make a batch of a query final.

The decisions of a query are records in a compacted topic, keyed by the query's transactional ID:

    {"query": Spark's ID of the query, "batch": 17,
     "transactions": [[task, transactional id, producer id, epoch, rows, fingerprint], …]}

A decision is written in a transaction of the driver. It takes effect when that transaction is
committed; from then on, the transactions that it lists must be committed, whatever happens. Only
the last decision of a query matters.

The log is read up to its end, with records and markers, not only up to the last stable offset: an
open transaction of another query must not delay this one. By then the reader has fenced every other
driver of its own query, so each record of the query is followed by its marker."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.errors import ClientError
from ottla.client.producer.transaction_coordinator import ProducerIdentity
from ottla.wire.records.batch import iter_headers, validate
from ottla.wire.records.builder import ControlType, control_type
from ottla.wire.records.crc import Buffer
from ottla.wire.records.record import iter_records


class StagedTransaction(NamedTuple):
    """Transaction that one task wrote and left open."""

    task: int
    producer: ProducerIdentity
    rows: int
    fingerprint: str


@dataclass(frozen=True)
class Decision:
    query: str
    batch: int
    transactions: tuple[StagedTransaction, ...]

    def transaction_of(self, task: int) -> StagedTransaction | None:
        return next((each for each in self.transactions if each.task == task), None)

    def to_bytes(self) -> bytes:
        listed = [
            [each.task, *each.producer, each.rows, each.fingerprint] for each in self.transactions
        ]
        content = {"query": self.query, "batch": self.batch, "transactions": listed}
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Decision:
        try:
            content = json.loads(value)
            listed = tuple(
                StagedTransaction(
                    task, ProducerIdentity(name, producer_id, epoch), rows, fingerprint
                )
                for task, name, producer_id, epoch, rows, fingerprint in content["transactions"]
            )
            return cls(content["query"], content["batch"], listed)
        except (ValueError, KeyError, TypeError) as error:
            raise ClientError(f"cannot parse a decision in the commit topic: {error!r}") from None


@dataclass
class DecisionLog:
    """State of one query, read from the commit topic so far."""

    key: bytes
    position: int = 0
    decision: Decision | None = None
    _open: dict[int, list[bytes]] = field(default_factory=dict)
    """Records of the query that have no marker yet, by producer ID."""

    def read(self, records: Buffer) -> None:
        """Process fetched batches, from `position` on."""
        for header in iter_headers(records):
            if header.next_offset <= self.position:
                continue
            validate(records, header.position, header)
            self.position = header.next_offset
            if header.is_control:
                ended = self._open.pop(header.producer_id, [])
                if control_type(records, header) is ControlType.COMMIT:
                    self._decide(ended)
                continue
            found = [
                record.value
                for record in iter_records(records, header)
                if record.key == self.key and record.value is not None
            ]
            if header.is_transactional:
                self._open.setdefault(header.producer_id, []).extend(found)
            else:
                self._decide(found)

    def _decide(self, values: Iterable[bytes]) -> None:
        for value in values:
            self.decision = Decision.from_bytes(value)
