"""Options of the source and the sink (pure).

Names and meanings are those of Spark's own Kafka connector, so that a program only has to change
the format. Ottla adds `profile`, `group.id`, `resumeFrom`, `delivery` and `commitTopic`, and its
sink supports a `timestamp` column. Options `kafka.*` configure the client. Names are not
case-sensitive, because Spark passes them in lower case. An unknown name raises an error that
suggests the closest known one.

Two options mean less than in Spark's connector, because there is neither a consumer pool nor a
consumer group behind a read: `groupIdPrefix` sets the `client.id` of the connections, and
`fetchOffset.numRetries` repeats a request whose own retries have failed."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.config import CommonConfig, table_of
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.errors import InvalidConfig
from ottla.client.inlined_files import with_inlined_files
from ottla.client.librdkafka import ALIASES
from ottla.client.producer.config import ProducerConfig
from ottla.client.profile import default_profile, layered, load_profile
from ottla.spark.offsets import AtOffsets, AtTimestamps, Bound, Earliest, Latest, parse_by_partition

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
SOURCE_OPTIONS = (
    *SUBSCRIPTIONS,
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders",
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "group.id", "resumeFrom", "profile",
)  # fmt: skip
ASYNC_PROGRESS_OPTIONS = (
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
    "_asyncProgressTrackingOverrideSinkSupportCheck",
)
"""Options of Spark's asynchronous progress tracking. Spark passes them to the sink."""
SINK_OPTIONS = (
    "topic", "includeHeaders", "delivery", "commitTopic", "profile", *ASYNC_PROGRESS_OPTIONS
)  # fmt: skip
REAL_TIME_OPTION = "_realTime"
"""Option that the JVM part adds to the options of a sink in real-time mode."""
SPARK_OPTIONS = frozenset({"checkpointlocation", "path", "queryname", REAL_TIME_OPTION.lower()})
"""Options that Spark itself, or the JVM part, passes to every source or sink."""

UNSUPPORTED_IN_SOURCES = {
    "group.instance.id": "a query is not a member of its group",
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "set group.id to commit offsets after each batch",
    "key.deserializer": "keys are bytes; cast them in the query",
    "value.deserializer": "values are bytes; cast them in the query",
    "interceptor.classes": "interceptors are not supported",
}
UNSUPPORTED_IN_SINKS = {
    "key.serializer": "keys are strings or binary; cast them in the query",
    "value.serializer": "values are strings or binary; cast them in the query",
    "interceptor.classes": "interceptors are not supported",
}

CHECKPOINT, GROUP, RESET = "checkpoint", "group", "reset"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
DEFAULT_COMMIT_TOPIC = "_ottla_spark_commits"
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
DEFAULT_POLL_TIMEOUT_MS = 120_000
MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""Default of the broker's `transaction.max.timeout.ms`. A batch must finish within it."""

FETCH_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a partition per fetch; Spark works best with batches of about 10,000 rows."""


@dataclass(frozen=True)
class Subscription:
    """Subscription of a query: exactly one of topics, a pattern and partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def matches(self, topic: str) -> bool:
        assert self.pattern is not None
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True)
class SourceOptions:
    subscription: Subscription
    starting: Bound
    ending: Bound
    client: dict[str, str] = field(repr=False)
    """Properties of the client, by their Kafka names."""
    latest_if_no_match: bool = False
    """startingOffsetsByTimestampStrategy: start at the end instead of failing."""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    poll_timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS
    offset_retries: int = 3
    offset_retry_interval_ms: int = 10
    group_id: str | None = None
    resumes_from_group: bool = False
    resumes_from_reset: bool = False
    """resumeFrom=reset: a new query, and no other, starts at group offsets that a tool has set."""

    def config(self) -> ConsumerConfig:
        return ConsumerConfig.of(None, self.client, {})


@dataclass(frozen=True)
class SinkOptions:
    client: dict[str, str] = field(repr=False)
    topic: str | None = None
    include_headers: bool = True
    is_exactly_once: bool = True
    transactional_id: str | None = None
    """Name of the query for brokers, or None if it has none that survives a restart."""
    commit_topic: str = DEFAULT_COMMIT_TOPIC

    def config(self) -> ProducerConfig:
        return ProducerConfig.of(None, self.client, {})


def source_options(raw_options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Parse the options of the source; raise InvalidConfig for the first invalid one."""
    options = _OptionParser(raw_options, SOURCE_OPTIONS)
    kafka = options.client(ConsumerConfig, UNSUPPORTED_IN_SOURCES)
    group_id = options.text("group.id") or kafka.get("group.id") or None
    kafka.pop("group.id", None)
    kafka.setdefault("client.id", options.text("groupIdPrefix") or "ottla-spark")
    kafka.setdefault("max.partition.fetch.bytes", str(FETCH_BYTES))
    resume = options.one_of("resumeFrom", (CHECKPOINT, GROUP, RESET), CHECKPOINT)
    if resume != CHECKPOINT and group_id is None:
        raise InvalidConfig(f"resumeFrom={resume} needs a consumer group. Set kafka.group.id.")
    strategy = options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    max_offsets = options.count("maxOffsetsPerTrigger")
    min_offsets = options.count("minOffsetsPerTrigger")
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise InvalidConfig(
            f"minOffsetsPerTrigger ({min_offsets}) must not exceed "
            f"maxOffsetsPerTrigger ({max_offsets})."
        )
    return SourceOptions(
        subscription=_subscription(options),
        starting=_starting(options, is_streaming=is_streaming),
        ending=_ending(options, is_streaming=is_streaming),
        client=kafka,
        latest_if_no_match=strategy == "latest",
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_ms=options.duration_ms("maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        min_partitions=options.count("minPartitions"),
        max_records_per_partition=options.count("maxRecordsPerPartition"),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        include_headers=options.boolean("includeHeaders", False),
        poll_timeout_ms=options.count("kafkaConsumer.pollTimeoutMs") or DEFAULT_POLL_TIMEOUT_MS,
        offset_retries=options.count("fetchOffset.numRetries") or 3,
        offset_retry_interval_ms=options.duration_ms("fetchOffset.retryIntervalMs", 10),
        group_id=group_id,
        resumes_from_group=resume == GROUP,
        resumes_from_reset=resume == RESET,
    )


def sink_options(raw_options: Mapping[str, str], *, is_streaming: bool) -> SinkOptions:
    """Parse the options of the sink.

    By default, micro-batches are written exactly once, and real-time streams and batch queries at
    least once."""
    options = _OptionParser(raw_options, SINK_OPTIONS)
    kafka = options.client(ProducerConfig, UNSUPPORTED_IN_SINKS)
    is_real_time = options.boolean(REAL_TIME_OPTION, False)
    default = EXACTLY_ONCE if is_streaming and not is_real_time else AT_LEAST_ONCE
    delivery = options.one_of("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE), default)
    is_exactly_once = delivery == EXACTLY_ONCE
    if is_exactly_once and is_real_time:
        raise InvalidConfig(
            "A real-time query writes at least once, because records are visible before its batch "
            "ends. Remove delivery=exactly-once, or remove trigger(realTime=…)."
        )
    if is_exactly_once and options.boolean("asyncProgressTrackingEnabled", False):
        raise InvalidConfig(
            "asyncProgressTrackingEnabled needs delivery=at-least-once: after a failure, Spark "
            "then repeats several batches in one, and exactly-once delivery can only recognize "
            "the last batch when it is repeated unchanged."
        )
    transactional_id = kafka.pop("transactional.id", None)
    if transactional_id is None:
        transactional_id = _transactional_id_for(options.values.get("checkpointlocation"))
    if is_exactly_once and is_streaming and transactional_id is None:
        raise InvalidConfig(
            "An exactly-once query needs a transactional ID that stays the same after a restart. "
            "Set checkpointLocation as an option of the writer, or kafka.transactional.id, or use "
            "delivery=at-least-once."
        )
    kafka.setdefault("client.id", "ottla-spark")
    kafka.setdefault("retry.backoff.ms", "20")
    if is_real_time:
        kafka.setdefault("linger.ms", "0")
    if is_exactly_once:
        kafka.setdefault("transaction.timeout.ms", str(MAX_TRANSACTION_TIMEOUT_MS))
    made = SinkOptions(
        client=kafka,
        topic=options.text("topic"),
        include_headers=options.boolean("includeHeaders", True),
        is_exactly_once=is_exactly_once,
        transactional_id=transactional_id,
        commit_topic=options.text("commitTopic") or DEFAULT_COMMIT_TOPIC,
    )
    config = made.config()
    if is_exactly_once and not config.is_idempotent:
        raise InvalidConfig(
            "delivery=exactly-once needs kafka.acks=all and kafka.retries greater than 0."
        )
    return made


def without_profile(raw_options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the properties of the profile as `kafka.` options, for executors.

    Args:
        raw_options: Options of a source, or of a sink in real-time mode.

    Raises:
        UserError: An option is invalid, or the profile or a file that it names cannot be used.
    """
    if any(name.lower() == REAL_TIME_OPTION.lower() for name in raw_options):
        options = _OptionParser(raw_options, SINK_OPTIONS)
        client = options.client(ProducerConfig, UNSUPPORTED_IN_SINKS)
    else:
        options = _OptionParser(raw_options, SOURCE_OPTIONS)
        client = options.client(ConsumerConfig, UNSUPPORTED_IN_SOURCES)
    own = {
        name: text
        for name, text in options.values.items()
        if name != "profile" and not name.startswith("kafka.")
    }
    return own | {f"kafka.{name}": text for name, text in client.items()}


def _transactional_id_for(checkpoint: str | None) -> str | None:
    """Derive a query's name from its checkpoint location, independent of how that is written."""
    if not checkpoint:
        return None
    location = re.sub(r"^file:/*", "/", checkpoint.strip()).rstrip("/")
    return f"ottla-spark-{hashlib.sha256(location.encode()).hexdigest()[:20]}"


# -------------------------------------------------------------------------------------- keywords


def keyword_names() -> dict[str, str]:
    """Return the keyword argument of each option of the source, mapped to the option.

    Options that say which topics to read are not among them: `table` has an argument for that."""
    client = (f"kafka.{key.name}" for key in table_of(ConsumerConfig))
    own = (name for name in SOURCE_OPTIONS if name not in (*SUBSCRIPTIONS, "profile"))
    refused = {f"kafka.{name}" for name in UNSUPPORTED_IN_SOURCES}
    return {_snake_case(name): name for name in (*own, *client) if name not in refused}


def from_keywords(keywords: Mapping[str, object]) -> dict[str, str]:
    """Return options of the source that were passed as keyword arguments.

    An option's own name is accepted as well, as `**{"kafka.isolation.level": …}`. Two underscores
    for a dot are deprecated."""
    names = keyword_names()
    found: dict[str, str] = {}
    for keyword, value in keywords.items():
        name = names.get(keyword) or without_double_underscores(keyword)
        found[name] = str(value)
    return found


def without_double_underscores(keyword: str) -> str:
    """Return a name with dots for double underscores, which were the spelling before 0.2."""
    if "__" in keyword:
        instead = keyword.replace("__", "_")
        warnings.warn(
            f"{keyword}= is deprecated. Write one underscore for a dot: {instead}=",
            DeprecationWarning,
            stacklevel=4,
        )
    return keyword.replace("__", ".")


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace(".", "_").lower()


# --------------------------------------------------------------------------- subscription, bounds


def _subscription(options: _OptionParser) -> Subscription:
    named = [name for name in SUBSCRIPTIONS if options.text(name)]
    if len(named) != 1:
        found = " and ".join(named) if named else "none"
        raise InvalidConfig(
            "Set exactly one of the options subscribe, subscribePattern and assign. "
            f"Found: {found}."
        )
    text = options.text(named[0])
    assert text is not None
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
        if not topics:
            raise InvalidConfig("subscribe lists no topics.")
        return Subscription(topics=topics)
    if named[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidConfig(
                f"subscribePattern is not a valid regular expression: {error}."
            ) from None
        return Subscription(pattern=text)
    return Subscription(partitions=_assignment(text))


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    example = '{"topicA": [0, 1], "topicB": [2]}'
    try:
        read = json.loads(text)
        found = [TopicPartition(topic, int(each)) for topic, numbers in read.items()
                 for each in numbers]  # fmt: skip
    except (ValueError, AttributeError, TypeError):
        raise InvalidConfig(f"assign must be JSON such as {example}, not {text!r}.") from None
    if not found:
        raise InvalidConfig(f"assign lists no partitions. Use JSON such as {example}.")
    return tuple(sorted(set(found)))


def _starting(options: _OptionParser, *, is_streaming: bool) -> Bound:
    at_time = _by_time(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if at_time is not None:
        return at_time
    text = (options.text("startingOffsets") or ("latest" if is_streaming else "earliest")).strip()
    if text.lower() == "earliest":
        return Earliest()
    if text.lower() == "latest":
        if not is_streaming:
            raise InvalidConfig(
                "startingOffsets=latest would read nothing in a batch query. Use earliest or JSON."
            )
        return Latest()
    offsets = parse_by_partition("startingOffsets", text)
    if not is_streaming and -1 in offsets.values():
        raise InvalidConfig("startingOffsets of a batch query cannot be -1 (latest).")
    return AtOffsets(offsets)


def _ending(options: _OptionParser, *, is_streaming: bool) -> Bound:
    names = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    if is_streaming:
        for name in names:
            if options.text(name):
                raise InvalidConfig(
                    f"{name} applies only to batch queries, because a stream has no end."
                )
        return Latest()
    at_time = _by_time(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if at_time is not None:
        return at_time
    text = (options.text("endingOffsets") or "latest").strip()
    if text.lower() == "latest":
        return Latest()
    if text.lower() == "earliest":
        raise InvalidConfig("endingOffsets=earliest would read nothing. Use latest or JSON.")
    offsets = parse_by_partition("endingOffsets", text)
    if -2 in offsets.values():
        raise InvalidConfig("endingOffsets cannot be -2 (earliest).")
    return AtOffsets(offsets)


def _by_time(options: _OptionParser, for_all: str, by_partition: str) -> AtTimestamps | None:
    text = options.text(for_all)
    if text is not None:
        try:
            time_ms = int(text)
        except ValueError:
            time_ms = -1
        if time_ms < 0:
            raise InvalidConfig(
                f"{for_all} must be a time in milliseconds since the epoch, not {text!r}."
            )
        return AtTimestamps(time_ms, {})
    text = options.text(by_partition)
    if text is None:
        return None
    return AtTimestamps(None, parse_by_partition(by_partition, text, minimum=0))


# ------------------------------------------------------------------------------- reading options

_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
             "d": 86_400_000}  # fmt: skip


@dataclass
class _OptionParser:
    values: Mapping[str, str] = field(repr=False)
    names: tuple[str, ...]
    _known: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.values = {name.lower(): value for name, value in self.values.items()}
        self._known = {name.lower(): name for name in self.names}
        for name in self.values:
            if (
                name not in self._known
                and name not in SPARK_OPTIONS
                and not name.startswith("kafka.")
            ):
                raise InvalidConfig(f"Unknown option '{name}'.{self._suggestion(name)}")

    def _suggestion(self, name: str) -> str:
        candidates = [*self._known, "kafka.bootstrap.servers"]
        matches = difflib.get_close_matches(name, candidates, 1)
        if matches:
            return f" Did you mean {self._known.get(matches[0], matches[0])}?"
        if f"kafka.{name}" in {f"kafka.{each}" for each in _client_names()}:
            return f" Did you mean kafka.{name}?"
        return ""

    def text(self, name: str) -> str | None:
        return self.values.get(name.lower()) or None

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).strip().lower().replace("_", "-")
        if value not in choices:
            raise InvalidConfig(f"{name} must be {' or '.join(choices)}, not {self.text(name)!r}.")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise InvalidConfig(f"{name} must be true or false, not {text!r}.")
        return text.strip().lower() == "true"

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) < 1:
            raise InvalidConfig(f"{name} must be an integer greater than 0, not {text!r}.")
        return int(text)

    def duration_ms(self, name: str, default_ms: int) -> int:
        text = self.text(name)
        if text is None:
            return default_ms
        found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
        if found is None or (found[2] or "ms") not in _UNITS_MS:
            raise InvalidConfig(
                f"{name} must be a duration such as 500ms, 10s or 15m, not {text!r}."
            )
        return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])

    def client(self, kind: type[CommonConfig], unsupported: Mapping[str, str]) -> dict[str, str]:
        """Return the client's properties: those of the profile, overridden by `kafka.*` options."""
        table = table_of(kind)
        given: dict[str, str] = {}
        for option, value in self.values.items():
            if not option.startswith("kafka.") or option in self._known:
                continue
            name = option.removeprefix("kafka.")
            if name in unsupported:
                raise InvalidConfig(f"{option} cannot be set: {unsupported[name]}.")
            if name not in table:
                nearest = table.nearest(name)
                suggestion = "" if nearest is None else f" Did you mean kafka.{nearest}?"
                raise InvalidConfig(f"Unknown client property '{name}'.{suggestion}")
            given[name] = value
        found = layered(self._profile(kind, unsupported), given)
        if not found.get("bootstrap.servers"):
            raise InvalidConfig("Set kafka.bootstrap.servers to the addresses of the brokers.")
        checked: Any = kind.of(None, found, {})
        del checked
        return found

    def _profile(self, kind: type[CommonConfig], unsupported: Mapping[str, str]) -> dict[str, str]:
        """Return the properties of the profile. Executors do not need the files that it names."""
        path = self.text("profile")
        if path is None:
            is_named = bool(self.values.get("kafka.bootstrap.servers"))
            loaded = default_profile(names_brokers=is_named)
        else:
            loaded = load_profile(path)
        if not loaded:
            return {}
        client_names = _client_names()
        named = {ALIASES.get(name, name): text for name, text in loaded.items()}
        found = {
            name: text
            for name, text in named.items()
            if name in client_names and name not in unsupported
        }
        return with_inlined_files(kind, found)


def _client_names() -> frozenset[str]:
    return frozenset(
        key.name for kind in (ConsumerConfig, ProducerConfig) for key in table_of(kind)
    )
