"""Principals of client certificates: distinguished names and mapping rules."""

from __future__ import annotations

import pytest

from ottla.base.errors import UserError
from ottla.core.security.principal import (
    MappingRules,
    NoMatchingRule,
    Subject,
    distinguished_name,
)

NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


def subject(*attributes: tuple[str, str]) -> Subject:
    return [[each] for each in attributes]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (subject(), ""),
        (
            subject(
                ("countryName", "US"),
                ("organizationName", "Org"),
                ("organizationalUnitName", "ServiceUsers"),
                ("commonName", "Duke"),
            ),
            NAME,
        ),
        (subject(("commonName", 'a,b+c"d\\e<f>g;h')), r"CN=a\,b\+c\"d\\e\<f\>g\;h"),
        (subject(("commonName", " x ")), r"CN=\ x\ "),
        (subject(("commonName", "#1")), r"CN=\#1"),
        ([[("commonName", "a"), ("userId", "b")]], "CN=a+UID=b"),
        (
            subject(("commonName", "a"), ("emailAddress", "a@b.c")),
            "1.2.840.113549.1.9.1=#16056140622e63,CN=a",
        ),
        (subject(("serialNumber", "12")), "2.5.4.5=#13023132"),
    ],
)
def test_a_subject_is_written_as_java_does(given: Subject, expected: str) -> None:
    assert distinguished_name(given) == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", NAME),
        ("", NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@$1/L", "duke@duke"),
        ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "DUKE"),
        ("RULE:^OU=.*$/x/, RULE:^CN=([^,]*).*/$1/L", "duke"),
        (r"RULE:^CN=(\w+),OU=(\w+),.*$/$2\/$1/", "ServiceUsers/Duke"),
        ("RULE:^OU=.*$/x/,DEFAULT", NAME),
    ],
)
def test_the_first_rule_that_matches_applies(rules: str, expected: str) -> None:
    principal = MappingRules.parse(rules, "ssl.principal.mapping.rules").principal_of(NAME)
    assert str(principal) == f"User:{expected}"


def test_a_name_that_no_rule_matches_has_no_principal() -> None:
    rules = MappingRules.parse("RULE:^CN=Duke$/$0/", "p")
    with pytest.raises(NoMatchingRule):
        rules.principal_of(NAME)


@pytest.mark.parametrize(
    "rules",
    ["RULE:a", "RULE:a/b", "DEFAULTS", "rule:a/b/", "RULE:(/b/", "RULE:a/$1/", "RULE:a/b/X"],
)
def test_an_invalid_rule_is_reported(rules: str) -> None:
    with pytest.raises(UserError, match=r"ssl\.principal\.mapping\.rules"):
        MappingRules.parse(rules, "ssl.principal.mapping.rules")
