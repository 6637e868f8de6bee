"""Users on the command line of `kafka-storage format --add-scram`.

    SCRAM-SHA-512=[name=admin,password=secret]
    SCRAM-SHA-256=[name="a,b",iterations=8192,salt="c2FsdA==",saltedpassword="…"]

Salts and salted passwords are in base64. Errors never show a value, because it may be a password.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable

import click

from ottla.base.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    derive_credential,
    new_credential,
)

_USER = re.compile(r"(SCRAM-[A-Za-z0-9-]+)=\[(.*)\]", re.DOTALL)
_ENTRY = re.compile(r'([a-z]+)=("[^"]*"|[^",]*)(?:,|$)', re.DOTALL)
_KEYS = frozenset({"name", "password", "salt", "saltedpassword", "iterations"})


def first_users(texts: Iterable[str]) -> dict[str, dict[ScramMechanism, ScramCredential]]:
    """Parse users and derive their credentials.

    Raises:
        click.UsageError: A user is malformed, or given twice for one mechanism.
    """
    users: dict[str, dict[ScramMechanism, ScramCredential]] = {}
    for text in texts:
        found = _USER.fullmatch(text.strip())
        if found is None:
            raise _error("must look like SCRAM-SHA-512=[name=admin,password=secret]")
        mechanism = _mechanism(found[1])
        entries = _entries(found[2])
        name = entries.get("name", "")
        if not name:
            raise _error("requires a name")
        credentials = users.setdefault(name, {})
        if mechanism in credentials:
            raise _error(f"is given twice for user {name} and {mechanism.sasl_name}")
        credentials[mechanism] = _credential(mechanism, entries)
    return users


def _mechanism(name: str) -> ScramMechanism:
    for mechanism in ScramMechanism:
        if mechanism.sasl_name == name:
            return mechanism
    known = " or ".join(each.sasl_name for each in ScramMechanism)
    raise _error(f"requires the mechanism {known}, not {name}")


def _entries(text: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _ENTRY.match(text, position)
        if found is None or found[1] not in _KEYS or found[1] in entries:
            raise _error(
                "takes name, password, iterations, salt and saltedpassword once each; put values "
                'with commas in "quotes"'
            )
        entries[found[1]] = found[2].strip('"')
        position = found.end()
    return entries


def _credential(mechanism: ScramMechanism, entries: dict[str, str]) -> ScramCredential:
    iterations = _iterations(entries.get("iterations"))
    password, salted = entries.get("password", ""), entries.get("saltedpassword", "")
    if bool(password) == bool(salted):
        raise _error("requires either a password or a saltedpassword")
    salt = _decoded(entries["salt"]) if "salt" in entries else None
    if salted:
        if not salt:
            raise _error("requires the salt of a saltedpassword")
        return derive_credential(mechanism, _decoded(salted), salt, iterations)
    return new_credential(mechanism, password, iterations=iterations, salt=salt)


def _iterations(text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    if not text.isdigit() or not MIN_ITERATIONS <= int(text[:9]) <= MAX_ITERATIONS:
        raise _error(f"requires between {MIN_ITERATIONS} and {MAX_ITERATIONS} iterations")
    return int(text)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _error("requires salt and saltedpassword in base64") from None


def _error(message: str) -> click.UsageError:
    return click.UsageError(f"--add-scram {message}.")
