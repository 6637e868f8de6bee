"""`ottla completion`: shell completion of commands, options and their values.

The scripts are click's. Each runs the program itself with an environment variable that requests
completions; the variable is the same for all programs (`COMPLETE_VARIABLE` in `tool`)."""

from __future__ import annotations

import click

from ottla.cli.tool import COMPLETE_VARIABLE, Tool

EXAMPLES = """
eval "$(ottla completion bash)"                                  # in ~/.bashrc
eval "$(ottla completion zsh)"                                   # in ~/.zshrc, after compinit
ottla completion fish > ~/.config/fish/conf.d/ottla.fish
"""
TOOLS = (
    "connect-distributed",
    "connect-standalone",
    "kafka-acls",
    "kafka-broker-api-versions",
    "kafka-cluster",
    "kafka-configs",
    "kafka-console-consumer",
    "kafka-console-producer",
    "kafka-consumer-groups",
    "kafka-consumer-perf-test",
    "kafka-delegation-tokens",
    "kafka-delete-records",
    "kafka-dump-log",
    "kafka-features",
    "kafka-get-offsets",
    "kafka-leader-election",
    "kafka-log-dirs",
    "kafka-producer-perf-test",
    "kafka-reassign-partitions",
    "kafka-server-start",
    "kafka-server-stop",
    "kafka-storage",
    "kafka-streams-application-reset",
    "kafka-topics",
    "kafka-transactions",
    "zookeeper-security-migration",
)
PROGRAMS = ("ottla", *TOOLS, *(f"{tool}.sh" for tool in TOOLS))
"""All installed programs, as in [project.scripts] of pyproject.toml."""


@click.command(cls=Tool, examples=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell completion script.

    The script completes ottla and all of Kafka's tools. Bash 4.4 or later is required.
    """
    for program in PROGRAMS:
        click.echo(_script(shell, program))


def _script(shell: str, program: str) -> str:
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    assert shell_class is not None
    # `source()` would start bash once per program to check its version.
    made = shell_class(click.Command(program), {}, program, COMPLETE_VARIABLE)
    return made.source_template % made.source_vars()
