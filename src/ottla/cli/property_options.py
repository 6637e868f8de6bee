"""Client properties from a file and from `key=value` options, and their precedence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from ottla.base.errors import UserError
from ottla.cli.connection_options import ClusterOptions
from ottla.cli.tool import Tool


def key_values(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse `key=value` texts. A `key` alone has an empty value, as in Kafka's tools."""
    found = {}
    for text in texts:
        key, _, value = text.partition("=")
        if not key.strip():
            raise UserError(f"{option} {text!r} must look like key=value.")
        found[key.strip()] = value
    return found


def client_properties(
    cluster: ClusterOptions,
    texts: Iterable[str],
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    option: str = "--command-property",
) -> dict[str, str]:
    """Return the properties of a client.

    Options that are given (not None) override `key=value` texts, which override the file, which
    overrides the tool's defaults.

    Args:
        cluster: Connection options, whose file or default profile is read.
        texts: `key=value` texts from the command line.
        options: Properties that have an option of their own.
        defaults: Defaults of the tool.
        option: Name of the option that takes the texts, for error messages.

    Raises:
        UserError: The file cannot be read, or a text has no key.
    """
    properties = {name: str(value) for name, value in defaults.items()}
    given = key_values(texts, option)
    properties.update(cluster.file_properties(names_brokers="bootstrap.servers" in given))
    properties.update(given)
    properties.update({name: str(value) for name, value in options.items() if value is not None})
    return properties


class PropertiesTool(Tool):
    """A tool with options that take several values at once: `--producer-props a=1 b=2`."""

    def __init__(self, *arguments: Any, several: Iterable[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._several = frozenset(several)

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        return super().parse_args(context, list(self._one_by_one(arguments)))

    def _one_by_one(self, arguments: list[str]) -> Iterable[str]:
        option: str | None = None
        count = 0
        for argument in arguments:
            if argument.startswith("-"):
                option, count = argument if argument in self._several else None, 0
            elif option is not None:
                count += 1
                if count > 1:
                    yield option
            yield argument
