"""Definitions of a plugin's properties: their types, defaults and which are required.

A plugin that passes properties on (options of a Spark format, client properties of another cluster)
declares their prefixes. A property with such a prefix is a setting too, as a string and under its
full name.

`Settings` are the values of one instance: the given values or the defaults. `problems` returns all
errors at once, as `PUT …/config/validate` reports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ottla.base.config.definition import ConfigError, ConfigKey, ConfigTable, ConfigType, Importance
from ottla.base.config.validator import Validator, Value

Settings = Mapping[str, Any]
"""Values of a plugin's properties by name, parsed according to its definition."""


def key(
    name: str,
    type_: ConfigType,
    default: Value,
    doc: str,
    validator: Validator | None = None,
    importance: Importance = Importance.MEDIUM,
) -> ConfigKey:
    """Define a property of a plugin.

    Args:
        name: Name of the property.
        type_: Type of its values.
        default: Value to use if the property is not set.
        doc: Description, one sentence.
        validator: Check of the values, such as `AtLeast(1)`.
        importance: Importance that tools show.

    Returns:
        The property, for a `Definition`.

    Example:
        key("batch.size", ConfigType.INT, 100, "Number of rows to write at once.", AtLeast(1))
    """
    return ConfigKey(name, type_, default, doc, validator, importance)


class Definition:
    """Properties of a plugin. Definitions can be added; the second one takes precedence.

    Args:
        keys: The properties.
        required: Names of the properties that must be set.
        prefixes: Prefixes of properties that are passed on without a check.

    Example:
        Definition(
            [key("topic", ConfigType.STRING, None, "Topic to write to.", NonEmpty())],
            required=["topic"],
        )
    """

    def __init__(
        self,
        keys: Iterable[ConfigKey] = (),
        required: Iterable[str] = (),
        prefixes: Iterable[str] = (),
    ) -> None:
        self.table = ConfigTable("connect", keys)
        self.required = frozenset(required)
        self.prefixes = tuple(prefixes)

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self.table)

    def __add__(self, other: Definition) -> Definition:
        """Return both definitions combined; a property in both is taken from `other`."""
        mine = [each for each in self if each.name not in other.table]
        prefixes = dict.fromkeys([*self.prefixes, *other.prefixes])
        return Definition([*mine, *other], self.required | other.required, prefixes)

    def knows(self, name: str) -> bool:
        """Return whether a property is defined, or has one of the prefixes.

        Args:
            name: Name of the property.
        """
        return name in self.table or name.startswith(self.prefixes)

    def problems(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return a one-sentence error for each invalid property."""
        found = {}
        for each in self:
            text = properties.get(each.name)
            if text is None or (not text.strip() and each.name in self.required):
                if each.name in self.required:
                    found[each.name] = (
                        f'Missing required configuration "{each.name}" which has no default value.'
                    )
                continue
            try:
                each.parse(text)
            except ConfigError as error:
                found[each.name] = str(error)
        return found

    def settings(self, properties: Mapping[str, str]) -> dict[str, Any]:
        """Return the values by name; raise ConfigError at the first invalid one."""
        handed_on = {name: value for name, value in properties.items() if self.knows(name)}
        return handed_on | {
            each.name: each.parse(properties[each.name])
            if each.name in properties
            else each.default
            for each in self
        }


def with_prefix(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the properties that have a prefix, with the prefix removed."""
    return {
        name.removeprefix(prefix): value
        for name, value in properties.items()
        if name.startswith(prefix)
    }
