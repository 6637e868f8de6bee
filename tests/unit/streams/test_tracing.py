"""Tests that functions over records become columns, or run in Python with a stated reason."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

import ottla.streams as st
from ottla.streams.plan.shapes import parse_record_shape, plain_shape
from ottla.streams.plan.tracing import InPython, Traced, format_function, trace

KEY = plain_shape("string")
VALUE = parse_record_shape("id string, item string, amount double, n int, big bigint, ok boolean")
LIMIT = 10
limits = [10]


def is_large(order: Any) -> Any:
    return order.amount > LIMIT


def traced(function: Callable[..., Any]) -> Traced | InPython:
    return trace("filter", function, KEY, VALUE)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda o: o.amount > 10, "amount > 10"),
        (lambda o: LIMIT < o.amount, "amount > 10"),  # noqa: SIM300
        (lambda o: o["amount"] > LIMIT, "amount > 10"),
        (lambda o: (o.amount > 1) & ~(o.item == "tea"), "(amount > 1) and not (item = 'tea')"),
        (lambda k, o: k == o.item, "key = item"),
        (lambda k, o, t: t, "timestamp"),
        (lambda o: o.n % 3 + 1, "pmod(n, 3) + 1"),
        (lambda o: o.item + "!", "concat(item, '!')"),
        (lambda o: o.item.lower().split(" "), "split(lower(item), ' ')"),
        (lambda o: {"x": o.n, "y": abs(-o.n), "z": 1}, "x=n, y=abs(-n), z=1"),
        (lambda o: st.is_null(o.item) | o.ok, "isnull(item) or ok"),
        (lambda o: is_large(o) & o.ok, "(amount > 10) and ok"),
        (is_large, "amount > 10"),
    ],
)
def test_functions_whose_meaning_spark_shares_become_columns(
    function: Callable[..., Any], text: str
) -> None:
    made = traced(function)
    assert isinstance(made, Traced), made
    assert format_function(made) == text


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda o: o.amount > 1 and o.ok, "`if`, `and`, `or`, `not` or `in`"),
        (lambda o: "a" if o.ok else "b", "`if`"),
        (lambda o: o.item in ("a", "b"), "`in`"),
        (lambda o: f"{o.item}", "an f-string"),
        (lambda o: random.random() < 0.5, "uses random"),
        (lambda o: o.amount * random.random(), "uses random"),
        (lambda o: math.sqrt(o.amount), "uses math"),
        (lambda o: len(o.item), "uses len"),
        (lambda o: o.amount > limits[0], "uses limits"),
        (lambda o: o.item > 1, "string > int"),
        (lambda o: o.item == None, "is_null"),  # noqa: E711
        (lambda o: o.n // 2, "TypeError"),
        (lambda o: o.n % -2, "%"),
        (lambda o: o.n**2, "TypeError"),
        (lambda o: o.item.strip(), ".strip of a string"),
        (lambda o: o.item + 1, "string + int"),
        (random.Random(1).random, "not a plain function"),
    ],
)
def test_other_functions_run_in_python_with_a_reason(
    function: Callable[..., Any], reason: str
) -> None:
    if not hasattr(function, "__code__"):
        function = type("Call", (), {"__call__": lambda self, o: True})()
    made = traced(function)
    assert isinstance(made, InPython), format_function(made)
    assert reason in made.reason


def test_a_closure_over_a_constant_is_traced_and_one_over_a_list_is_not() -> None:
    least, many = 5, [5]
    assert isinstance(traced(lambda o: o.n > least), Traced)
    assert isinstance(traced(lambda o: o.n > many[0]), InPython)


def test_a_function_that_calls_an_impure_one_is_not_traced() -> None:
    def impure(order: Any) -> Any:
        return order.n * random.random()

    assert isinstance(traced(lambda o: impure(o) > 1), InPython)


def test_unknown_columns_are_refused_with_the_valid_ones() -> None:
    with pytest.raises(
        st.TopologyError, match=r"filter \(test_tracing.py:\d+\): unknown column"
    ) as e:
        traced(lambda o: o.amuont > 1)
    assert "'amuont'; columns: id, item, amount, n, big, ok" in str(e.value)


def test_a_python_functions_fingerprint_changes_with_its_code() -> None:
    def mark(function: Callable[..., Any]) -> str:
        made = traced(function)
        assert isinstance(made, InPython)
        return made.fingerprint

    assert mark(lambda o: o.n // 2) == mark(lambda o: o.n // 2)
    assert mark(lambda o: o.n // 2) != mark(lambda o: o.n // 3)
    assert mark(lambda o: o.n // 2) != mark(lambda o: o.big // 2)
