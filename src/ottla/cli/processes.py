"""Search for the broker processes of this user, and requests to stop.

A process is recognized as a broker by its command line, and identified by its open files: the
`.lock` of a data directory and the file of `--pid-file`. Files are compared by inode, so relative
paths and symbolic links work, and a stale file of a killed broker never matches another process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence

from ottla.base.config.properties import load_properties
from ottla.base.errors import UserError

_PROC = "/proc"
_LOCK_FILE = ".lock"
_META_PROPERTIES = "meta.properties"
_NODE_IDS = ("node.id", "broker.id")
"""Names of the node ID in meta.properties, in version 1 and version 0."""
_DELETED = " (deleted)"
_MAX_INTERPRETER_ARGUMENTS = 6
"""Number of leading arguments that are searched for the script's name."""


def broker_pids() -> list[int]:
    """Return the process IDs of this user's brokers, sorted."""
    processes = _from_proc() if _has_proc() else _from_ps()
    return sorted(
        pid for pid, arguments in processes if pid != os.getpid() and is_broker(arguments)
    )


def ask_to_stop(pid: int) -> bool:
    """Send SIGTERM to a process. Return False if it has exited."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def is_broker(arguments: Sequence[str]) -> bool:
    """Return whether a command line is `ottla broker` or `kafka-server-start`."""
    names = [os.path.basename(argument) for argument in arguments]
    if not names:
        return False
    # A script runs as `python [options] script …`, or as an executable of its own if compiled.
    scripts = _MAX_INTERPRETER_ARGUMENTS if names[0].lower().startswith("python") else 1
    for position, name in enumerate(names[:scripts]):
        if name in ("kafka-server-start", "kafka-server-start.sh"):
            return True
        if name == "ottla":
            return names[position + 1 : position + 2] == ["broker"]
    return False


def uses_data_directory(pid: int, directory: str) -> bool:
    """Return whether a broker holds the lock of this data directory."""
    return has_open(pid, os.path.join(directory, _LOCK_FILE))


def has_open(pid: int, path: str) -> bool:
    """Return whether a process of this user has a file open."""
    try:
        wanted = os.stat(path)
    except OSError:
        return False
    return any(_is_same(wanted, found) for found in _open_files(pid))


def node_ids(pid: int) -> set[int]:
    """Return the node ID of a broker, read from the meta.properties of its data directories.

    The set is empty until a broker with new data directories has written these files."""
    found = set()
    for path in _open_files(pid):
        if os.path.basename(path) != _LOCK_FILE:
            continue
        try:
            properties = load_properties(os.path.join(os.path.dirname(path), _META_PROPERTIES))
        except UserError:
            continue
        found |= {int(text) for name in _NODE_IDS if (text := properties.get(name, "")).isdecimal()}
    return found


def _is_same(wanted: os.stat_result, path: str) -> bool:
    try:
        return os.path.samestat(wanted, os.stat(path))
    except OSError:
        return False


def _open_files(pid: int) -> list[str]:
    return _open_in_proc(pid) if _has_proc() else _open_by_lsof(pid)


def _open_in_proc(pid: int) -> list[str]:
    found = []
    directory = f"{_PROC}/{pid}/fd"
    try:
        descriptors = os.listdir(directory)
    except OSError:  # the process has exited, or belongs to another user
        return []
    for descriptor in descriptors:
        try:
            path = os.readlink(f"{directory}/{descriptor}")
        except OSError:
            continue
        if path.startswith("/") and not path.endswith(_DELETED):
            found.append(path)
    return found


def _open_by_lsof(pid: int) -> list[str]:
    command = ["lsof", "-w", "-n", "-P", "-p", str(pid), "-F", "n"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise UserError(
            "Cannot list the open files of a process: neither /proc nor lsof is available. "
            "Install lsof."
        ) from error
    return [line[1:] for line in listing.splitlines() if line.startswith("n/")]


def _has_proc() -> bool:
    return os.path.isdir(f"{_PROC}/self")


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
            continue  # the process has exited
        yield int(entry), [os.fsdecode(part) for part in command_line.split(b"\0") if part]


def _from_ps() -> Iterator[tuple[int, list[str]]]:
    # Without -ww, ps truncates lines to the width of the terminal.
    command = ["ps", "-ww", "-U", str(os.getuid()), "-o", "pid=,command="]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError("Cannot list processes: neither /proc nor ps is available.") from error
    for line in listing.splitlines():
        pid, _, command_line = line.strip().partition(" ")
        yield int(pid), command_line.split()
