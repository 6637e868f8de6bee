"""Options that the commands of `ottla secure` share."""

from __future__ import annotations

from dataclasses import replace

import click

from ottla.cli.connection_options import ClusterOptions
from ottla.cli.secure.layout import DEFAULT_DIRECTORY, SecureDirectory

dir_option = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="Directory of the certificates and profiles.",
)


def as_administrator(cluster: ClusterOptions, directory: SecureDirectory) -> ClusterOptions:
    """Return the cluster with the administrator's profile, unless another one is given."""
    if cluster.config_file is None and directory.admin_profile.exists():
        return replace(cluster, config_file=str(directory.admin_profile))
    return cluster
