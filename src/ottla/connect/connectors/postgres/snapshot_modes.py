"""Modes of `snapshot.mode`, with Debezium's names: when existing rows are read.

    mode            first start    every start    changes lost         then changes
    initial         yes            –              reports an error     yes
    when_needed     yes            –              takes a new one      yes
    always          yes            yes            takes a new one      yes
    no_data         –              –              reports an error     yes
    initial_only    yes            –              –                    no, and no slot

`never` is an older name of `no_data`. In every mode, an interrupted snapshot is continued and does
not start over.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotMode:
    at_first: bool = True
    at_each_start: bool = False
    after_loss: bool = False
    """Whether a new snapshot is taken automatically when changes were lost."""
    streams: bool = True


MODES = {
    "initial": SnapshotMode(),
    "when_needed": SnapshotMode(after_loss=True),
    "always": SnapshotMode(at_each_start=True, after_loss=True),
    "no_data": SnapshotMode(at_first=False),
    "never": SnapshotMode(at_first=False),
    "initial_only": SnapshotMode(streams=False),
}
OTHERS = {
    "configuration_based": "its switches are not supported; use one of",
    "custom": "custom snapshotters are not supported; use one of",
    "exported": "it is now called initial; use one of",
    "schema_only": "it is now called no_data; use one of",
    "schema_only_recovery": "it applies to connectors with a schema history; use one of",
    "recovery": "it applies to connectors with a schema history; use one of",
}
"""Modes of Debezium that are not supported, with the reason."""


def snapshot_mode(name: str) -> SnapshotMode:
    """Return a mode; raise ValueError with a one-sentence message if it is unknown."""
    known = MODES.get(name.strip().lower())
    if known is not None:
        return known
    why = OTHERS.get(name.strip().lower())
    if why is None:
        near = difflib.get_close_matches(name.lower(), MODES, n=1, cutoff=0.5)
        why = f"did you mean {near[0]}? Use one of" if near else "use one of"
    raise ValueError(f"snapshot.mode cannot be {name}: {why} {', '.join(MODES)}")
