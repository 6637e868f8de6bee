"""`kafka-delete-records`: delete the records before given offsets.

The file has Kafka's format, see `partition_files`. Offset -1 is the high watermark: it deletes all
records."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.partial_failure import fail_if_any, reasons
from ottla.cli.partition_files import read_offsets
from ottla.cli.tool import Tool, run_tool

EXAMPLES = """
echo '{"partitions": [{"topic": "orders", "partition": 0, "offset": 42}], "version": 1}' > o.json
kafka-delete-records --offset-json-file o.json
"""


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@click.option(
    "--offset-json-file",
    required=True,
    metavar="FILE",
    help="JSON file with the partitions and offsets.",
)
@output_option
def kafka_delete_records(cluster: ClusterOptions, output: Output, offset_json_file: str) -> None:
    """Delete the records before given offsets.

    The file lists the partitions and their new log start offsets: {"partitions": [{"topic": "t",
    "partition": 0, "offset": 5}], "version": 1}. Offset -1 deletes all records.
    """
    before = read_offsets(offset_json_file)
    with cluster.admin() as admin:
        results = admin.delete_records(before, return_errors=True)
    failed = reasons(results.errors)
    output.show(
        {
            "deleted": [
                {"topic": topic, "partition": partition, "low_watermark": offset}
                for (topic, partition), offset in results.items()
            ],
            "errors": failed,
        },
        lambda: [
            "Executing records delete operation",
            "Records delete operation completed:",
            *(
                f"partition: {each}\tlow_watermark: {results[each]}"
                if each in results
                else f"partition: {each}\terror: {failed[str(each)]}"
                for each in before
            ),
        ],
    )
    fail_if_any(results.errors, "Partition")


def main() -> NoReturn:
    run_tool("kafka-delete-records", kafka_delete_records)
