"""Decoding of a batch into records (pure)."""

from __future__ import annotations

from ottla.client.consumer.record import Record
from ottla.wire.records.batch import BatchHeader
from ottla.wire.records.crc import Buffer
from ottla.wire.records.record import decode_records

_new_tuple = tuple.__new__


def decode_batch(batch: Buffer, header: BatchHeader, topic: str, partition: int) -> list[Record]:
    """Return the records of the batch at `header.position`. Its checksum was verified before."""
    kind, epoch, new, record = header.timestamp_type, header.leader_epoch, _new_tuple, Record
    return [
        new(record, (topic, partition, offset, time, kind, key, value, headers, epoch))
        for offset, time, key, value, headers in decode_records(batch, header)
    ]
