"""Tests of accepted and rejected options, with one-sentence errors that name the right option."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from ottla.client.errors import InvalidConfig
from ottla.spark.offsets import AtOffsets, AtTimestamps, Earliest, Latest
from ottla.spark.options import SinkOptions, SourceOptions, sink_options, source_options

BASIC = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}


def batch(**options: str) -> SourceOptions:
    return source_options({**BASIC, **_dotted(options)}, is_streaming=False)


def stream(**options: str) -> SourceOptions:
    return source_options({**BASIC, **_dotted(options)}, is_streaming=True)


def sink(*, is_streaming: bool = False, **options: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "broker:9092", **_dotted(options)}
    return sink_options(given, is_streaming=is_streaming)


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}


def test_defaults_are_those_of_sparks_own_source() -> None:
    assert (batch().starting, batch().ending) == (Earliest(), Latest())
    assert stream().starting == Latest()
    options = stream()
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert (options.min_partitions, options.max_offsets_per_trigger) == (None, None)
    assert options.max_trigger_delay_ms == 900_000
    assert options.config().isolation == 0


def test_names_are_known_in_any_case() -> None:
    assert batch(STARTINGOFFSETS="earliest", FailOnDataLoss="FALSE").fail_on_data_loss is False


def test_offsets_and_times_are_read_from_json() -> None:
    offsets = batch(startingOffsets='{"t": {"0": 3, "1": -2}}', endingOffsets='{"t": {"0": -1}}')
    assert offsets.starting == AtOffsets({TopicPartition("t", 0): 3, TopicPartition("t", 1): -2})
    assert offsets.ending == AtOffsets({TopicPartition("t", 0): -1})
    times = batch(startingTimestamp="1000", endingOffsetsByTimestamp='{"t": {"0": 5}}')
    assert times.starting == AtTimestamps(1000, {})
    assert times.ending == AtTimestamps(None, {TopicPartition("t", 0): 5})


def test_times_win_over_offsets_and_the_time_for_all_over_those_by_partition() -> None:
    options = batch(
        startingOffsets='{"t": {"0": 3}}',
        startingOffsetsByTimestamp='{"t": {"0": 5}}',
        startingTimestamp="7",
    )
    assert options.starting == AtTimestamps(7, {})


def test_client_properties_are_passed_on() -> None:
    options = batch(kafka__isolation__level="read_committed", kafka__fetch__max__wait__ms="7")
    assert options.config().isolation == 1
    assert options.config().fetch_max_wait_ms == 7


def test_a_group_is_named_either_way() -> None:
    assert stream(kafka__group__id="g").group_id == "g"
    assert stream(**{"group.id": "g"}).group_id == "g"
    assert stream(groupIdPrefix="p").config().client_id == "p"


def test_a_profile_is_read_and_single_options_win(tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "client.properties"
    file.write_text("bootstrap.servers=other:9092\nclient.id=me\nacks=1\nlinger.ms=1\n")
    options = source_options({"subscribe": "t", "profile": str(file)}, is_streaming=False)
    assert options.config().bootstrap_servers == ["other:9092"]
    options = source_options({**BASIC, "profile": str(file)}, is_streaming=False)
    assert options.config().bootstrap_servers == ["broker:9092"]
    assert options.config().client_id == "me"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"startingOffset": "earliest"},
            "Unknown option 'startingoffset'. Did you mean startingOffsets?",
        ),
        ({"kafka.isolation.leve": "x"}, "Did you mean kafka.isolation.level?"),
        ({"isolation.level": "read_committed"}, "Did you mean kafka.isolation.level?"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.value.deserializer": "x"}, "cast them in the query"),
        (
            {"subscribePattern": "t.*"},
            "exactly one of the options subscribe, subscribePattern and assign",
        ),
        ({"subscribe": "", "assign": "{"}, "assign must be JSON such as"),
        ({"subscribe": "", "subscribePattern": "("}, "not a valid regular expression"),
        ({"subscribe": ""}, "assign. Found: none."),
        ({"startingOffsets": "latest"}, "would read nothing in a batch query"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot be -1"),
        ({"startingOffsets": '{"t": 0}'}, "must be JSON such as"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "cannot be -2"),
        ({"startingTimestamp": "yesterday"}, "time in milliseconds since the epoch"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "must be error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "integer greater than 0"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "3"}, "must not exceed"),
        ({"maxTriggerDelay": "soon"}, "duration such as"),
        ({"minPartitions": "-1"}, "integer greater than 0"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"resumeFrom": "group"}, "needs a consumer group"),
        ({"kafka.bootstrap.servers": ""}, "Set kafka.bootstrap.servers to the addresses"),
        ({"kafka.bootstrap.servers": "nowhere"}, "is invalid. Use the form host:port"),
        ({"profile": "/no/such/file"}, "Cannot read"),
    ],
)
def test_wrong_options_are_reported_in_a_sentence(options: dict[str, str], sentence: str) -> None:
    from ottla.base.errors import UserError

    with pytest.raises(UserError, match=sentence.replace("?", r"\?")):
        source_options({**BASIC, **options}, is_streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidConfig, match="endingOffsets applies only to batch queries"):
        stream(endingOffsets="latest")


def test_durations_are_read_as_spark_reads_them() -> None:
    for text, ms in (("500", 500), ("2s", 2000), ("15m", 900_000), ("1h", 3_600_000)):
        assert stream(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_streams_are_exactly_once_and_batches_at_least_once_by_default() -> None:
    options = sink(is_streaming=True, checkpointLocation="/c")
    assert options.is_exactly_once
    assert options.config().transaction_timeout_ms == 900_000
    assert not sink().is_exactly_once
    assert not sink(is_streaming=True, delivery="at-least-once").is_exactly_once


def test_a_query_has_the_same_name_however_its_checkpoint_is_written() -> None:
    names = {
        sink(is_streaming=True, checkpointLocation=place).transactional_id
        for place in ("/a/b", "/a/b/", "file:/a/b", "file:///a/b")
    }
    assert len(names) == 1
    assert sink(is_streaming=True, kafka__transactional__id="mine").transactional_id == "mine"


def test_exactly_once_needs_a_name_and_acks() -> None:
    with pytest.raises(
        InvalidConfig, match="a transactional ID that stays the same after a restart"
    ):
        sink(is_streaming=True)
    with pytest.raises(InvalidConfig, match="acks=all"):
        sink(is_streaming=True, checkpointLocation="/c", kafka__acks="1")
    with pytest.raises(InvalidConfig, match="cast them in the query"):
        sink(kafka__key__serializer="x")


def test_asynchronous_progress_needs_at_least_once() -> None:
    enabled = {"asyncProgressTrackingEnabled": "true", "checkpointLocation": "/c"}
    with pytest.raises(InvalidConfig, match="repeats several batches in one"):
        sink(is_streaming=True, **enabled)
    disabled = enabled | {"asyncProgressTrackingEnabled": "false"}
    assert sink(is_streaming=True, **disabled).is_exactly_once
    assert not sink(is_streaming=True, delivery="at-least-once", **enabled).is_exactly_once
