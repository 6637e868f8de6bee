"""Completion of commands, options and values in a real bash."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.completion import PROGRAMS
from ottla.cli.main import ottla
from ottla.testing.broker import _environment

SCRIPTS = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
    "scripts"
]
TIMEOUT_S = 60.0
WORDS = """
eval "$(ottla completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
[[ "$(complete -p "$1")" =~ -F\\ ([^ ]+) ]] && "${BASH_REMATCH[1]}" "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def test_every_program_is_completed() -> None:
    assert sorted(PROGRAMS) == sorted(SCRIPTS)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with all programs on the PATH."""
    commands = tmp_path_factory.mktemp("bin")
    for name, place in SCRIPTS.items():
        module, _, function = place.partition(":")
        script = commands / name
        script.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        script.chmod(0o755)
    environment = _environment()
    return {**environment, "PATH": f"{commands}{os.pathsep}{environment['PATH']}"}


@needs_bash
@pytest.mark.parametrize(
    ("words", "completions"),
    [
        (["ottla", "top"], ["topics"]),
        (["ottla", "topics", "--boot"], ["--bootstrap-server"]),
        (["ottla", "cluster", "up", "--br"], ["--brokers"]),
        (["kafka-topics", "--part"], ["--partitions"]),
        (["kafka-topics.sh", "--bootstrap-server", "localhost", ":", "9092", "--li"], ["--list"]),
        (["kafka-transactions", "find"], ["find-hanging"]),
        (["kafka-server-stop", "--process-role", ""], ["broker", "controller"]),
        (["kafka-server-start", "--log-level", "wa"], ["WARNING"]),
        (["connect-distributed.sh", "--vers"], ["--version"]),
    ],
)
def test_bash_completes(
    words: list[str], completions: list[str], environment: dict[str, str]
) -> None:
    ran = subprocess.run(
        ["bash", "--norc", "-c", WORDS, "bash", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert ran.stderr == ""
    assert [each.lower() for each in ran.stdout.split()] == [each.lower() for each in completions]


class Terminal:
    """An interactive bash that has sourced the completion script."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        pid, self._fd = pty.fork()
        if pid == 0:
            os.chdir(directory)
            os.execvpe("bash", ["bash", "--norc", "-i"], environment)
        self._pid = pid
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self._shown:
            left = deadline - time.monotonic()
            assert left > 0, self._shown
            if select.select([self._fd], [], [], left)[0]:
                self._shown += os.read(self._fd, 4096).decode(errors="replace")
        self._shown = self._shown.partition(text)[2]

    def close(self) -> None:
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        os.close(self._fd)


@pytest.fixture
def terminal(environment: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "server.properties").touch()
    terminal = Terminal({**environment, "TERM": "dumb", "PS1": "$ "}, tmp_path)
    yield terminal
    terminal.close()


@needs_bash
def test_tab_completes_options_and_file_names_in_a_terminal(terminal: Terminal) -> None:
    terminal.type('eval "$(ottla completion bash)"; echo re"ady"\n')
    terminal.wait_for("\nready")
    terminal.type("kafka-topics --boot\t")
    terminal.wait_for("kafka-topics --bootstrap-server ")
    terminal.type("\x15kafka-server-start serv\t")
    terminal.wait_for("kafka-server-start server.properties ")
    terminal.type("\x15ottla broker --config serv\t")
    terminal.wait_for("ottla broker --config server.properties ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(ottla, ["completion", shell])
    assert result.exit_code == 0
    assert result.stdout.count(f"_OTTLA_COMPLETE={shell}_complete") == len(PROGRAMS)
    assert " kafka-topics.sh" in result.stdout
