"""Configuration of a connector: parsing, validation and construction of its parts.

A connector's configuration is one flat mapping whose definition depends on its content: the
connector class adds properties, each transform and predicate adds `transforms.NAME.…` or
`predicates.NAME.…`, and a converter adds `value.converter.…`. `validate` collects all errors at
once; `ConnectorConfig.of` raises them as one exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ottla.base.config.definition import ConfigError, ConfigType, Importance
from ottla.base.config.providers import ConfigProviders
from ottla.base.config.validator import AtLeast, NonEmpty, OneOf
from ottla.base.errors import UserError
from ottla.connect.api import Connector, SinkConnector, SourceConnector
from ottla.connect.converters import Converter
from ottla.connect.definition import Definition, key, with_prefix
from ottla.connect.pipeline import Chain, Conversion, ErrorPolicy, TransformStep
from ottla.connect.plugins import (
    connector_class,
    converter_class,
    predicate_class,
    transform_class,
)
from ottla.connect.topic_creation import (
    GROUPS_KEY,
    TopicCreation,
    definitions,
    is_enabled,
    is_used,
    problems,
    topic_creation,
)
from ottla.connect.transforms.contract import Predicate

STRING, INT, LIST, BOOLEAN = ConfigType.STRING, ConfigType.INT, ConfigType.LIST, ConfigType.BOOLEAN
LONG = ConfigType.LONG
Made = TypeVar("Made")
HIGH = Importance.HIGH

COMMON = Definition(
    [
        key("name", STRING, None, "Name of the connector, unique in the Connect cluster.",
            NonEmpty(), HIGH),
        key("connector.class", STRING, None, "Class of the connector, by name.", NonEmpty(), HIGH),
        key("tasks.max", INT, 1, "Maximum number of tasks.", AtLeast(1), HIGH),
        key("key.converter", STRING, None, "Converter of keys. The worker's if not set."),
        key("value.converter", STRING, None, "Converter of values. The worker's if not set."),
        key("header.converter", STRING, None, "Converter of headers. The worker's if not set."),
        key("transforms", LIST, [],
            "Names of the transforms, in the order in which they are applied."),
        key("predicates", LIST, [], "Names of the predicates that transforms refer to."),
        key("errors.retry.timeout", LONG, 0,
            "Time for which a failed operation is retried, in milliseconds; -1 for no limit.",
            AtLeast(-1)),
        key("errors.retry.delay.max.ms", LONG, 60_000,
            "Maximum time between retries, in milliseconds.", AtLeast(1)),
        key("errors.tolerance", STRING, "none",
            "Whether a failed record stops the task (none) or is skipped (all).",
            OneOf(("none", "all"))),
        key("errors.log.enable", BOOLEAN, False, "Whether to log each tolerated error."),
        key("errors.log.include.messages", BOOLEAN, False,
            "Whether logged errors include the record's key and value."),
    ],
    required=["name", "connector.class"],
)  # fmt: skip
SOURCE = Definition([
    key("exactly.once.support", STRING, "requested",
        "Accepted for compatibility; sources always write exactly once.",
        OneOf(("requested", "required"), ignore_case=True)),
    GROUPS_KEY,
])  # fmt: skip
SINK = Definition([
    key("topics", LIST, [], "Topics to read.", None, HIGH),
    key("topics.regex", STRING, "", "Regular expression of the topics to read.", None, HIGH),
    key("errors.deadletterqueue.topic.name", STRING, "",
        "Topic for records that failed; empty to discard them."),
    key("errors.deadletterqueue.topic.replication.factor", ConfigType.SHORT, 3,
        "Replication factor of the dead letter queue when it is created."),
    key("errors.deadletterqueue.context.headers.enable", BOOLEAN, False,
        "Whether headers describe where and why a record failed."),
])  # fmt: skip
CONVERTER_KEYS = ("key.converter", "value.converter", "header.converter")
FREE_PREFIXES = ("producer.override.", "consumer.override.", "admin.override.")


@dataclass
class Validation:
    """All properties that apply to a configuration, and the errors in those that are set."""

    groups: list[tuple[str, Definition]] = field(default_factory=list)
    """Pairs of group and its properties, with their full names."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    submitted: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties with the variables of config providers, which replace secrets in messages."""
    errors: dict[str, list[str]] = field(default_factory=dict)

    def add(self, group: str, definition: Definition, prefix: str = "") -> None:
        keys = [replace(each, name=prefix + each.name) for each in definition]
        whole = Definition(
            keys,
            (prefix + name for name in definition.required),
            (prefix + each for each in definition.prefixes),
        )
        self.groups.append((group, whole))
        for name, problem in whole.problems(self.given).items():
            value, submitted = self.given.get(name, ""), self.submitted.get(name, "")
            if value and value != submitted:
                problem = problem.replace(value.strip(), submitted)
            self.fail(name, problem)

    def fail(self, name: str, problem: str) -> None:
        self.errors.setdefault(name, []).append(problem)

    def failed_under(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.errors)

    def unknown(self) -> list[str]:
        """Return a sentence for each unknown property, with the most similar known one."""
        known = Definition()
        for _, each in self.groups:
            known = known + each
        return [
            f"Property {name} does not exist"
            + (f"; did you mean {near}?" if (near := known.table.nearest(name)) else ".")
            for name in self.given
            if not known.knows(name) and not name.startswith(FREE_PREFIXES)
        ]


@dataclass(frozen=True)
class ConnectorConfig:
    """Validated configuration of a connector, with its connector, transforms and converters."""

    name: str
    given: Mapping[str, str] = field(repr=False)
    """Properties as they were submitted, with variables of config providers."""
    resolved: Mapping[str, str] = field(repr=False)
    """Properties with the values of the variables, which may be secrets."""
    connector: Connector
    chain: Chain
    conversion: Conversion
    policy: ErrorPolicy
    settings: Mapping[str, Any] = field(repr=False)
    """Values of the properties in COMMON and in SOURCE or SINK."""
    topic_creation: TopicCreation = field(default_factory=TopicCreation)
    """Settings of the topics that the worker creates for a source."""

    @property
    def is_source(self) -> bool:
        return isinstance(self.connector, SourceConnector)

    def client(self, kind: str) -> dict[str, str]:
        return with_prefix(self.resolved, f"{kind}.override.")

    @classmethod
    def of(cls, properties: Mapping[str, str], worker: Mapping[str, str]) -> ConnectorConfig:
        """Validate a configuration and construct its parts.

        Args:
            given: Properties of the connector.
            worker: Properties of the worker; its converters apply where the connector sets none.

        Raises:
            InvalidConnector: The configuration has errors; the message lists all of them.
        """
        reading = _Validator(properties, worker)
        if reading.validation.errors:
            raise InvalidConnector(properties.get("name", ""), reading.validation)
        return reading.made()


class InvalidConnector(UserError):
    def __init__(self, name: str, validation: Validation) -> None:
        listed = [each for errors in validation.errors.values() for each in errors]
        of = f" of connector {name}" if name else ""
        super().__init__("\n".join([
            f"The configuration{of} has {len(listed)} error{'s' if len(listed) > 1 else ''}:",
            *listed,
        ]))  # fmt: skip


def validate(properties: Mapping[str, str], worker: Mapping[str, str]) -> Validation:
    return _Validator(properties, worker).validation


class _Validator:
    """One pass over a configuration: constructs all valid parts and collects all errors."""

    def __init__(self, properties: Mapping[str, str], worker: Mapping[str, str]) -> None:
        self._submitted = properties
        self.given: dict[str, str] = {}
        self.validation = Validation(given=self.given, submitted=properties)
        self._resolve(properties, worker)
        self._worker = worker
        self._class = self._connector_class()
        role = Definition()
        if self._class is not None:
            role = SOURCE if self._is_source else SINK
        self._common = COMMON + role
        self.validation.add("Common", self._common)
        self._predicates = self._named("predicates", self._predicate)
        self._steps = self._named("transforms", self._step)
        self._converters = {name: self._converter(name) for name in CONVERTER_KEYS}
        self._connector = self._make_connector()
        self._check_topics()
        self._check_topic_creation()

    def _resolve(self, properties: Mapping[str, str], worker: Mapping[str, str]) -> None:
        """Replace the variables of the worker's config providers."""
        providers = ConfigProviders(worker)
        for name, text in properties.items():
            try:
                self.given[name] = providers.resolve(text)
            except UserError as error:
                self.given[name] = text
                self.validation.fail(name, f"{name}: {error}")

    def made(self) -> ConnectorConfig:
        assert self._connector is not None
        key_, value, header = (self._converters[name] for name in CONVERTER_KEYS)
        assert key_ is not None
        assert value is not None
        assert header is not None
        settings = self._common.settings(self.given)
        return ConnectorConfig(
            settings["name"],
            dict(self._submitted),
            dict(self.given),
            self._connector,
            Chain(tuple(self._steps.values())),
            Conversion(key_, value, header),
            ErrorPolicy.of(settings),
            settings,
            topic_creation(self.given, self._worker) if self._is_source else TopicCreation(),
        )

    # ----------------------------------------------------------------------------- connector

    def _connector_class(self) -> type[Connector] | None:
        name = self.given.get("connector.class", "").strip()
        if not name:
            return None
        try:
            return connector_class(name)
        except ValueError as error:
            self.validation.fail("connector.class", str(error))
            return None

    def _make_connector(self) -> Connector | None:
        if self._class is None:
            return None
        definition = self._class.definition
        self.validation.add(self._class.__name__, definition)
        if any(each.name in self.validation.errors for each in definition):
            return None
        settings = definition.settings(self.given)
        return self._make("connector.class", lambda: self._class_of(settings))

    def _class_of(self, settings: Mapping[str, Any]) -> Connector:
        assert self._class is not None
        return self._class(settings)

    def _check_topics(self) -> None:
        if self._class is None or not issubclass(self._class, SinkConnector):
            return
        topics = self.given.get("topics", "").strip()
        regex = self.given.get("topics.regex", "").strip()
        if bool(topics) == bool(regex):
            message = (
                "exclude each other; set only one of them"
                if topics
                else "are both missing; set one of them"
            )
            for name in ("topics", "topics.regex"):
                self.validation.fail(name, f"The properties topics and topics.regex {message}.")
        queue = self.given.get("errors.deadletterqueue.topic.name", "").strip()
        if queue and queue in [each.strip() for each in topics.split(",")]:
            self.validation.fail(
                "errors.deadletterqueue.topic.name",
                f"The dead letter queue {queue} must not be one of the topics that the sink reads.",
            )

    @property
    def _is_source(self) -> bool:
        return self._class is not None and issubclass(self._class, SourceConnector)

    def _check_topic_creation(self) -> None:
        if not (self._is_source and is_used(self.given) and is_enabled(self._worker)):
            return
        for group, prefix, definition in definitions(self.given):
            self.validation.add(f"Topic Creation: {group}", definition, prefix)
        for name, problem in problems(self.given).items():
            self.validation.fail(name, problem)

    # ------------------------------------------------------------------------------- plugins

    def _converter(self, name: str) -> Converter | None:
        """Return the converter that the connector, its class or the worker configures.

        The first of them that names one wins.
        The properties of the converter come from the same source as its class.
        """
        source = self.given if self.given.get(name, "").strip() else self._worker
        if source is not self.given and self._class is not None and name in self._class.converters:
            source = {name: self._class.converters[name]}
        fallback = "SimpleHeaderConverter" if name == "header.converter" else ""
        class_name = source.get(name) or fallback
        if not class_name:
            self.validation.fail(name, f"{name} is set neither in the connector nor in the worker.")
            return None
        try:
            found = converter_class(class_name)
        except ValueError as error:
            self.validation.fail(name, str(error))
            return None
        own = with_prefix(source, f"{name}.")
        if source is self.given:
            self.validation.add(f"Converter: {name}", found.definition, f"{name}.")
        problems = found.definition.problems(own)
        if problems:
            if source is not self.given:
                for each in problems.values():
                    self.validation.fail(name, f"The worker's {name}: {each}")
            return None
        settings, is_key = found.definition.settings(own), name == "key.converter"
        return self._make(name, lambda: found(settings, is_key=is_key))

    def _named(self, kind: str, make: Any) -> dict[str, Any]:
        """Return the valid entries of `transforms` or `predicates`, by name."""
        made = {}
        for name in self._names(kind):
            found = make(name, f"{kind}.{name}.")
            if found is not None:
                made[name] = found
        return made

    def _names(self, kind: str) -> list[str]:
        parsed = COMMON.table[kind].parse(self.given.get(kind, ""))
        assert isinstance(parsed, list)
        return [name for name in parsed if name]

    def _predicate(self, name: str, prefix: str) -> Predicate | None:
        try:
            found = predicate_class(self._type(prefix))
        except ValueError as error:
            self.validation.fail(f"{prefix}type", str(error))
            return None
        self.validation.add(f"Predicates: {name}", _TYPE + found.definition, prefix)
        if self.validation.failed_under(prefix):
            return None
        settings = found.definition.settings(with_prefix(self.given, prefix))
        return self._make(f"{prefix}type", lambda: found(settings))

    def _step(self, name: str, prefix: str) -> TransformStep | None:
        try:
            found, part = transform_class(self._type(prefix))
        except ValueError as error:
            self.validation.fail(f"{prefix}type", str(error))
            return None
        self.validation.add(f"Transforms: {name}", _STEP + found.definition, prefix)
        if self.validation.failed_under(prefix):
            return None
        own = with_prefix(self.given, prefix)
        transform = self._make(f"{prefix}type", lambda: found(found.definition.settings(own), part))
        if transform is None:
            return None
        settings = _STEP.settings(own)
        wanted = settings["predicate"]
        if wanted and wanted not in self._predicates:
            if not self.validation.failed_under(f"predicates.{wanted}."):
                self.validation.fail(
                    f"{prefix}predicate",
                    f"{prefix}predicate is {wanted}, which the property predicates does not list.",
                )
            return None
        return TransformStep(transform, self._predicates.get(wanted), settings["negate"])

    def _type(self, prefix: str) -> str:
        found = self.given.get(f"{prefix}type", "").strip()
        if not found:
            raise ValueError(
                f'Missing required configuration "{prefix}type" which has no default value.'
            )
        return found

    def _make(self, name: str, make: Callable[[], Made]) -> Made | None:
        try:
            return make()
        except (ValueError, ConfigError) as error:
            self.validation.fail(name, _sentence(str(error)))
            return None


_TYPE = Definition(
    [key("type", STRING, None, "Class of the transform or predicate, by name.", NonEmpty())],
    required=["type"],
)
_STEP = _TYPE + Definition([
    key("predicate", STRING, "", "Predicate that selects the records to transform."),
    key("negate", BOOLEAN, False,
        "Whether to transform the records that the predicate does not select."),
])  # fmt: skip


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
