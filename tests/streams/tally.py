"""Application that tests kill: two stateful tables, one emits changes, one closed windows.

python -m tests.streams.tally BOOTSTRAP STATE_DIR [RECORDS_PER_BATCH [TABLES]]"""

from __future__ import annotations

import sys

import ottla.streams as st

WINDOW_MS = 60_000
GRACE_MS = 3_600_000


def build(
    bootstrap: str,
    state_dir: str,
    limit: str = "300",
    tables: str = "by-key,by-minute",
) -> st.App:
    app = st.App(
        "tally",
        bootstrap=bootstrap,
        state_dir=state_dir,
        master="local[2,8]",
        spark={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"},
        max_records_per_batch=int(limit),
    )
    entries = app.stream("entries", value=st.Json("n bigint"))
    if "by-key" in tables:
        entries.group_by_key().aggregate(n=st.count(), total=st.sum("n")).to("by-key")
    if "by-minute" in tables:
        windows = entries.group_by_key().windowed(st.tumbling("1 minute", grace="1 hour"))
        windows.aggregate(n=st.count(), total=st.sum("n")).suppress().to("by-minute")
    return app


if __name__ == "__main__":
    build(*sys.argv[1:]).run()
