"""Helpers that run compaction rounds on small logs, in-process."""

from __future__ import annotations

from dataclasses import dataclass

from tests.unit.storage.small_logs import START_MS

from ottla.base.config.topic import TopicConfig
from ottla.storage.compaction import compact
from ottla.storage.compaction_job import CompactionJob, CompactionResult
from ottla.storage.compaction_plan import CleanerLimits, assess, open_cleaned, plan
from ottla.storage.log import Log

COMPACT = frozenset({"compact"})
LIMITS = CleanerLimits(1 << 20, 0.9, 4096, float("inf"))


def compacted(**values: object) -> TopicConfig:
    return TopicConfig(cleanup_policy=COMPACT, **values)  # type: ignore[arg-type]


@dataclass
class Rounds:
    """A log and its cleaner checkpoint, as the broker's cleaner keeps them."""

    log: Log
    checkpoint: int | None = None
    limits: CleanerLimits = LIMITS

    def clean(
        self, now_ms: int = START_MS, *, roll: bool = True, high_watermark: int | None = None
    ) -> CompactionResult | None:
        """Run one round over everything that may be cleaned; return None if nothing is dirty."""
        job = self.job(now_ms, roll=roll, high_watermark=high_watermark)
        return None if job is None else self.run(job, now_ms, high_watermark)

    def job(
        self, now_ms: int = START_MS, *, roll: bool = True, high_watermark: int | None = None
    ) -> CompactionJob | None:
        if roll:
            self.log.roll(now_ms)
        self.log.flush(now_ms)
        dirty = assess(self.log, self.checkpoint, self.stable(high_watermark), now_ms)
        return plan(dirty, self.limits, now_ms).job if dirty.dirty_bytes else None

    def run(
        self, job: CompactionJob, now_ms: int = START_MS, high_watermark: int | None = None
    ) -> CompactionResult:
        dirty = assess(self.log, self.checkpoint, self.stable(high_watermark), now_ms)
        planned = plan(dirty, self.limits, now_ms)
        result = compact(self.log.fs, CompactionJob.from_json(job.to_json()))
        for cleaned in result.cleaned:
            sources = planned.sources_of(cleaned)
            assert sources is not None
            new = open_cleaned(self.log, cleaned)
            for old in self.log.replace_segments(new, sources):
                old.remove()
        self.checkpoint = result.next_dirty_offset
        return result

    def stable(self, high_watermark: int | None) -> int:
        end = self.log.log_end_offset if high_watermark is None else high_watermark
        unstable = self.log.producers.first_unstable_offset
        return end if unstable is None else min(unstable, end)
