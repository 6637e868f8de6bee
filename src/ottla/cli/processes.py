"""Finding the broker processes of this user by their command lines.

There is no pid file: one would outlive a broker that was killed, and name a stranger's process
once its number is used again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence

from ottla.base.errors import UserError

_PROC = "/proc"
_MAX_INTERPRETER_ARGUMENTS = 6
"""How far into a command line the name of the script is looked for."""


def broker_pids() -> list[int]:
    """The brokers of this user, in the order of their numbers."""
    processes = _from_proc() if os.path.isdir(f"{_PROC}/self") else _from_ps()
    return sorted(
        pid for pid, arguments in processes if pid != os.getpid() and is_broker(arguments)
    )


def is_broker(arguments: Sequence[str]) -> bool:
    """Whether a command line is that of a broker started by one of our commands."""
    names = [os.path.basename(argument) for argument in arguments]
    if not names:
        return False
    # A script runs as `python [options] script …`, or by itself where it was compiled.
    scripts = _MAX_INTERPRETER_ARGUMENTS if names[0].lower().startswith("python") else 1
    for position, name in enumerate(names[:scripts]):
        if name == "kafka-server-start":
            return True
        if name == "ottla":
            return names[position + 1 : position + 2] == ["broker"]
    return False


def _from_proc() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir(_PROC):
        if not entry.isdigit():
            continue
        try:
            if os.stat(f"{_PROC}/{entry}").st_uid != os.getuid():
                continue
            with open(f"{_PROC}/{entry}/cmdline", "rb") as file:
                command_line = file.read()
        except OSError:
            continue  # it has ended meanwhile
        yield int(entry), [os.fsdecode(part) for part in command_line.split(b"\0") if part]


def _from_ps() -> Iterator[tuple[int, list[str]]]:
    # -ww: without it ps cuts lines to the width of a terminal.
    command = ["ps", "-ww", "-U", str(os.getuid()), "-o", "pid=,command="]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError("Cannot list processes: neither /proc nor ps is there.") from error
    for line in listing.splitlines():
        pid, _, command_line = line.strip().partition(" ")
        yield int(pid), command_line.split()
