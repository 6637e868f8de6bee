"""Helpers to run the commands of `ottla` in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from click.testing import CliRunner

from ottla.base.errors import KafkaError, UserError
from ottla.cli.failure import sentence
from ottla.cli.main import ottla


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]
Fail = Callable[..., str]


def tool(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a tool as a process of its own."""
    module = f"ottla.cli.kafka_{name.replace('-', '_')}"
    return [sys.executable, "-c", f"from {module} import main; main()", *arguments]


def running_on(bootstrap: str) -> Run:
    def run(tool: str, *arguments: str, stdin: str | None = None) -> Ran:
        words = [*tool.split(), "--bootstrap-server", bootstrap, *arguments]
        result = CliRunner().invoke(ottla, words, input=stdin)
        error = result.exception
        if isinstance(error, UserError):
            return Ran(error.exit_code, result.stdout, f"{result.stderr}{error}\n")
        if isinstance(error, KafkaError):
            return Ran(1, result.stdout, f"{result.stderr}{sentence(error)}\n")
        if error is not None and not isinstance(error, SystemExit):
            raise error
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run
