"""Privileges that capturing tables requires, and the statements that grant missing ones.

PostgreSQL reports missing privileges one at a time, as statements fail. Checking all of them in
advance gives one message with every statement that has to be run. The functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.connect.connectors.postgres.catalog import (
    Access,
    FoundTable,
    add_to_publication,
    create_publication,
)
from ottla.connect.connectors.postgres.connection import identifier

MAX_NAMES = 5
"""Maximum number of tables that a message names; the statements name all of them."""


class Missing(NamedTuple):
    what: str
    statement: str


class Publication(NamedTuple):
    """State of a publication, and the tables that must be added to it."""

    name: str
    exists: bool
    is_owned: bool
    """Whether the role owns the publication."""
    to_add: Sequence[FoundTable]
    only_inserts: bool = False


def to_read(role: str, tables: Sequence[FoundTable], access: Mapping[str, Access]) -> list[Missing]:
    """Return the privileges that a snapshot of the tables still needs."""
    grantee = identifier(role)
    found: list[Missing] = []
    closed = sorted({each.schema for each in tables if not access[each.full_name].uses_schema})
    if closed:
        schemas = ", ".join(identifier(each) for each in closed)
        grant = f"GRANT USAGE ON SCHEMA {schemas} TO {grantee}"
        found.append(Missing(f"USAGE on the schema {', '.join(closed)}", grant))
    unread = [each for each in tables if not access[each.full_name].selects]
    if unread:
        names = ", ".join(each.sql_name for each in unread)
        grant = f"GRANT SELECT ON {names} TO {grantee}"
        found.append(Missing(f"SELECT on {listed(unread)}", grant))
    filtered = [each for each in tables if not access[each.full_name].sees_all_rows]
    if filtered:
        what = f"BYPASSRLS (row-level security hides rows of {listed(filtered)})"
        found.append(Missing(what, f"ALTER ROLE {grantee} BYPASSRLS"))
    return found


def to_publish(
    role: str,
    database: str,
    publications: Sequence[Publication],
    may_create: bool,
    access: Mapping[str, Access],
) -> list[Missing]:
    """Return the privileges that creating and extending the publications still needs."""
    found: list[Missing] = []
    for each in publications:
        foreign = [table for table in each.to_add if not access[table.full_name].owns]
        if not each.exists and foreign:
            statement = create_publication(each.name, each.to_add, only_inserts=each.only_inserts)
            found.append(Missing(_ownership(foreign, each.name), statement))
        elif not each.exists and not may_create:
            grant = f"GRANT CREATE ON DATABASE {identifier(database)} TO {identifier(role)}"
            if all(grant != other.statement for other in found):
                found.append(Missing(f"CREATE on the database {database}", grant))
        elif each.exists and each.to_add and (foreign or not each.is_owned):
            what = (
                f"ownership of the publication {each.name} (needed to add {listed(each.to_add)})"
                if not each.is_owned
                else _ownership(foreign, each.name)
            )
            found.append(Missing(what, add_to_publication(each.name, each.to_add)))
    return found


def sentence(role: str, place: str, missing: Sequence[Missing]) -> str:
    lacks = " and ".join(each.what for each in missing)
    run = " ".join(f"{each.statement};" for each in missing)
    return f"The role {role} in {place} lacks {lacks}. Run as a superuser: {run}"


def listed(tables: Sequence[FoundTable]) -> str:
    names = [each.full_name for each in tables]
    rest = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _ownership(tables: Sequence[FoundTable], publication: str) -> str:
    return f"ownership of {listed(tables)} (needed to add it to the publication {publication})"
