"""Model test of puts, deletes, transactions, rolls, compactions and restarts against a dict."""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.storage.compacted_logs import LIMITS, Rounds, compacted
from tests.unit.storage.small_logs import (
    START_MS,
    batches,
    data_records,
    end_transaction,
    latest_values,
    open_test_log,
    put,
)

from ottla.wire.records.compression import NAMES

KEYS = st.integers(0, 9).map(lambda number: b"k%d" % number)
RECORDS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=40)), min_size=1, max_size=6)
DELETE_RETENTION_MS = 1_000
PRODUCER = 77


class CompactionModel(RuleBasedStateMachine):
    """State machine that compares a compacted log with a consumer's table of all records.

    Whatever compaction removes, a consumer that reads from the start must end up with the same
    table, whichever offset it starts to lag at."""

    @initialize(
        memory_keys=st.sampled_from([3, 1_000]), segment_bytes=st.sampled_from([300, 4_000])
    )
    def begin(self, memory_keys: int, segment_bytes: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="ottla-compaction-")
        self.config = compacted(
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        limits = LIMITS._replace(memory_bytes=24 * memory_keys, load_factor=1.0)
        self.rounds = Rounds(open_test_log(self.directory, self.config), limits=limits)
        self.now_ms = START_MS
        self.table: dict[bytes | None, bytes] = {}
        self.sequence = 0

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)

    @rule(records=RECORDS, codec=st.sampled_from(NAMES))
    def append(self, records: list[tuple[bytes, bytes | None]], codec: str) -> None:
        put(self.rounds.log, records, timestamp=self.now_ms, compression=codec)
        self.apply(records)

    @rule(
        first=RECORDS, between=RECORDS, second=RECORDS, commit=st.booleans(), splits=st.booleans()
    )
    def run_transaction(
        self,
        first: list[tuple[bytes, bytes | None]],
        between: list[tuple[bytes, bytes | None]],
        second: list[tuple[bytes, bytes | None]],
        commit: bool,
        splits: bool,
    ) -> None:
        log = self.rounds.log
        self.transactional(first)
        if commit:
            self.apply(first)
        put(log, between, timestamp=self.now_ms)
        self.apply(between)
        if splits:
            log.roll(self.now_ms)
        self.transactional(second)
        if commit:
            self.apply(second)
        end_transaction(log, PRODUCER, 0, commit=commit, timestamp=self.now_ms)

    @rule()
    def roll(self) -> None:
        self.rounds.log.roll(self.now_ms)

    @rule(roll=st.booleans())
    def clean(self, roll: bool) -> None:
        self.rounds.clean(self.now_ms, roll=roll)

    @rule(delay_ms=st.sampled_from([1, DELETE_RETENTION_MS]))
    def wait(self, delay_ms: int) -> None:
        self.now_ms += delay_ms

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        log = self.rounds.log
        if is_clean:
            log.close(self.now_ms)
        else:
            log.flush(self.now_ms)
        self.rounds.log = open_test_log(
            self.directory, self.config, is_clean=is_clean, recovery_point=log.recovery_point
        )
        assert self.rounds.log.log_end_offset == log.log_end_offset

    @precondition(lambda self: self.sequence)
    @rule()
    def retry_the_last_batch(self) -> None:
        """Check that the log still knows the producer's last sequence after compaction."""
        log = self.rounds.log
        entry = log.producers.producers[PRODUCER]
        assert entry.last_sequence == self.sequence - 1

    @invariant()
    def the_table_can_be_read_from_the_log(self) -> None:
        if not hasattr(self, "rounds"):
            return
        log = self.rounds.log
        aborted = {
            offset
            for txn in log.aborted_transactions(0, log.log_end_offset)
            for header, _ in batches(log)
            if header.producer_id == txn.producer_id and not header.is_control
            for offset in range(header.base_offset, header.next_offset)
            if txn.first_offset <= offset < txn.last_offset
        }
        records = [record for record in data_records(log) if record.offset not in aborted]
        assert latest_values(records) == self.table
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        self.check_clean_part(records)

    def check_clean_part(self, records: list) -> None:  # type: ignore[type-arg]
        """Check that each key occurs at most once before the cleaner checkpoint."""
        clean = [r.key for r in records if r.offset < (self.rounds.checkpoint or 0)]
        assert len(clean) == len(set(clean))

    def transactional(self, records: list[tuple[bytes, bytes | None]]) -> None:
        put(
            self.rounds.log,
            records,
            timestamp=self.now_ms,
            producer=(PRODUCER, 0, self.sequence),
            transactional=True,
        )
        self.sequence += len(records)

    def apply(self, records: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in records:
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value


CompactionModel.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
test_a_compacted_log_tells_the_same_as_a_dict = CompactionModel.TestCase
