"""`--bootstrap-server` and `--command-config`: the cluster that a tool connects to.

    @cluster_options()                 def topics(cluster: ClusterOptions, …)
    with cluster.admin() as admin: …   or Producer(cluster.bootstrap, profile=cluster.profile(), …)

Without these options a tool uses the default profile (`ottla.client.profile`), or connects to
localhost:9092 if there is none. It gives up on an unreachable broker after
CALL_TIMEOUT_MS, unless the file sets `default.api.timeout.ms`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ottla.client.admin import Admin

CALL_TIMEOUT_MS = 10_000
"""Timeout of each call. It is shorter than a client's default, because a user is waiting."""


@dataclass(frozen=True)
class ClusterOptions:
    """Values of the connection options."""

    bootstrap: str | None
    config_file: str | None

    def profile(self) -> dict[str, str]:
        """Return the properties for a client.

        Raises:
            UserError: The file cannot be read.
        """
        return {"default.api.timeout.ms": str(CALL_TIMEOUT_MS), **self.file_properties()}

    def file_properties(self, *, names_brokers: bool = False) -> dict[str, str]:
        """Return the properties of the given file, or else of the default profile.

        Args:
            names_brokers: Whether other options name the brokers to connect to.

        Raises:
            UserError: The file cannot be read.
        """
        from ottla.client.profile import default_profile, load_profile

        if self.config_file is not None:
            return load_profile(self.config_file)
        return default_profile(names_brokers=names_brokers or self.bootstrap is not None)

    def admin(self, *, timeout_ms: int | None = None) -> Admin:
        """Return an admin client.

        Args:
            timeout_ms: Timeout of each call, which overrides the file.
        """
        from ottla.client.admin import Admin

        return Admin(self.bootstrap, profile=self.profile(), default_api_timeout_ms=timeout_ms)


def cluster_options(
    *,
    server_names: Sequence[str] = ("--bootstrap-server",),
    config_names: Sequence[str] = ("--command-config",),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the connection options to a command, which receives a `ClusterOptions` as `cluster`.

    Args:
        server_names: All names of the `--bootstrap-server` option, old ones included.
        config_names: All names of the `--command-config` option, old ones included.
    """

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
            help="Rejected with a hint to use --bootstrap-server.",
        )(call)
        call = click.option(
            *config_names,
            "command_config",
            metavar="FILE",
            help="Properties file for the client: security, timeouts, …",
        )(call)
        return click.option(
            *server_names,
            "bootstrap_server",
            metavar="HOST:PORT,…",
            help="Brokers to connect to.  [default: localhost:9092]",
        )(call)

    return decorate


def _refuse_zookeeper(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> None:
    # Ignoring the option could change a cluster that the user did not mean (localhost:9092).
    if value is not None:
        raise click.UsageError(
            "Tools connect to brokers, not to ZooKeeper. Use --bootstrap-server HOST:PORT."
        )
