"""Captured tables, and the publications that contain them.

A table without a primary key or other replica identity must not be in a publication of updates, as
PostgreSQL would then reject every update of it, by any client. Such tables are in a second
publication, `NAME_inserts`, and only their inserts and truncates are captured.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.base.errors import UserError
from ottla.connect.connectors.postgres import privileges
from ottla.connect.connectors.postgres.catalog import (
    Catalog,
    FoundTable,
    add_to_publication,
    create_publication,
    drop_from_publication,
)
from ottla.connect.connectors.postgres.connection import PostgresError, identifier
from ottla.connect.connectors.postgres.options import Options

logger = logging.getLogger(__name__)

INSERTS_SUFFIX = "_inserts"
MAX_NOTICES = 20
INSUFFICIENT_PRIVILEGE = "42501"


class Published:
    def __init__(self, catalog: Catalog, options: Options) -> None:
        self._catalog = catalog
        self._options = options
        self._main = options.publication_name
        self._inserts = options.publication_name + INSERTS_SUFFIX
        self.tables: dict[str, FoundTable] = {}
        """Tables that the configuration selects and that exist, by full name."""
        self.notices: list[str] = []

    def refresh(self) -> None:
        """Find the tables to capture.

        Raises:
            UserError: There are none; the message has the cause and what to run or to set.
        """
        existing = self._catalog.tables()
        selection = self._options.selection
        found = [each for each in existing if selection.takes_table(each.schema, each.name)]
        notices: list[str] = []
        if not found and not self.tables:
            others = [
                (f"{schema}.{name}", kind)
                for schema, name, kind in self._catalog.not_captured()
                if selection.takes_table(schema, name)
            ]
            raise UserError(
                selection.why_nothing_matches(
                    self._options.database.place, [each.full_name for each in existing], others
                )
            )
        if self._mode == "disabled":
            found, notices = self._in_publication(found)
        self.tables = {each.full_name: each for each in found}
        self._notice(notices)

    def check_privileges(self, names: Iterable[str], *, reads: bool) -> None:
        """Check that the role may publish the tables and, if it `reads` them, take a snapshot.

        Raises:
            PostgresError: It may not; the message has every statement that must be run.
        """
        tables = [self.tables[name] for name in names if name in self.tables]
        if not tables:
            return
        database = self._options.database
        access = self._catalog.access(tables)
        # Ignore tables that were dropped since.
        tables = [each for each in tables if each.full_name in access]
        missing = privileges.to_read(database.user, tables, access) if reads else []
        wanted = self._wanted(tables) if self._options.snapshot.streams else []
        missing += privileges.to_publish(
            database.user,
            database.name,
            wanted,
            self._catalog.may_create_publications(),
            access,
        )
        if missing:
            raise PostgresError(
                privileges.sentence(database.user, database.place, missing), INSUFFICIENT_PRIVILEGE
            )

    @property
    def publications(self) -> list[str]:
        if self._mode != "filtered" or self._catalog.publication(self._inserts) is None:
            return [self._main]
        return [self._main, self._inserts]

    def unpublished(self) -> list[str]:
        """Return the tables that are not in a publication yet."""
        if self._mode != "filtered" or self._catalog.publishes_all(self._main):
            return []
        there = self._existing()
        return [name for name in self.tables if name not in there]

    def publish(self, names: Iterable[str]) -> None:
        if self._mode == "disabled":
            return
        if self._mode == "all_tables":
            if self._catalog.publication(self._main) is None:
                self._catalog.change_publication(create_publication(self._main, None))
            return
        for each in self._wanted([self.tables[name] for name in names if name in self.tables]):
            if not each.exists:
                statement = create_publication(each.name, [], only_inserts=each.only_inserts)
                self._catalog.change_publication(statement)
            for table in each.to_add:
                self._add_to_publication(table)

    def repair(self) -> None:
        """Move tables that gained or lost a replica identity to the other publication."""
        if self._mode != "filtered" or self._catalog.publishes_all(self._main):
            return
        main = self._catalog.publication(self._main) or set()
        inserts = self._catalog.publication(self._inserts) or set()
        for name, table in self.tables.items():
            if name in (inserts if table.has_replica_identity else main):
                self._add_to_publication(table)

    @property
    def _mode(self) -> str:
        return self._options.publication_mode

    def _existing(self) -> set[str]:
        main, inserts = (
            self._catalog.publication(self._main),
            self._catalog.publication(self._inserts),
        )
        return (main or set()) | (inserts or set())

    def _add_to_publication(self, table: FoundTable) -> None:
        """Add a table to the publication that suits it, and remove it from the other."""
        right, wrong = self._main, self._inserts
        if not table.has_replica_identity:
            right, wrong = wrong, right
        if table.full_name in (self._catalog.publication(wrong) or ()):
            self._catalog.change_publication(drop_from_publication(wrong, table))
        if table.full_name not in (self._catalog.publication(right) or ()):
            self._catalog.change_publication(add_to_publication(right, [table]))

    def _wanted(self, tables: Iterable[FoundTable]) -> list[privileges.Publication]:
        """Return the publications that must be created or extended for the tables."""
        if self._mode != "filtered" or self._catalog.publishes_all(self._main):
            return []
        main, inserts = (
            self._catalog.publication(self._main),
            self._catalog.publication(self._inserts),
        )
        updates = [each for each in tables if each.has_replica_identity]
        others = [each for each in tables if not each.has_replica_identity]
        wanted = [
            privileges.Publication(
                self._main,
                main is not None,
                self._catalog.owns_publication(self._main),
                [each for each in updates if each.full_name not in (main or ())],
            ),
            privileges.Publication(
                self._inserts,
                inserts is not None,
                self._catalog.owns_publication(self._inserts),
                [each for each in others if each.full_name not in (inserts or ())],
                only_inserts=True,
            ),
        ]
        return [
            each for each in wanted if each.to_add or (each.name == self._main and not each.exists)
        ]

    def _in_publication(self, found: list[FoundTable]) -> tuple[list[FoundTable], list[str]]:
        """Return the tables that an externally managed publication contains, and notices."""
        name, place = self._main, self._options.database.place
        there = self._catalog.publication(name)
        if there is None:
            raise UserError(
                f"The publication {name} does not exist in {place}, and "
                "publication.autocreate.mode=disabled. Run as a superuser: "
                f"{create_publication(name, found)};"
            )
        absent = [each for each in found if each.full_name not in there]
        if not absent:
            return found, []
        what = f"the publication {name} does not contain {privileges.listed(absent)}"
        if not self._catalog.publishes_by_root(name) and absent[0].is_partitioned:
            absent = [each for each in absent if each.is_partitioned]
            what = f"the publication {name} publishes {privileges.listed(absent)} by partition"
            statement = (
                f"ALTER PUBLICATION {identifier(name)} SET (publish_via_partition_root = true)"
            )
        else:
            statement = add_to_publication(name, absent)
        if len(absent) == len(found) and not self.tables:
            raise UserError(f"T{what[1:]} in {place}. Run as its owner: {statement};")
        named = self._options.selection.tables
        kept = [each for each in found if each.full_name in there]
        return kept, [
            f"{what}, so its changes are not captured; run: {statement};"
        ] if named else []

    def _notice(self, notices: list[str]) -> None:
        data = notices + [
            f"{name} has no primary key: only its inserts and truncates are captured; "
            "a primary key, or REPLICA IDENTITY FULL, would add updates and deletes"
            for name, each in self.tables.items()
            if not each.has_replica_identity
        ]
        for each in data:
            if each not in self.notices:
                logger.warning("%s", each)
        self.notices = data[:MAX_NOTICES]
