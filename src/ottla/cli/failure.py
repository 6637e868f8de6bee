"""Exit codes and error messages of commands. Users see one sentence, never a traceback."""

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
"""Clears the terminal's current line, for example the note that a tool is waiting for a broker."""


def run_command(command: Callable[[], object]) -> NoReturn:
    """Run a click command and exit the process with its exit code.

    A UserError or KafkaError is printed as one red sentence. An integer that the command returns
    becomes the exit code."""
    try:
        result = command()
        sys.stdout.flush()
    except UserError as error:
        _print_error(str(error))
        sys.exit(error.exit_code)
    except KafkaError as error:
        _print_error(sentence(error))
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as exit_request:
        sys.exit(exit_request.exit_code)
    except (click.Abort, KeyboardInterrupt):
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # keeps the current line, which shows ^C or a waiting note
        sys.exit(INTERRUPTED)
    except Terminated:
        sys.exit(TERMINATED)
    except BrokenPipeError:
        # The reader of the pipe has exited (`| head`). Python would report the error again when it
        # flushes standard output at exit, so redirect the remaining output to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(result if isinstance(result, int) else 0)


def sentence(error: BaseException) -> str:
    """Return an exception's message with a capital letter and a final full stop."""
    text = str(error).strip() or type(error).__name__
    if text.split()[0].isalpha():  # names of topics, properties and files keep their case
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _print_error(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(ERASE_LINE)
    colour.echo(text, "red")
