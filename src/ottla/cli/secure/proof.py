"""The start of a broker that proves that certificates, users and profiles fit together."""

from __future__ import annotations

import importlib
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from ottla.base.config.properties import load_properties
from ottla.base.errors import KafkaError, UserError
from ottla.cli.local_cluster import BrokerChild
from ottla.cli.secure.texts import PROTOCOL

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
POLL_S = 0.02
_LISTENING = re.compile(rf"listening on {PROTOCOL}://{HOST}:(\d+)")


def prove(server: Path, profile: Path) -> None:
    """Start a broker on the loopback interface, describe the cluster with a profile, and stop it.

    Args:
        server: Configuration of the broker.
        profile: Profile of a user.

    Raises:
        UserError: The broker did not start or did not accept the profile.
    """
    address = f"{PROTOCOL}://{HOST}:0"
    command = [sys.executable, "-m", "ottla", "broker", "--config", str(server)]
    for name in ("listeners", "advertised.listeners"):
        command += ["--override", f"{name}={address}"]
    with tempfile.TemporaryDirectory(prefix="ottla-secure-") as directory:
        log = Path(directory) / "broker.log"
        broker = BrokerChild(1, command, log)
        broker.start()
        # Both processes import modules for half a second, so let them do it at the same time.
        importlib.import_module("ottla.client.admin")
        try:
            _wait_until_ready(broker, server)
            listening = _LISTENING.search(log.read_text())
            assert listening is not None, "a broker that is ready listens"
            _connect(f"{HOST}:{listening[1]}", profile)
        finally:
            broker.end(signal.SIGTERM)


def _wait_until_ready(broker: BrokerChild, server: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while not broker.is_ready():
            if time.monotonic() > deadline:
                raise UserError(f"It was not ready within {START_TIMEOUT_S:g} s.")
            time.sleep(POLL_S)
    except UserError as error:
        raise UserError(f"A broker did not start with {server}. {error}") from None


def _connect(bootstrap: str, profile: Path) -> None:
    from ottla.client.admin import Admin

    try:
        with Admin(bootstrap, profile=load_properties(str(profile))) as admin:
            admin.describe_cluster()
    except KafkaError as error:
        raise UserError(f"A broker did not accept the profile {profile}: {error}") from None
