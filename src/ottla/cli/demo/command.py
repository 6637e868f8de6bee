"""`ottla demo`, the command: a folder, signals, what is left behind."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.tool import Tool

if TYPE_CHECKING:
    from ottla.cli.demo.pipeline import Pipeline

SUPERVISE_EVERY_S = 0.2


@click.command(
    "demo", cls=Tool, examples="ottla demo\nottla demo --keep\nottla demo --brokers 3 --keep"
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="With more than one, a leader is killed in the middle.",
)
@click.option(
    "--lines", type=click.IntRange(20), default=400, show_default=True, help="To send through."
)
@click.option("--keep", is_flag=True, help="Leave it running until Ctrl-C.")
def demo(brokers: int, lines: int, keep: bool) -> int:
    """Run a whole pipeline on this machine and prove that nothing was lost.

    A file source connector, a Streams application on Spark, file sink connectors: lines that are
    added to a file while it runs come out counted. Everything is kept in a temporary folder and
    removed at the end.
    """
    from ottla.base.errors import UserError
    from ottla.cli.demo.narrative import Narrative
    from ottla.cli.demo.pipeline import Pipeline
    from ottla.cli.demo.screen import Screen

    _require_spark()
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    screen = Screen()
    pipeline = Pipeline(folder, brokers, screen.note)
    is_whole = False
    try:
        outcome = Narrative(pipeline, screen, brokers, lines).tell()
        is_whole = outcome.is_right
        screen.summary(outcome.flow, outcome.checks, _where_to_look(pipeline, keep))
        if keep:
            _keep_running(pipeline)
    except KeyboardInterrupt:
        if not is_whole:
            is_whole = True  # nothing to look into
            raise
    finally:
        with screen.waiting("stopping"):
            pipeline.stop()
        if is_whole:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            screen.note(f"logs and data are left in {folder}")
    if not is_whole:
        raise UserError("What came out is not what went in.")
    screen.done("stopped, and cleaned up")
    return 0


def _require_spark() -> None:
    from importlib.util import find_spec

    from ottla.base.errors import UserError
    from ottla.base.installation import install_extra

    if find_spec("pyspark") is None:
        raise UserError(f"The demo needs Spark. Install it with: {install_extra('spark')}")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _keep_running(pipeline: Pipeline) -> None:
    while True:
        pipeline.check()
        time.sleep(SUPERVISE_EVERY_S)


def _where_to_look(pipeline: Pipeline, keep: bool) -> list[str]:
    from ottla.cli.demo.application import COUNTS, NAME

    if not keep:
        return [
            "Where to look: `make demo KEEP=1` (or ottla demo --keep) leaves it running.",
            "The application is ottla/cli/demo/application.py; more are in examples/.",
        ]
    server = f"--bootstrap-server {pipeline.bootstrap}"
    return [
        "It runs on. From another terminal:",
        f"  echo 'hello hello world' >> {pipeline.lines}",
        f"  tail -f {pipeline.counts.path} {pipeline.windows.path}",
        f"  kafka-topics {server} --describe",
        f"  kafka-console-consumer {server} --topic {COUNTS} --from-beginning",
        f"  kafka-consumer-groups {server} --describe --group {NAME}-{COUNTS}",
        f'  ottla sql {server} "select * from `{COUNTS}` order by seen desc" --max-rows 10',
        f"  curl {pipeline.rest}/connectors?expand=status",
        f"Logs are in {pipeline.folder}. Ctrl-C stops it and cleans up.",
    ]
