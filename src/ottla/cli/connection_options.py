"""`--bootstrap-server` and `--command-config`: which cluster a tool talks to, and how.

    @cluster_options()                 def topics(cluster: ClusterOptions, …)
    with cluster.admin() as admin: …   or Producer(cluster.bootstrap, profile=cluster.profile(), …)

Without either option that is localhost:9092. A broker that cannot be reached ends a tool after
CALL_TIMEOUT_MS, unless the file names its own `default.api.timeout.ms`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ottla.client.admin import Admin

CALL_TIMEOUT_MS = 10_000
"""Shorter than a program's: a person waits."""


@dataclass(frozen=True)
class ClusterOptions:
    bootstrap: str | None
    config_file: str | None

    def profile(self) -> dict[str, str]:
        """The properties for a client. UserError if the file cannot be read."""
        from ottla.base.config.properties import load_properties

        properties = {"default.api.timeout.ms": str(CALL_TIMEOUT_MS)}
        if self.config_file is not None:
            properties.update(load_properties(self.config_file))
        return properties

    def admin(self, *, timeout_ms: int | None = None) -> Admin:
        """`timeout_ms`: for each call, whatever the file says."""
        from ottla.client.admin import Admin

        return Admin(self.bootstrap, profile=self.profile(), default_api_timeout_ms=timeout_ms)


def cluster_options(
    *,
    server_names: Sequence[str] = ("--bootstrap-server",),
    config_names: Sequence[str] = ("--command-config",),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options; the command gets a `cluster`. Tools that had other names for them once
    give all of their names."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(
            *arguments: Any, bootstrap_server: str | None, command_config: str | None, **rest: Any
        ) -> Any:
            from ottla.cli.created_topics import show_created_topics
            from ottla.cli.waiting import show_waiting

            show_waiting()
            show_created_topics()
            cluster = ClusterOptions(bootstrap_server, command_config)
            return function(*arguments, cluster=cluster, **rest)

        call = click.option(
            "--zookeeper",
            hidden=True,
            expose_value=False,
            callback=_refuse_zookeeper,
            help="Refused.",
        )(call)
        call = click.option(
            *config_names,
            "command_config",
            metavar="FILE",
            help="A properties file for the connection: security, timeouts, …",
        )(call)
        return click.option(
            *server_names,
            "bootstrap_server",
            metavar="HOST:PORT,…",
            help="Brokers to ask first.  [default: localhost:9092]",
        )(call)

    return decorate


def _refuse_zookeeper(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> None:
    # To carry on with a broker that was not named would act on a cluster that was not meant.
    if value is not None:
        raise click.UsageError(
            "tools talk to brokers, not to ZooKeeper: name one with --bootstrap-server HOST:PORT."
        )
