"""Where a user's files belong, by the XDG base directory rules."""

from __future__ import annotations

import os


def default_data_directory() -> str:
    """Where a broker keeps its logs when it is not told."""
    return _directory("XDG_DATA_HOME", ".local/share")


def daemon_output_file() -> str:
    """Where a broker in the background writes, in `$LOG_DIR` as Kafka's scripts do."""
    directory = os.environ.get("LOG_DIR") or _directory("XDG_STATE_HOME", ".local/state")
    return os.path.join(directory, "kafkaServer.out")


def _directory(variable: str, fallback: str) -> str:
    base = os.environ.get(variable, "")
    # The rules say that a relative path is to be ignored.
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), fallback)
    return os.path.join(base, "ottla")
