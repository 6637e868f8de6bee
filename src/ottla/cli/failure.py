"""How a command ends when a person must mend something: one sentence, no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import click

from ottla.base.errors import KafkaError, UserError
from ottla.cli import colour
from ottla.cli.interruption import INTERRUPTED, TERMINATED, Terminated

ERASE_LINE = "\r\x1b[K"
"""Removes what a terminal shows in the cursor's line, such as that a tool waits for a broker."""


def run_command(command: Callable[[], object]) -> NoReturn:
    """Run a click command to the end of the process. A UserError or KafkaError becomes a red
    sentence and its exit code; a number that the command returns becomes the exit code."""
    try:
        result = command()
        sys.stdout.flush()
    except UserError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except KafkaError as error:
        _say(sentence(error))
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as exit_request:
        sys.exit(exit_request.exit_code)
    except (click.Abort, KeyboardInterrupt):
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # keeps the cursor's line: ^C, or that the tool waited
        sys.exit(INTERRUPTED)
    except Terminated:
        sys.exit(TERMINATED)
    except BrokenPipeError:
        # The reader of a pipe (`| head`) is gone. Python would report it once more when it flushes
        # what is left, so the rest goes to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(result if isinstance(result, int) else 0)


def sentence(error: BaseException) -> str:
    """An exception's message, as one sentence."""
    text = str(error).strip() or type(error).__name__
    if text.split()[0].isalpha():  # and no name of a topic, property or file
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(ERASE_LINE)
    colour.say(text, "red")
