"""`ottla run app.py`: run the stream application that a program builds.

The program runs as with `python app.py`. Options of the command override the application's own
settings (`st.App(master=…)`). A program that only builds its application need not call `run`."""

from __future__ import annotations

import click

from ottla.base.errors import UserError
from ottla.cli.tool import Tool

EXAMPLES = """
ottla run app.py
ottla run app.py --master spark://host:7077 --conf spark.executor.memory=4g
ottla run app.py --bootstrap-server broker1:9092 --http localhost:7070
ottla run app.py --explain
ottla run app.py --svg topology.svg
"""


@click.command(
    "run",
    cls=Tool,
    examples=EXAMPLES,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": True,
                      "help_option_names": ["-h", "--help"], "max_content_width": 100},
)  # fmt: skip
@click.argument("program", metavar="APP.PY")
@click.argument("arguments", nargs=-1, metavar="[ARGUMENTS…]")
@click.option(
    "--master",
    help="Spark master: local[*], spark://host:7077, yarn, k8s://…  [default: the application's]",
)
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT,…",
    help="Brokers to connect to.  [default: the application's]",
)
@click.option(
    "--state-dir",
    metavar="DIR",
    help="Directory of checkpoints and state.  [default: the application's]",
)
@click.option(
    "--http",
    metavar="[HOST:]PORT",
    help="Address of an HTTP server for the application's status and state stores.",
)
@click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Spark configuration property. May be repeated.",
)
@click.option(
    "--explain", is_flag=True, help="Print how each operator would run, without running it."
)
@click.option("--topology", is_flag=True, help="Print the topology without running it.")
@click.option(
    "--svg", metavar="FILE", help="Write a diagram of the topology to a file without running it."
)
def run(
    program: str,
    arguments: tuple[str, ...],
    master: str | None,
    bootstrap_server: str | None,
    state_dir: str | None,
    http: str | None,
    settings: tuple[str, ...],
    explain: bool,
    topology: bool,
    svg: str | None,
) -> None:
    """Run a stream application.

    Arguments after the program's name are passed to the program. Put -- before arguments that begin
    with a dash.
    """
    from ottla.streams.launch import Launch
    from ottla.streams.program import run_program

    launch = Launch(
        master, bootstrap_server, state_dir, http, _settings(settings),
        only_builds=explain or topology or svg is not None,
    )  # fmt: skip
    apps = run_program(program, arguments, launch)
    for app in apps if launch.only_builds else ():
        if explain:
            click.echo(app.explain())
        if topology:
            click.echo(app.topology())
        if svg is not None:
            _write(svg, app.picture())


def _settings(settings: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--conf {each!r} must look like name=value.")
        found[name] = value
    return found


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"Cannot write {path}: {reason}.") from error
