"""Encoding of rows of one partition as record batches, without a Python object per record.

Needs the `arrow` extra."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ottla.client.producer.batch import EncodedBatch
from ottla.client.producer.config import ProducerConfig
from ottla.wire.records.batch import HEADER_SIZE
from ottla.wire.records.columnar.columns import RecordColumns
from ottla.wire.records.columnar.encode import encode_batches

BATCH_BYTES = 1024 * 1024
"""Batch size for rows. It may exceed `batch.size`, up to `max.request.size`: all rows are available
at once, so larger batches do not delay any."""
REQUEST_OVERHEAD = 1024


class RowEncoder:
    def __init__(self, config: ProducerConfig) -> None:
        limit = min(config.max_request_size, config.buffer_memory) - REQUEST_OVERHEAD
        self._max_record_size = max(limit, 1)
        self._batch_size = max(min(limit, max(BATCH_BYTES, config.batch_size)), HEADER_SIZE + 1)
        self._codec = config.compression_codec
        self._level = config.compression_level

    def encode(
        self, topic: str, partition: int, columns: RecordColumns, rows: Any
    ) -> Iterator[EncodedBatch]:
        """Yield the batches of some rows, or of all if `rows` is None; raise BatchError.

        The sender stamps the producer's state, and with it the checksum."""
        for encoded in encode_batches(
            columns,
            rows,
            batch_size=self._batch_size,
            compression=self._codec,
            level=self._level,
            max_record_size=self._max_record_size,
            checksum=False,
        ):
            yield EncodedBatch(
                topic, partition, encoded.data, encoded.record_count, time.monotonic()
            )
