"""`kafka-features describe`: supported and finalized feature levels of a cluster."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.tool import Tool, ToolGroup, run_tool


@click.group(cls=ToolGroup)
def kafka_features() -> None:
    """Show the cluster's feature levels."""


@kafka_features.command(
    "describe", cls=Tool, examples="kafka-features describe --bootstrap-server localhost:9092"
)
@cluster_options()
@output_option
def describe(cluster: ClusterOptions, output: Output) -> None:
    """Show the supported and finalized levels of each feature."""
    with cluster.admin() as admin:
        features = admin.describe_features()

    def lines() -> list[str]:
        names = sorted({*features.supported, *features.finalized})
        shown = []
        for name in names:
            can, agreed = features.supported.get(name), features.finalized.get(name)
            shown.append(
                f"Feature: {name}"
                f"\tSupportedMinVersion: {0 if can is None else can.minimum}"
                f"\tSupportedMaxVersion: {0 if can is None else can.maximum}"
                f"\tFinalizedVersionLevel: {0 if agreed is None else agreed.max_version_level}"
                f"\tEpoch: {'-' if features.finalized_epoch is None else features.finalized_epoch}"
            )
        return shown

    output.show(features, lines)


def main() -> NoReturn:
    run_tool("kafka-features", kafka_features)
