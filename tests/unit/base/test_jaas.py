"""Tests of parsing `sasl.jaas.config`."""

from __future__ import annotations

import pytest

from ottla.base.jaas import JaasError, parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("m.Module required;", {}),
        ('m.Module required a="b" c="d";', {"a": "b", "c": "d"}),
        ("m.Module Sufficient a=b c='d e' ;", {"a": "b", "c": "d e"}),
        ('m.Module required\n  a="b"\n;\n', {"a": "b"}),
        (r'm.Module required a="say \"yes\" \\ \t";', {"a": 'say "yes" \\ \t'}),
        ('m.Module required a="x;y=z, \'q\'" b="";', {"a": "x;y=z, 'q'", "b": ""}),
        ('m.Module required "user_a b"="c";', {"user_a b": "c"}),
        ('m.Module required // first\n a="b" /* second\n */ c="d";', {"a": "b", "c": "d"}),
        ('m.Module required a="=" b=";";', {"a": "=", "b": ";"}),
        (r'm.Module required a="\101";', {"a": "A"}),
    ],
)
def test_options_are_parsed(text: str, options: dict[str, str]) -> None:
    found = parse_jaas(text)
    assert found.name == "m.Module"
    assert found.options == options


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a login module, a flag"),
        ("m.Module", "must be a login module, a flag"),
        ("; required", "must be a login module, a flag"),
        ("m.Module a=b;", "must have one of required"),
        ("m.Module required a=b", "must end with a semicolon"),
        ("m.Module required a;", "options of the form"),
        ("m.Module required a=;", "options of the form"),
        ("m.Module required =b;", "options of the form"),
        ("m.Module required a==b;", "options of the form"),
        ('m.Module required a="b;', "quotation marks in pairs"),
        ("m.Module required a=b a=c;", "the option a twice"),
        ("m.Module required; m.Other required;", "exactly one login module"),
    ],
)
def test_a_malformed_value_is_described(text: str, words: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_jaas(text)
    assert words in str(caught.value)


def test_users_and_the_own_user_are_apart() -> None:
    found = parse_jaas('m required username="u" password="p" user_u="p" user_other="q";')
    assert (found.username, found.password) == ("u", "p")
    assert found.users == {"u": "p", "other": "q"}
    assert "q" not in repr(found)
    assert parse_jaas("m required;").username is None
