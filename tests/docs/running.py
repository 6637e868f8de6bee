"""Runner for a page: its Python in one namespace, Ottla's commands in this process.

`localhost:9092` stands for the broker of the test. Infinite loops over a consumer end after the
first record."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import itertools
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.docs.blocks import ROOT, Block, commands

from ottla.cli.broker import broker as broker_command
from ottla.cli.connection_options import ClusterOptions
from ottla.testing.broker import BrokerProcess
from ottla.testing.broker_thread import BrokerThread

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADDRESSES = ("localhost:9092", "127.0.0.1:9092")
TIMEOUT_S = 60
FOREIGN = ("echo", "printf", "cat", "cd", "tail", "mkdir")


class Page:
    def __init__(self, broker: BrokerThread, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__page__"}
        self.makers: dict[str, Callable[[], Any]] = {}
        """Factories of clients that blocks use without creating them; each block gets a new one."""
        self._made: list[Any] = []
        self._patch = patch
        patch.chdir(folder)
        begin = ClusterOptions.__init__
        patch.setattr(
            ClusterOptions,
            "__init__",
            lambda self, given, file: begin(self, given or broker.bootstrap, file),
        )

    def run(self, block: Block) -> None:
        if block.language == "python":
            self.python(block)
        else:
            for command, typed in commands(block.text):
                self.command(command, typed)

    # ------------------------------------------------------------------------------- Python

    def python(self, block: Block) -> None:
        """Run a Python block with its line numbers of the page, so that tracebacks point there."""
        source = "\n" * (block.line - 1) + self._here(block.text)
        for name, make in self.makers.items():
            if re.search(rf"\b{name}\.", block.text):
                self.names[name] = make()
                self._made.append(self.names[name])
        known = set(self.names)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, str(ROOT / block.page), "exec", flags=flags)
        with loops_that_end(self._patch):
            outcome = eval(code, self.names)
            if inspect.iscoroutine(outcome):
                asyncio.run(asyncio.wait_for(outcome, TIMEOUT_S))
            for name in sorted(set(self.names) - known):
                if name.startswith("test_"):
                    self._test(self.names[name])

    def close(self) -> None:
        for each in self._made:
            each.close()

    def _test(self, function: Any) -> None:
        """Call a test as pytest would, with its fixtures and the broker of its mark."""
        wanted = inspect.signature(function).parameters
        given: dict[str, Any] = {"tmp_path": self.folder} if "tmp_path" in wanted else {}
        if "ottla_broker" not in wanted:
            function(**given)
            return
        overrides: dict[str, Any] = {}
        for mark in getattr(function, "pytestmark", []):
            overrides.update(mark.kwargs.get("overrides", {}))
        with BrokerThread(overrides=overrides) as broker:
            function(ottla_broker=broker, **given)

    def _here(self, text: str) -> str:
        for address in ADDRESSES:
            text = text.replace(address, self.broker.bootstrap)
        return text

    # ------------------------------------------------------------------------------ commands

    def command(self, command: str, typed: str = "") -> None:
        command = self._here(command)
        if "|" in command and "'" not in command.partition("|")[0]:
            before, _, command = command.partition("|")
            typed = self._shell(before)
        words = shlex.split(command, comments=True)
        if ">" in words or words[0] in FOREIGN:
            self._shell(command)
        elif words[:2] == ["pip", "install"]:
            check_extras(words[2:])
        elif words[:2] == ["ottla", "broker"] or words[0] == "kafka-server-start":
            self._broker_starts(words)
        else:
            tool, arguments = find_tool(words)
            result = CliRunner().invoke(tool, arguments, input=typed, catch_exceptions=False)
            assert result.exit_code == 0, f"{command}\n{result.output}"

    def _shell(self, command: str) -> str:
        return subprocess.run(
            command, shell=True, cwd=self.folder, capture_output=True, text=True, check=True,
            timeout=TIMEOUT_S,
        ).stdout  # fmt: skip

    def _broker_starts(self, words: list[str]) -> None:
        """Check the options, then start a broker on a port of its own and stop it."""
        if words[0] == "ottla":
            self._check_broker(words[2:])
        given = words[words.index("--override") + 1 :] if "--override" in words else []
        overrides = dict(each.split("=", 1) for each in given if "=" in each)
        with BrokerProcess(self.folder / "started", overrides=overrides) as broker:
            assert broker.stop() == 0

    def _check_broker(self, words: list[str]) -> None:
        """Validate the options with `--check`, a free port and a data directory of the test."""
        (self.folder / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
        port = [] if "--config" in words else ["--listen", "127.0.0.1:0"]
        options = [re.sub(r":909\d$", ":0", word) for word in words if word != "--check"]
        checked = [*port, *options, "--data-dir", str(self.folder / "checked"), "--check"]
        result = CliRunner().invoke(broker_command, checked, standalone_mode=False)
        assert result.return_value == 0, f"{words}\n{result.output}"


def check_extras(arguments: list[str]) -> None:
    """Check that every extra in an install command is an extra of Ottla."""
    for each in arguments:
        wanted = each.partition("[")[2].rstrip("]")
        for extra in filter(None, wanted.split(",")):
            assert extra in PROJECT["optional-dependencies"], f"no extra {extra}"


def find_tool(words: list[str]) -> tuple[click.Command, list[str]]:
    name = words[0].removesuffix(".sh")
    assert name in PROJECT["scripts"], f"{words[0]} is no command of ours"
    module, _, _ = PROJECT["scripts"][name].partition(":")
    tool = getattr(importlib.import_module(module), name.replace("-", "_"))
    assert isinstance(tool, click.Command)
    return tool, words[1:]


@contextlib.contextmanager
def loops_that_end(patch: pytest.MonkeyPatch) -> Iterator[None]:
    import ottla

    with patch.context() as inner:
        for name in ("__iter__", "iter_batches"):
            real = getattr(ottla.Consumer, name)
            inner.setattr(ottla.Consumer, name, _first_of(real))
        yield


def _first_of(real: Any) -> Any:
    def first(*arguments: Any, **options: Any) -> Iterator[Any]:
        return itertools.islice(real(*arguments, **options), 1)

    return first
