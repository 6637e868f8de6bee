"""A fixed range of a topic's records, read without a Spark session.

`TopicSnapshot` determines the offset range of each partition when it is created. `table()` of
`ottla.spark` uses it to sample the newest values and choose a format; `ottla sql` also answers
simple statements from it. Nothing here imports PySpark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.consumer.config import ConsumerConfig
from ottla.spark.cluster_offsets import ClusterOffsets
from ottla.spark.offsets import Earliest, Latest
from ottla.spark.options import source_options
from ottla.spark.plan import OffsetRange, ranges_between
from ottla.spark.range_reader import RangeReader
from ottla.spark.shared_client import shared_client

SAMPLE_ROWS = 1_000
"""Number of newest values of each partition in a sample."""
SHOWN_CHARS = 40


class SampledValue(NamedTuple):
    partition: int
    offset: int
    data: bytes


class TopicSnapshot:
    """Offset ranges of a topic's partitions, and the records within them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Determine the offset ranges.

        Args:
            options: Options of the source, with `subscribe` and the connection. Options that
                choose offsets are ignored: a snapshot covers the whole topic.
        """
        wanted = ("subscribe", "profile", "kafka.")
        self.topic = options["subscribe"]
        self._options = source_options(
            {name: text for name, text in options.items() if name.lower().startswith(wanted)},
            is_streaming=False,
        )
        offsets = ClusterOffsets(self._options)
        partitions = offsets.partitions()
        start = offsets.offsets("startingOffsets", Earliest(), partitions)
        end = offsets.offsets("endingOffsets", Latest(), partitions)
        self.ranges = ranges_between(start, end)
        """Ranges of the partitions that are not empty."""
        self._sample: ValueSample | None = None

    @property
    def size(self) -> int:
        """Number of offsets; compaction and transactions may leave fewer records."""
        return sum(each.size for each in self.ranges)

    def read(
        self, columns: Sequence[str], ranges: Sequence[OffsetRange] | None = None
    ) -> Iterator[tuple[OffsetRange, Any]]:
        """Yield decoded Arrow record batches, partition by partition, in offset order."""
        for each in self.ranges if ranges is None else ranges:
            reader = RangeReader(
                shared_client(ConsumerConfig, self._options.client), self._options.config(), each,
                list(columns), fail_on_data_loss=False, timeout_ms=self._options.poll_timeout_ms,
            )  # fmt: skip
            for records in reader:
                yield each, records

    def sample(self) -> ValueSample:
        """Return the newest values of each partition, read once."""
        if self._sample is None:
            newest = [
                each._replace(start=max(each.start, each.end - SAMPLE_ROWS)) for each in self.ranges
            ]
            found: list[SampledValue] = []
            for part, records in self.read(["offset", "value"], newest):
                found += [
                    SampledValue(part.partition, offset, value)
                    for offset, value in zip(
                        records.column("offset").to_pylist(),
                        records.column("value").to_pylist(),
                        strict=True,
                    )
                    if value is not None
                ]
            self._sample = ValueSample(self.topic, found)
        return self._sample


class ValueSample:
    """Values of a topic, without nulls, and the format in which they can be read."""

    def __init__(self, topic: str, values: Sequence[SampledValue]) -> None:
        self.topic = topic
        self.size = len(values)
        self.objects: list[str] = []
        """Values that are JSON objects."""
        self.first_other: tuple[SampledValue, str] | None = None
        """The first value that is not a JSON object, and the reason."""
        is_text = True
        for each in values:
            fault = why_not_object(each.data)
            if fault is None:
                self.objects.append(each.data.decode())
                continue
            self.first_other = self.first_other or (each, fault)
            is_text = is_text and _is_text(each.data)
        self.format = "raw" if not is_text else "string"
        if self.objects and self.first_other is None:
            self.format = "json"

    @property
    def is_mixed(self) -> bool:
        """Whether some of the values are JSON objects and others are not."""
        return bool(self.objects) and self.first_other is not None

    def why_not_json(self) -> str | None:
        """Return an explanation for the user, or None if all values are JSON objects."""
        if self.first_other is None:
            return None
        value, fault = self.first_other
        others = self.size - len(self.objects)
        if self.objects:
            predicate = "is not a JSON object" if others == 1 else "are not JSON objects"
            amount = f"{others} of its {self.size} newest values {predicate}"
        else:
            amount = "none of its newest values is a JSON object"
        read_as = "text" if self.format == "string" else "bytes"
        return (
            f"Topic '{self.topic}' is read as {read_as} because {amount}; the first is at "
            f"partition {value.partition}, offset {value.offset}: {fault}."
        )


def why_not_object(value: bytes) -> str | None:
    """Return the reason why a value is not a JSON object, or None if it is one."""
    try:
        found = json.loads(value.decode())
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 (byte {error.start} is 0x{value[error.start]:02x})"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return f"{_shown(value)} is not JSON ({error})" if value else "it is empty"
    if isinstance(found, dict):
        return None
    return f"{_shown(value)} is JSON, but not an object"


def _shown(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    return repr(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…")


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
