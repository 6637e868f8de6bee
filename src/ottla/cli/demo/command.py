"""`ottla demo`: the command, its temporary directory and its clean-up."""

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
    help="Number of brokers. With more than one, the demo kills a partition leader.",
)
@click.option(
    "--lines",
    type=click.IntRange(20),
    default=400,
    show_default=True,
    help="Number of lines to send through the pipeline.",
)
@click.option("--keep", is_flag=True, help="Keep the pipeline running until Ctrl-C.")
def demo(brokers: int, lines: int, keep: bool) -> int:
    """Run an end-to-end pipeline on this machine.

    A file source connector reads lines that are added to a file, a Streams application counts their
    words, and file sink connectors write the counts, all on Spark. The demo then verifies that no
    record was lost or duplicated. All data is in a temporary directory, which is removed at the
    end.
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
        outcome = Narrative(pipeline, screen, brokers, lines).run()
        is_whole = outcome.is_right
        screen.summary(outcome.flow, outcome.checks, _next_steps(pipeline, keep))
        if keep:
            _keep_running(pipeline)
    except KeyboardInterrupt:
        if not is_whole:
            is_whole = True  # an interrupted run leaves nothing to investigate
            raise
    finally:
        with screen.waiting("stopping"):
            pipeline.stop()
        if is_whole:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            screen.note(f"logs and data are kept in {folder}")
    if not is_whole:
        raise UserError(
            f"The output of the demo does not match its input. See the logs in {folder}."
        )
    screen.done("stopped all processes and removed the data")
    return 0


def _require_spark() -> None:
    from importlib.util import find_spec

    from ottla.base.errors import UserError
    from ottla.base.installation import install_extra

    if find_spec("pyspark") is None:
        raise UserError(f"The demo requires Spark. Install it with: {install_extra('spark')}")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _keep_running(pipeline: Pipeline) -> None:
    while True:
        pipeline.check()
        time.sleep(SUPERVISE_EVERY_S)


def _next_steps(pipeline: Pipeline, keep: bool) -> list[str]:
    from ottla.cli.demo.application import COUNTS, NAME

    if not keep:
        return [
            "To explore the running pipeline, use `ottla demo --keep` (or `make demo KEEP=1`).",
            "The application is ottla/cli/demo/application.py; examples/ has more.",
        ]
    server = f"--bootstrap-server {pipeline.bootstrap}"
    return [
        "The pipeline is still running. Try in another terminal:",
        f"  echo 'hello hello world' >> {pipeline.lines}",
        f"  tail -f {pipeline.counts.path} {pipeline.windows.path}",
        f"  kafka-topics {server} --describe",
        f"  kafka-console-consumer {server} --topic {COUNTS} --from-beginning",
        f"  kafka-consumer-groups {server} --describe --group {NAME}-{COUNTS}",
        f'  ottla sql {server} "select * from `{COUNTS}` order by seen desc" --max-rows 10',
        f"  curl {pipeline.rest}/connectors?expand=status",
        f"Logs are in {pipeline.folder}. Ctrl-C stops the pipeline and removes its data.",
    ]
