"""Rows of measurements, with the figures of both sides for each round."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Row:
    part: str
    name: str
    unit: str
    peer: str = "Apache Kafka"
    higher_is_better: bool = True
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def our_figure(self) -> float:
        return statistics.median(self.ours)

    @property
    def their_figure(self) -> float:
        return statistics.median(self.theirs)

    @property
    def ratio(self) -> float:
        """Ratio of the figures; above 1 is better for Ottla."""
        ours, theirs = self.our_figure, self.their_figure
        better, worse = (ours, theirs) if self.higher_is_better else (theirs, ours)
        return better / worse if worse else float("inf")

    @property
    def is_whole(self) -> bool:
        return bool(self.ours and self.theirs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Rows:
    """Rows of one part, identified by name from round to round, in order of creation."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._rows: dict[tuple[str, str], Row] = {}

    def add(
        self,
        name: str,
        unit: str,
        value: float,
        *,
        is_ours: bool,
        higher_is_better: bool = True,
        peer: str = "Apache Kafka",
    ) -> None:
        row = self._rows.setdefault(
            (name, peer), Row(self._part, name, unit, peer, higher_is_better)
        )
        (row.ours if is_ours else row.theirs).append(value)

    def whole(self) -> list[Row]:
        return [row for row in self._rows.values() if row.is_whole]
