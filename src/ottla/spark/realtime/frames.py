"""Frames between the JVM part and a Python process, on the process's standard input and output.

    [int32 length of the rest, big-endian][1 byte kind][body]

| kind | direction | body |
|---|---|---|
| I | to Python | first frame: JSON of the options, the columns and directories for `sys.path` |
| R | to the source | generation int32, offset int64, partition int32, topic: start reading there |
| S | either | Arrow schema of the rows that follow |
| B | to the sink | Arrow record batch |
| B | from the source | generation int32, next offset int64, Arrow record batch |
| P | from the source | generation int32, next offset int64, without rows |
| F, A | to and from the sink | int32: flush; all rows before it are acknowledged |
| D | to functions | number int32, pickled function; answered by S, the schema of its results |
| C | to and from functions | number int32 and a row of arguments; the row of the result |
| O | from the driver's process | JSON of the options with the profile's properties |
| E | from Python | error as `module.Class: message`; the process ends |

The JVM counts its R frames as generations, so that it recognizes rows of an earlier position.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">ic")


class EndOfInputError(Exception):
    """The JVM has closed the process's standard input."""


class Frame(NamedTuple):
    kind: bytes
    body: bytes


@dataclass(frozen=True)
class Setup:
    """Contents of the first frame."""

    options: dict[str, str]
    columns: list[str]
    """Names of the columns of the rows."""


class FramePipe:
    """Standard input and output of the process. Several threads may write."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = threading.Lock()

    def read(self) -> Frame:
        """Return the next frame; raise EndOfInputError if there is none."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        data = self._exactly(length)
        return Frame(data[:1], data[1:])

    def _exactly(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise EndOfInputError
        return data

    def write(self, kind: bytes, *parts: Any) -> None:
        """Write a frame whose body consists of these buffers."""
        size = 1 + sum(len(part) for part in parts)
        with self._lock:
            self._writer.write(_HEAD.pack(size, kind))
            for part in parts:
                self._writer.write(part)
            self._writer.flush()


def own_pipes() -> FramePipe:
    """Take over standard input and output, so that a function that prints does not write frames."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return FramePipe(reader, writer)


def run_end(run: Callable[[FramePipe, Setup], None]) -> None:
    """Run a process until the JVM closes its input, and report the error that ends it earlier."""
    pipe = own_pipes()
    try:
        run(pipe, _setup(pipe.read()))
    except (EndOfInputError, BrokenPipeError):
        pass
    except BaseException as error:
        pipe.write(b"E", error_text(error).encode())
        os._exit(1)
    os._exit(0)  # without waiting for clients: what the JVM needed, it has waited for


def _setup(frame: Frame) -> Setup:
    read = json.loads(frame.body)
    sys.path[1:1] = [each for each in read["path"] if each not in sys.path]
    columns = [each["name"] for each in json.loads(read["columns"])["fields"]]
    return Setup(read["options"], columns)


def error_text(error: BaseException) -> str:
    """Return the error in one line, in the form of the last line of a traceback."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}: {' '.join(str(error).split())}"
