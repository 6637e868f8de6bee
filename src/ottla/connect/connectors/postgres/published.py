"""The tables that are captured, and the publications that say so to PostgreSQL.

A table whose rows nothing tells apart (no primary key, no replica identity) must not be in a
publication of updates: PostgreSQL would refuse every update of it, to everybody. Such tables are in
a second publication, `NAME_inserts`, and only their inserts and truncates are captured."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.base.errors import UserError
from ottla.connect.connectors.postgres.catalog import Catalog, FoundTable
from ottla.connect.connectors.postgres.options import Options

logger = logging.getLogger(__name__)

INSERTS_SUFFIX = "_inserts"
MAX_NOTICES = 20


class Published:
    def __init__(self, catalog: Catalog, options: Options) -> None:
        self._catalog = catalog
        self._options = options
        self._main = options.publication_name
        self._inserts = options.publication_name + INSERTS_SUFFIX
        self.tables: dict[str, FoundTable] = {}
        """Those that the configuration wants and the database has, by full name."""
        self.notices: list[str] = []

    def look(self) -> None:
        """What is there now? Raises UserError if there is nothing to capture."""
        found = [
            each
            for each in self._catalog.tables()
            if self._options.selection.takes_table(each.schema, each.name)
        ]
        if self._mode == "disabled":
            there = self._catalog.publication(self._main)
            if there is None:
                raise UserError(
                    f"There is no publication {self._main} in {self._options.database.place}, and "
                    "publication.autocreate.mode=disabled."
                )
            found = [each for each in found if each.full_name in there]
        if not found and not self.tables:
            raise UserError(
                f"No table of {self._options.database.place} matches the include and exclude lists."
            )
        self.tables = {each.full_name: each for each in found}
        self._notice()

    @property
    def publications(self) -> list[str]:
        if self._mode != "filtered" or self._catalog.publication(self._inserts) is None:
            return [self._main]
        return [self._main, self._inserts]

    def unpublished(self) -> list[str]:
        """Tables that came to be since."""
        if self._mode != "filtered" or self._catalog.publishes_all(self._main):
            return []
        there = self._there()
        return [name for name in self.tables if name not in there]

    def publish(self, names: Iterable[str]) -> None:
        if self._mode == "disabled":
            return
        main = self._catalog.publication(self._main)
        if self._mode == "all_tables":
            if main is None:
                self._catalog.create_publication(self._main, None)
            return
        if main is None:
            self._catalog.create_publication(self._main, [])
        elif self._catalog.publishes_all(self._main):
            return
        if self._catalog.publication(self._inserts) is None:
            self._catalog.create_publication(self._inserts, [], only_inserts=True)
        for name in names:
            if name in self.tables:
                self._put(self.tables[name])

    def set_right(self) -> None:
        """Tables that got or lost their key since go to the other publication."""
        if self._mode != "filtered" or self._catalog.publishes_all(self._main):
            return
        main = self._catalog.publication(self._main) or set()
        inserts = self._catalog.publication(self._inserts) or set()
        for name, table in self.tables.items():
            if name in (inserts if table.can_tell_rows_apart else main):
                self._put(table)

    @property
    def _mode(self) -> str:
        return self._options.publication_mode

    def _there(self) -> set[str]:
        main, inserts = (
            self._catalog.publication(self._main),
            self._catalog.publication(self._inserts),
        )
        return (main or set()) | (inserts or set())

    def _put(self, table: FoundTable) -> None:
        """Into the publication that is right for it, and out of the other."""
        right, wrong = self._main, self._inserts
        if not table.can_tell_rows_apart:
            right, wrong = wrong, right
        if table.full_name in (self._catalog.publication(wrong) or ()):
            self._catalog.drop_from_publication(wrong, table)
        if table.full_name not in (self._catalog.publication(right) or ()):
            self._catalog.add_to_publication(right, table)

    def _notice(self) -> None:
        told = [
            f"{name} has no primary key: only its inserts and truncates are captured; "
            "a primary key, or REPLICA IDENTITY FULL, would add updates and deletes"
            for name, each in self.tables.items()
            if not each.can_tell_rows_apart
        ]
        for each in told:
            if each not in self.notices:
                logger.warning("%s", each)
        self.notices = told[:MAX_NOTICES]
