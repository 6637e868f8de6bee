"""Java's notation for credentials: the value of `sasl.jaas.config`.

A value names one login module, a flag, and options, and ends with a semicolon:

    org.apache.kafka.common.security.plain.PlainLoginModule required \\
        username="admin" password="…" user_admin="…" user_alice="…";
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
USER_PREFIX = "user_"

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/"""
    r"""|(?P<mark>[=;])"""
    r"""|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'"""
    r"""|(?P<word>[^\s=;"']+)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasError(Exception):
    """A value cannot be parsed. The message completes "the value …" and contains no secrets."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module with its options. The representation contains no secrets."""

    name: str
    """Name of the Java class."""
    options: Mapping[str, str] = field(repr=False)

    @property
    def username(self) -> str | None:
        """Name of the user as which a client logs in."""
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        """Password of the user as which a client logs in."""
        return self.options.get("password")

    @property
    def users(self) -> dict[str, str]:
        """Passwords of the users that a listener with PLAIN accepts, by name."""
        return {
            name.removeprefix(USER_PREFIX): password
            for name, password in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> LoginModule:
    """Parse a login module.

    Args:
        text: Value of `sasl.jaas.config`.

    Raises:
        JaasError: The value is not one login module.
    """
    tokens = _tokens(text)
    if [each.kind for each in tokens[:2]] != [_TEXT, _TEXT]:
        raise JaasError("must be a login module, a flag such as required, and options")
    name, flag = tokens[0].text, tokens[1].text
    if flag.lower() not in _FLAGS:
        raise JaasError(f"must have one of {', '.join(_FLAGS)} after the login module")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position].kind != ";":
        option = tokens[position : position + 3]
        if [each.kind for each in option] != [_TEXT, "=", _TEXT]:
            raise JaasError('must have options of the form name="value"')
        if option[0].text in options:
            raise JaasError(f"must not have the option {option[0].text} twice")
        options[option[0].text] = option[2].text
        position += 3
    if position == len(tokens):
        raise JaasError("must end with a semicolon")
    if position + 1 < len(tokens):
        raise JaasError("must have exactly one login module")
    return LoginModule(name, options)


_TEXT = "text"


class _Token(NamedTuple):
    kind: str
    """`_TEXT`, or a punctuation mark outside quotation marks."""
    text: str


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("must have quotation marks in pairs")
        position = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            found.append(_Token(_TEXT, _ESCAPE.sub(_unescaped, quoted)))
        elif match["mark"]:
            found.append(_Token(match["mark"], match["mark"]))
        elif match["word"]:
            found.append(_Token(_TEXT, match["word"]))
    return found


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)
