"""Tests of arguments given one by one or as a list."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.arguments import flatten
from ottla.client.errors import InvalidConfig


@pytest.mark.parametrize(
    "arguments",
    [("a", "b"), (["a", "b"],), (("a", "b"),), ("a", ["b"]), ({"a": 1, "b": 2},), (iter("ab"),)],
)
def test_items_and_lists_of_items_are_the_same(arguments: tuple[Any, ...]) -> None:
    assert flatten(arguments, str, "names") == ["a", "b"]


def test_an_item_that_is_iterable_is_one_item() -> None:
    partition = TopicPartition("orders", 0)
    assert flatten((partition,), TopicPartition, "partitions") == [partition]
    assert flatten(("orders",), str, "names") == ["orders"]


@pytest.mark.parametrize("wrong", [1, None, b"a", [1], ["a", ["b"]]])
def test_anything_else_is_refused_in_one_sentence(wrong: Any) -> None:
    with pytest.raises(
        InvalidConfig, match=r"^Expected names, as separate arguments or as a list, not .*\.$"
    ):
        flatten((wrong,), str, "names")
