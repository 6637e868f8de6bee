"""`snapshot.mode`: when the rows that are there are read. Pure. Debezium's names.

    mode            the first time    at each start    changes lost       then changes
    initial         yes               –                told               yes
    when_needed     yes               –                begins anew        yes
    always          yes               yes              begins anew        yes
    no_data         –                 –                told               yes
    initial_only    yes               –                –                  no, and no slot

`never` is an older name of `no_data`. A snapshot that was interrupted is gone on with, in every
mode; it is not begun again."""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotMode:
    at_first: bool = True
    at_each_start: bool = False
    after_loss: bool = False
    """By itself."""
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
    "configuration_based": "its switches are not known here; the modes that they make up are",
    "custom": "snapshotters of one's own are not known here; there are",
    "exported": "its newer name is initial; there are",
    "schema_only": "its newer name is no_data; there are",
    "schema_only_recovery": "it is of databases that keep a history of schemas; there are",
    "recovery": "it is of databases that keep a history of schemas; there are",
}
"""Debezium's that are not here, and why."""


def snapshot_mode(name: str) -> SnapshotMode:
    """Raises ValueError, a sentence."""
    known = MODES.get(name.strip().lower())
    if known is not None:
        return known
    why = OTHERS.get(name.strip().lower())
    if why is None:
        near = difflib.get_close_matches(name.lower(), MODES, n=1, cutoff=0.5)
        why = f"did you mean {near[0]}? There are" if near else "there are"
    raise ValueError(f"snapshot.mode cannot be {name}: {why} {', '.join(MODES)}")
