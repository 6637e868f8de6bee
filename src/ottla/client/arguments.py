"""Arguments of calls that accept several items, one by one or as a list.

`admin.delete_topics("a", "b")`, `admin.delete_topics(["a", "b"])` and `admin.delete_topics("a")`
are all valid; `flatten` turns the arguments of such calls into one list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ottla.client.errors import InvalidConfig

T = TypeVar("T")


def flatten(
    arguments: Iterable[T | Iterable[T]], kind: type[T] | tuple[type[T], ...], what: str
) -> list[T]:
    """Return the items among the arguments, those within lists included.

    Args:
        arguments: Items, and iterables of items, in any mixture.
        kind: Types of an item. An argument of one of these types is an item even if it is
            iterable itself, like a string or a TopicPartition.
        what: Name of the items for the error message, such as "topic names".

    Raises:
        InvalidConfig: An argument is neither an item nor an iterable of items.
    """
    found: list[T] = []
    for argument in arguments:
        if isinstance(argument, kind):
            found.append(argument)
            continue
        if isinstance(argument, bytes) or not isinstance(argument, Iterable):
            raise _argument_error(argument, what)
        for item in argument:
            if not isinstance(item, kind):
                raise _argument_error(item, what)
            found.append(item)
    return found


def _argument_error(argument: object, what: str) -> InvalidConfig:
    return InvalidConfig(f"Expected {what}, as separate arguments or as a list, not {argument!r}.")
