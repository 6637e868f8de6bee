"""Tests of topic name patterns in subscriptions."""

from __future__ import annotations

import re
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.group.topic_pattern import InvalidPattern, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", ["orders"], ["order", "orders2", "myorders"]),
        ("orders.*", ["orders", "orders-eu"], ["my-orders"]),
        ("^orders$", ["orders"], ["orders-"]),
        ("a|bc", ["a", "bc"], ["ac", "abc"]),
        ("(?i)ORDERS", ["orders", "Orders"], []),
        ("(?i:a)b", ["ab", "Ab"], ["AB"]),
        ("((?i)a)b", ["Ab"], ["AB"]),
        ("(?-i)a", ["a"], ["A"]),
        ("[a-c]+[^a-c]", ["abcd", "a-"], ["abc"]),
        (r"[[:alpha:]]+\d{2,3}", ["abc12", "a123"], ["abc1", "abc1234"]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"a\.b", ["a.b"], ["a-b"]),
        (r"\ba\b.*", ["a", "a-b"], ["ab"]),
        (r"a\Bb", ["ab"], ["a-b"]),
        ("x{2}", ["xx"], ["x", "xxx"]),
        ("x{2,}", ["xx", "xxx"], ["x"]),
        ("x{,2}", [], ["x", "xx"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        (r"\pL\p{N}\P{L}\p{^N}", ["a1-b"], ["1111"]),
        (r"\x61\x{62}", ["ab"], ["a"]),
        ("[]a-]+", ["a-a"], ["b"]),
        ("a*?b+?c??", ["bb", "aabc"], ["ac"]),
        ("", [""], ["a"]),
        ("()", [""], ["a"]),
        ("(?s).", ["a"], ["ab"]),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matching: list[str], other: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert [name for name in matching if not compiled.matches(name)] == []
    assert [name for name in other if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(", "a)", "[a", "*", "a**", "a*+", r"\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)",
        "a{1001}", "(a{1000}){1000}", "\\", "[z-a]", "(?P<>a)", "(?z)", "(?)", "(?i", "(?<n",
        "[[:foo:]]", r"\y", r"\p{", r"\x{110000}", r"\xg", "(" * 200 + ")" * 200, "a{2,1}", "+a",
    ],
)  # fmt: skip
def test_what_re2_does_not_have_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|a)*", "(a|aa)+", "(a*)*b", "a*a*a*a*a*a*a*a*c"])
def test_no_pattern_takes_long(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    began = time.perf_counter()
    assert not compiled.matches("a" * 248 + "-")
    assert time.perf_counter() - began < 0.5


parts = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", "a|b", "(a|b)", "(?:ab)", r"\d", r"\w", "^", "$", "[a-c-]"]
)
patterns = st.lists(
    st.tuples(parts, st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{0,}"])), max_size=6
).map(
    lambda pieces: "".join(
        part if part in "^$" else f"(?:{part}){repeat}" for part, repeat in pieces
    )
)
names = st.text(st.sampled_from("abc-." + string.digits[:2]), max_size=8)


@given(patterns, st.lists(names, max_size=10))
def test_patterns_mean_what_they_mean_to_python(pattern: str, names: list[str]) -> None:
    compiled, expected = compile_pattern(pattern), re.compile(pattern)
    for name in names:
        assert compiled.matches(name) == bool(expected.fullmatch(name)), (pattern, name)


@given(st.text(st.sampled_from("ab()[]{}|*+?^$\\-.,1:<>PdQEpx"), max_size=20))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        compile_pattern(text).matches("ab-1.a")
    except InvalidPattern:
        pass
