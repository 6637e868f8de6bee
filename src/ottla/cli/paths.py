"""Default locations of a user's files, following the XDG Base Directory Specification."""

from __future__ import annotations

import os


def default_data_directory() -> str:
    """Return the data directory of a broker that is started without `--data-dir`."""
    return _directory("XDG_DATA_HOME", ".local/share")


def daemon_output_file() -> str:
    """Return the output file of a background broker, in `$LOG_DIR` as in Kafka's scripts."""
    directory = os.environ.get("LOG_DIR") or _directory("XDG_STATE_HOME", ".local/state")
    return os.path.join(directory, "kafkaServer.out")


def _directory(variable: str, fallback: str) -> str:
    base = os.environ.get(variable, "")
    # The specification says to ignore relative paths.
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), fallback)
    return os.path.join(base, "ottla")
