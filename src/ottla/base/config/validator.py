"""Validators for the values of properties.

A validator decides whether it accepts a value, and describes the values that it accepts, so that an
error message can name the property, the value and what is allowed. Validators never see None, since
properties that are not set are not validated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Value: TypeAlias = bool | int | float | str | list[str] | None


class Validator(Protocol):
    """A rule for the value of a property."""

    def accepts(self, value: Value) -> bool:
        """Return whether a value is valid.

        Args:
            value: Value of the property.
        """

    @property
    def allowed(self) -> str:
        """Description of the valid values that completes the sentence "the value …"."""


@dataclass(frozen=True, slots=True)
class Between:
    """Validator for numbers within bounds."""

    minimum: float
    """Smallest value."""
    maximum: float
    """Largest value."""
    also: float | None = None
    """A single value outside the bounds that is valid, too."""

    def accepts(self, value: Value) -> bool:
        """Return whether a value is valid.

        Args:
            value: Value of the property.
        """
        assert isinstance(value, int | float)
        return self.minimum <= value <= self.maximum or value == self.also

    @property
    def allowed(self) -> str:
        """Description of valid values, which completes "the value …"."""
        exception = "" if self.also is None else f" or equal to {self.also}"
        return f"must be between {self.minimum} and {self.maximum}{exception}"


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Validator for numbers with a lower bound."""

    minimum: float
    """Smallest value."""

    def accepts(self, value: Value) -> bool:
        """Return whether a value is valid.

        Args:
            value: Value of the property.
        """
        assert isinstance(value, int | float)
        return value >= self.minimum

    @property
    def allowed(self) -> str:
        """Description of valid values, which completes "the value …"."""
        return f"must be at least {self.minimum}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Validator for text that is one of several choices."""

    choices: tuple[str, ...]
    """Valid values."""
    ignore_case: bool = False
    """Whether case is ignored."""

    def accepts(self, value: Value) -> bool:
        """Return whether a value is valid.

        Args:
            value: Value of the property.
        """
        assert isinstance(value, str)
        if self.ignore_case:
            return value.lower() in [choice.lower() for choice in self.choices]
        return value in self.choices

    @property
    def allowed(self) -> str:
        """Description of valid values, which completes "the value …"."""
        return f"must be one of {', '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class EachOneOf:
    """Validator for lists whose items are all among several choices."""

    choices: tuple[str, ...]
    """Valid items."""
    empty: bool = True
    """Whether the list may be empty."""

    def accepts(self, value: Value) -> bool:
        """Return whether a value is valid.

        Args:
            value: Value of the property.
        """
        assert isinstance(value, list)
        return (self.empty or bool(value)) and all(item in self.choices for item in value)

    @property
    def allowed(self) -> str:
        """Description of valid values, which completes "the value …"."""
        return f"must be a list of {', '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """Validator for strings and lists that must not be empty."""

    def accepts(self, value: Value) -> bool:
        """Return whether a value is valid.

        Args:
            value: Value of the property.
        """
        assert isinstance(value, str | list)
        return bool(value) and (isinstance(value, str) or all(value))

    @property
    def allowed(self) -> str:
        """Description of valid values, which completes "the value …"."""
        return "must not be empty"


_REPLICA = re.compile(r"[0-9]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*` for all replicas, or a list of partition:broker pairs."""

    def accepts(self, value: Value) -> bool:
        assert isinstance(value, list)
        return value == ["*"] or all(_REPLICA.fullmatch(item) for item in value)

    @property
    def allowed(self) -> str:
        return "must be * or a list of partition:broker pairs such as 0:1,1:2"


@dataclass(frozen=True, slots=True)
class HostLimits:
    """A text of host:number pairs such as `127.0.0.1:200,db1:50`, or an empty one."""

    def accepts(self, value: Value) -> bool:
        assert isinstance(value, str)
        pairs = [pair.strip().rpartition(":") for pair in value.split(",") if value.strip()]
        return all(host.strip() and re.fullmatch("[0-9]{1,9}", n.strip()) for host, _, n in pairs)

    @property
    def allowed(self) -> str:
        return "must be a list of host:number pairs such as 127.0.0.1:200,db1:50"


@dataclass(frozen=True, slots=True)
class Principals:
    """A text of principals separated by semicolons, such as `User:admin;User:CN=b,O=x`."""

    def accepts(self, value: Value) -> bool:
        assert isinstance(value, str)
        return all(
            type_ and name
            for each in value.split(";")
            if each.strip()
            for type_, _, name in [each.strip().partition(":")]
        )

    @property
    def allowed(self) -> str:
        return "must be a list of principals, separated by semicolons, such as User:admin;User:b"


@dataclass(frozen=True, slots=True)
class KnownClass:
    """Names of Java classes that Ottla replaces; any other class could not be loaded."""

    names: tuple[str, ...]
    """Valid names."""
    reason: str
    """Clause that says why other classes cannot be used."""
    may_be_empty: bool = False
    """Whether an empty text is valid, which stands for no class."""

    def accepts(self, value: Value) -> bool:
        assert isinstance(value, str)
        return value in self.names or (self.may_be_empty and not value)

    @property
    def allowed(self) -> str:
        return f"must be {' or '.join(self.names)}, because other {self.reason}"


def one_of(*choices: str) -> OneOf:
    return OneOf(choices)


def each_one_of(choices: Sequence[str], *, empty: bool = True) -> EachOneOf:
    return EachOneOf(tuple(choices), empty)
