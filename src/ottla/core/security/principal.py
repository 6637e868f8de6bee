"""Principals: the names of authenticated clients.

A client without authentication is `User:ANONYMOUS`. The name of a client with a certificate is its
distinguished name in the form of RFC 2253, as Java writes it, after `ssl.principal.mapping.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.base.errors import UserError
from ottla.base.principal import ANONYMOUS, USER, Principal

__all__ = ["ANONYMOUS", "USER", "MappingRules", "NoMatchingRule", "Principal", "distinguished_name"]

_KEYWORDS = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Attributes that RFC 2253 abbreviates, by OpenSSL's names."""
_OIDS = {
    "emailAddress": "1.2.840.113549.1.9.1",
    "serialNumber": "2.5.4.5",
    "surname": "2.5.4.4",
    "givenName": "2.5.4.42",
    "initials": "2.5.4.43",
    "title": "2.5.4.12",
    "generationQualifier": "2.5.4.44",
    "dnQualifier": "2.5.4.46",
    "pseudonym": "2.5.4.65",
    "name": "2.5.4.41",
}
"""Other attributes, which Java writes as OID and encoded value."""
_IA5_STRING, _UTF8_STRING, _PRINTABLE_STRING = 0x16, 0x0C, 0x13
_PRINTABLE = re.compile(r"[A-Za-z0-9 '()+,\-./:=?]*")
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|DEFAULT")

Subject = Sequence[Sequence[tuple[str, str]]]
"""A subject as `ssl.SSLObject.getpeercert` returns it: sets of attributes, the most general one
first."""


class NoMatchingRule(Exception):
    """No rule applies to a distinguished name."""


def distinguished_name(subject: Subject) -> str:
    """Return a subject in the form of RFC 2253."""
    return ",".join("+".join(map(_attribute, each)) for each in reversed(subject))


def _attribute(attribute: tuple[str, str]) -> str:
    name, value = attribute
    if name in _KEYWORDS:
        return f"{_KEYWORDS[name]}={_escaped(value)}"
    encoded = value.encode()
    tag = _UTF8_STRING
    if name == "emailAddress":
        tag = _IA5_STRING
    elif _PRINTABLE.fullmatch(value):
        tag = _PRINTABLE_STRING
    der = bytes([tag]) + _length(len(encoded)) + encoded
    return f"{_OIDS.get(name, name)}=#{der.hex()}"


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes([size])
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if value.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None for DEFAULT, which keeps the name."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        mapped = self.pattern.sub(self.replacement, name, count=1)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


class MappingRules:
    """The rules of `ssl.principal.mapping.rules`."""

    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._rules = tuple(rules)

    @classmethod
    def parse(cls, text: str, property_name: str) -> MappingRules:
        """Parse a comma-separated list of rules.

        Raises:
            UserError: A rule is invalid.
        """
        rules, rest = [], text.strip()
        while rest:
            match = _RULE.match(rest)
            if match is None or (match.end() < len(rest) and rest[match.end()] not in ", "):
                raise UserError(
                    f"{property_name}={text} cannot be used: {rest!r} is not a rule. Rules are "
                    "DEFAULT and RULE:pattern/replacement/, with L or U after the last slash for "
                    "lower or upper case."
                )
            rules.append(_parsed(match, property_name))
            rest = rest[match.end() :].lstrip(", ")
        return cls(rules or [_Rule(None, "", "")])

    def principal_of(self, name: str) -> Principal:
        """Return the principal of a distinguished name.

        Raises:
            NoMatchingRule: No rule matches the name.
        """
        for rule in self._rules:
            mapped = rule.apply(name)
            if mapped is not None:
                return Principal(USER, mapped)
        raise NoMatchingRule(name)


def _parsed(match: re.Match[str], property_name: str) -> _Rule:
    if match[0] == "DEFAULT":
        return _Rule(None, "", "")
    try:
        pattern = re.compile(match[1])
        # Java writes groups as $1 and Python as \1; any other backslash escapes a character.
        replacement = re.sub(r"\\(.)", r"\1", match[2])
        groups = re.sub(r"\$(\d)", r"\\g<\1>", replacement.replace("\\", r"\\"))
        re.sub(pattern, groups, "")
        if any(int(each) > pattern.groups for each in re.findall(r"\$(\d)", replacement)):
            raise re.error("invalid group reference")
    except re.error as error:
        raise UserError(f"{property_name} has the invalid rule {match[0]}: {error}.") from None
    return _Rule(pattern, groups, match[3])
