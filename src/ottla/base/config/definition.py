"""Definitions of properties, and the parsing of their values.

A `ConfigTable` is an ordered set of `ConfigKey`s. Values are parsed as in Kafka: surrounding
whitespace is ignored, numbers are decimal digits within the range of their type, booleans are true
or false in any case, lists are separated by commas, and duplicate items of a list are dropped.

A property that is not set has its default, which may be None. Users cannot set None.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum

from ottla.base.config.secrets import HIDDEN
from ottla.base.config.validator import Validator, Value

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
KIB = 1024
MIB = 1024 * KIB
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class ConfigType(IntEnum):
    """Type of a property's values, with Kafka's codes."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """Importance of a property."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether a broker property can change at run time, and for one broker or for all."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(Exception):
    """A property has an invalid value. The message is one sentence."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {name}: the value {allowed}.")
        self.name = name


@dataclass(frozen=True, slots=True)
class Synonym:
    """A property that provides the value if another is not set, in its own unit."""

    name: str
    multiplier: int = 1

    def convert(self, value: Value) -> Value:
        if self.multiplier == 1 or not isinstance(value, int):
            return value
        return value * self.multiplier if value >= 0 else -1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The definition of a property.

    The `synonyms` of a topic property are the broker properties that provide its default, by
    descending priority. An `internal` property can be set, but is shown only if it is set.
    """

    name: str
    type: ConfigType
    default: Value
    doc: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    mode: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False

    @property
    def attribute(self) -> str:
        """The name of the property as a Python attribute."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value may be a secret: a password, or a property of unknown type."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def parse(self, text: str) -> Value:
        """Parse and validate a value.

        Raises:
            ConfigError: The value is invalid.
        """
        value = _PARSERS[self.type](self.name, text.strip())
        if self.validator is not None and not self.validator.accepts(value):
            shown = HIDDEN if self.sensitive else text.strip() or "''"
            raise ConfigError(self.name, shown, self.validator.allowed)
        return value

    def format(self, value: Value) -> str | None:
        return format_value(value)


@dataclass(frozen=True, slots=True)
class ParsedProperties:
    """The result of parsing properties, with all problems rather than only the first."""

    values: dict[str, Value] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    errors: list[ConfigError] = field(default_factory=list)


class ConfigTable:
    """The properties of one kind of resource, in order of definition."""

    def __init__(self, kind: str, keys: Iterable[ConfigKey]) -> None:
        self.kind = kind
        self._keys: dict[str, ConfigKey] = {}
        for key in keys:
            if key.name in self._keys:
                raise ValueError(f"{kind} property {key.name} is defined twice")
            self._keys[key.name] = key

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def get(self, name: str) -> ConfigKey | None:
        return self._keys.get(name)

    def parse(self, properties: Mapping[str, str]) -> ParsedProperties:
        """Parse and validate properties, and collect all errors."""
        result = ParsedProperties()
        for name, text in properties.items():
            key = self._keys.get(name)
            if key is None:
                result.unknown.append(name)
                continue
            try:
                result.values[name] = key.parse(text)
            except ConfigError as error:
                result.errors.append(error)
        return result

    def nearest(self, name: str) -> str | None:
        """Return the known property with the most similar name, for a "did you mean" hint."""
        found = difflib.get_close_matches(name.strip().lower(), self._keys, n=1, cutoff=0.6)
        return found[0] if found else None


def format_value(value: Value) -> str | None:
    """Format a value as Kafka does."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_double(value)
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list in order, without duplicates."""
    text = text.strip()
    if not text:
        return []
    return list(dict.fromkeys(item.strip() for item in text.split(",")))


def _format_double(value: float) -> str:
    """Format a float as Java does: plain from 10^-3 to 10^7, otherwise with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = (str(digit) for digit in digits)
    mantissa = f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}"
    return f"{mantissa}E{exponent + len(digits) - 1}"


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_DECIMAL_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _parse_boolean(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ConfigError(name, text or "''", "must be either true or false")
    return lowered == "true"


def _parse_whole_number(bits: int) -> Callable[[str, str], int]:
    minimum, maximum = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def parse(name: str, text: str) -> int:
        # Checked first, because converting a long string of digits to a number is expensive.
        if len(text) <= 40 and _WHOLE_NUMBER.fullmatch(text) and minimum <= int(text) <= maximum:
            return int(text)
        raise ConfigError(name, text or "''", f"must be a whole number that fits in {bits} bits")

    return parse


def _parse_double(name: str, text: str) -> float:
    if len(text) > 400 or not _DECIMAL_NUMBER.fullmatch(text):
        raise ConfigError(name, text or "''", "must be a decimal number")
    return float(text)


def _parse_list(name: str, text: str) -> list[str]:
    items = split_list(text)
    if "" in items:
        raise ConfigError(name, text, "must be a comma-separated list without empty items")
    return items


def _parse_text(_name: str, text: str) -> str:
    return text


_PARSERS: dict[ConfigType, Callable[[str, str], Value]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_text,
    ConfigType.INT: _parse_whole_number(32),
    ConfigType.SHORT: _parse_whole_number(16),
    ConfigType.LONG: _parse_whole_number(64),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_text,
    ConfigType.PASSWORD: _parse_text,
}
