"""`PostgresSource`, also known as io.debezium.connector.postgresql.PostgresConnector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.connect.api import Guarantee, SourceConnector, SourceTask
from ottla.connect.connectors.postgres.options import DEFINITION, Options
from ottla.connect.connectors.postgres.task import PostgresTask
from ottla.connect.definition import Settings


class PostgresSource(SourceConnector):
    guarantee = Guarantee.EXACTLY_ONCE
    definition = DEFINITION

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._options = Options.of(settings)

    def make_task(self, settings: Settings) -> SourceTask:
        """Return the only task: commits have a total order."""
        return PostgresTask(self._options)

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        if partition != {"server": self._options.prefix}:
            raise ValueError(
                'a source partition of this connector must be {"server": '
                f'"{self._options.prefix}"}}'
            )
        lsn = offset.get("lsn")
        if not isinstance(lsn, int) or isinstance(lsn, bool) or lsn < 0:
            raise ValueError('the source offset must have the form {"lsn": …}, with a number')
