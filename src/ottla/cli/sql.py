"""`ottla sql "select …"`: Spark SQL over topics, on this machine.

Every topic that the statement names is a table: its JSON values' fields, or one column `value`, and
_key, _topic, _partition, _offset and _timestamp. Names that SQL could not read go in backticks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import click

from ottla.base.errors import UserError
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option, table
from ottla.cli.tool import Tool

EXAMPLES = """
ottla sql "select count(*) from orders"
ottla sql "select region, sum(price) from orders group by region" --bootstrap-server broker1:9092
ottla sql 'select value from `web-logs` where _offset > 1000' --value-format string
"""


@click.command("sql", cls=Tool, examples=EXAMPLES)
@click.argument("statement")
@cluster_options()
@click.option(
    "--value-format",
    type=click.Choice(["auto", "json", "string", "raw"]),
    default="auto",
    show_default=True,
    help="How values are read.",
)
@click.option("--schema", metavar="DDL", help="Of JSON values, instead of what is inferred.")
@click.option(
    "--mode",
    type=click.Choice(["fail", "drop"]),
    default="fail",
    show_default=True,
    help="What becomes of values that do not parse.",
)
@click.option(
    "--max-rows", type=click.IntRange(min=1), default=1000, show_default=True, help="At most."
)
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@output_option
def sql(
    statement: str,
    cluster: ClusterOptions,
    value_format: str,
    schema: str | None,
    mode: str,
    max_rows: int,
    master: str,
    output: Output,
) -> None:
    """Query topics with Spark SQL."""
    with cluster.admin() as admin:
        topics = named_topics(statement, admin.list_topics())
    rows, columns = _run(statement, topics, cluster, value_format, schema, mode, max_rows, master)
    shown = [[_cell(value) for value in row] for row in rows[:max_rows]]
    output.show(
        [dict(zip(columns, row, strict=True)) for row in rows[:max_rows]],
        lambda: table(columns, shown),
    )
    if len(rows) > max_rows:
        output.note(f"There are more than {max_rows} rows: see --max-rows.")


def named_topics(statement: str, topics: Iterable[str]) -> list[str]:
    """Topics whose names are words of the statement, or stand in it in backticks."""
    return [
        name
        for name in topics
        if re.search(rf"(?<![\w.\-`]){re.escape(name)}(?![\w.\-`])|`{re.escape(name)}`", statement)
    ]


def _run(
    statement: str,
    topics: list[str],
    cluster: ClusterOptions,
    value_format: str,
    schema: str | None,
    mode: str,
    max_rows: int,
    master: str,
) -> tuple[list[Any], list[str]]:
    import ottla.spark

    spark = ottla.spark.session(master, app_name="ottla sql")
    spark.sparkContext.setLogLevel("OFF")
    from pyspark.errors import PySparkException

    try:
        for name in topics:
            frame = ottla.spark.table(
                name,
                spark=spark,
                bootstrap=cluster.bootstrap,
                profile=cluster.config_file,
                value_format=value_format,
                schema=schema,
                mode=mode,
                metadata=True,
            )
            frame.createOrReplaceTempView(f"`{name}`")
        frame = spark.sql(statement)
        return [tuple(row) for row in frame.limit(max_rows + 1).collect()], frame.columns
    except PySparkException as error:
        raise UserError(_first_line(str(error))) from None
    finally:
        spark.stop()


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("ottla.")]
    return ours[-1].partition(": ")[2] if ours else lines[0]


def _cell(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return value
