"""Communication between `ottla cluster up` and `ottla cluster stop` and `start`.

    <data dir>/cluster.lock       locked by `cluster up` while it runs; contains its process ID
    <data dir>/cluster.json       the state of each broker, once the cluster is ready
    <data dir>/broker-<id>.stop   requests that the broker be stopped, while it exists

`cluster up` checks the `.stop` files several times a second, stops or starts brokers accordingly,
and publishes the result in `cluster.json`, where the commands wait for it. The lock disappears with
its process, so files left over after a crash are not mistaken for a running cluster. A clean stop
removes `cluster.json`."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from ottla.base.errors import UserError
from ottla.cli.processes import ask_to_stop

STARTING: Final = "starting"
RUNNING: Final = "running"
RESTARTING: Final = "restarting"
"""The broker exited unexpectedly and is about to be restarted."""
STOPPING: Final = "stopping"
STOPPED: Final = "stopped"
"""The broker was stopped on request."""

WAIT_TIMEOUT_S = 120.0
POLL_S = 0.05
LOCK_TIMEOUT_S = 1.0
"""Time to wait for the lock, which other commands hold briefly to check for a running cluster."""


class ClusterControl:
    """Side of `cluster up`: holds the lock, reads requests and publishes the brokers' states."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: IO[str] | None = None
        self._published: dict[int, str] = {}

    def open(self) -> None:
        """Lock the data directory and remove the requests of an earlier run.

        Raises:
            UserError: Another `cluster up` uses the directory.
        """
        file = _lock_file(self._directory).open("a+")
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while not _try_lock(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                file.close()
                raise UserError(
                    f"A cluster is already running in {self._directory}. Stop it with: "
                    f"ottla cluster stop --data-dir {self._directory}"
                )
            time.sleep(POLL_S)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._lock = file
        _state_file(self._directory).unlink(missing_ok=True)
        for request in self._directory.glob("broker-*.stop"):
            request.unlink()

    def close(self) -> None:
        """Remove the published states and release the lock."""
        if self._lock is not None:
            _state_file(self._directory).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def is_stop_requested(self, broker: int) -> bool:
        return _stop_file(self._directory, broker).exists()

    def publish(self, states: Mapping[int, str]) -> None:
        """Write the states of all brokers, if any has changed."""
        if states == self._published:
            return
        self._published = dict(states)
        file = _state_file(self._directory)
        temporary = file.with_suffix(".json.tmp")
        temporary.write_text(json.dumps({"brokers": self._published}))
        temporary.replace(file)


def stop_brokers(directory: Path, brokers: Sequence[int], report: Callable[[str], None]) -> None:
    """Stop brokers of the cluster that runs in `directory`, and wait until they have stopped.

    Args:
        directory: The data directory of `cluster up`.
        brokers: IDs of the brokers.
        report: Called with one sentence for each broker that has stopped.

    Raises:
        UserError: No cluster runs there, or a broker is not part of it or not running.
    """
    states = _states_of_all(directory, brokers)
    for broker in brokers:
        if states[broker] == STOPPED:
            raise UserError(f"Broker {broker} is not running.")
    for broker in brokers:
        _stop_file(directory, broker).touch()
    for broker in brokers:
        _wait_for_state(directory, broker, STOPPED)
        report(f"Broker {broker} has stopped.")


def start_brokers(directory: Path, brokers: Sequence[int], report: Callable[[str], None]) -> None:
    """Start brokers that `stop_brokers` has stopped, and wait until they are ready.

    Args:
        directory: The data directory of `cluster up`.
        brokers: IDs of the brokers.
        report: Called with one sentence for each broker that is ready.

    Raises:
        UserError: No cluster runs there, a broker is not part of it or not stopped, or a broker
            exited while it was starting.
    """
    states = _states_of_all(directory, brokers)
    for broker in brokers:
        if states[broker] not in (STOPPING, STOPPED):
            raise UserError(f"Broker {broker} is not stopped; it is {states[broker]}.")
    for broker in brokers:
        _stop_file(directory, broker).unlink(missing_ok=True)
    for broker in brokers:
        _wait_for_state(directory, broker, RUNNING)
        report(f"Broker {broker} is ready.")


def stop_cluster(directory: Path) -> None:
    """Send SIGTERM to the `cluster up` that runs in `directory`, and wait until it has exited.

    Raises:
        UserError: No cluster runs there, or it has not exited in time.
    """
    _check_running(directory)
    pid = _lock_file(directory).read_text().strip()
    if pid.isdecimal():  # otherwise the process has not written its ID yet
        ask_to_stop(int(pid))
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while is_running(directory):
        if time.monotonic() > deadline:
            raise UserError(
                f"The cluster in {directory} did not stop within {WAIT_TIMEOUT_S:g} s. See "
                f"{directory}/broker-*.log."
            )
        time.sleep(POLL_S)


def _states_of_all(directory: Path, brokers: Sequence[int]) -> dict[int, str]:
    _check_running(directory)
    states = _states(directory)
    if not states:
        raise UserError(
            f"The cluster in {directory} is still starting. Try again when it is ready."
        )
    for broker in brokers:
        if broker not in states:
            known = ", ".join(map(str, sorted(states)))
            raise UserError(f"Broker {broker} does not exist. The brokers of the cluster: {known}.")
    return states


def _wait_for_state(directory: Path, broker: int, wanted: str) -> None:
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while (state := _states(directory).get(broker)) != wanted:
        if not is_running(directory):
            if wanted == STOPPED and not _state_file(directory).exists():
                return  # the whole cluster was stopped in the meantime
            raise UserError(
                f"`ottla cluster up` in {directory} exited before broker {broker} was {wanted}."
            )
        if wanted == RUNNING and state == RESTARTING:
            raise UserError(
                f"Broker {broker} exited while it was starting. "
                f"See {directory}/broker-{broker}.log."
            )
        if time.monotonic() > deadline:
            raise UserError(
                f"Broker {broker} is still {state} after {WAIT_TIMEOUT_S:g} s. "
                f"See {directory}/broker-{broker}.log."
            )
        time.sleep(POLL_S)


def _states(directory: Path) -> dict[int, str]:
    try:
        published = json.loads(_state_file(directory).read_text())
    except FileNotFoundError:
        return {}
    return {int(broker): str(state) for broker, state in published["brokers"].items()}


def _check_running(directory: Path) -> None:
    if not is_running(directory):
        raise UserError(
            f"No cluster is running in {directory}. Start one with: "
            f"ottla cluster up --data-dir {directory}"
        )


def is_running(directory: Path) -> bool:
    """Return whether a `cluster up` uses a directory."""
    try:
        file = _lock_file(directory).open()
    except OSError:
        return False
    with file:
        return not _try_lock(file, fcntl.LOCK_SH)


def _try_lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_file(directory: Path) -> Path:
    return directory / "cluster.lock"


def _state_file(directory: Path) -> Path:
    return directory / "cluster.json"


def _stop_file(directory: Path, broker: int) -> Path:
    return directory / f"broker-{broker}.stop"
