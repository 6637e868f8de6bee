"""The demo's Streams application: counts each word, in total and in windows of ten seconds.

python -m ottla.cli.demo.application BOOTSTRAP STATE_DIR"""

from __future__ import annotations

import sys

import ottla.streams as st
from ottla.spark.spark_session import JAVA_OPTIONS, SHORT_LIVED

NAME = "demo"
LINES, COUNTS, WINDOWS = "lines", "word-counts", "word-windows"
WINDOW = "10 seconds"
GRACE = "1 minute"
"""Grace period of windows. It is longer than any failover, so that no record is late."""
SPARK = {"spark.driver.memory": "512m", JAVA_OPTIONS: SHORT_LIVED}


def build(app: st.App) -> None:
    """Add the topology to an application."""
    lines = app.stream(LINES, value=st.String)
    words = lines.flat_map_values(lambda line: line.lower().split(" "))
    by_word = words.filter(lambda word: word != "").group_by(lambda word: word)
    counts = by_word.aggregate(seen=st.count()).to_stream()
    counts.map_values(lambda word, counted: {"word": word, "seen": counted.seen}).to(COUNTS)
    windows = by_word.windowed(st.tumbling(WINDOW, grace=GRACE)).aggregate(seen=st.count())
    windows.to_stream().map_values(
        lambda word, counted: {
            "word": word,
            "from": counted.window_start,
            "until": counted.window_end,
            "seen": counted.seen,
        }
    ).to(WINDOWS, key=st.String)


def main(bootstrap: str, state_dir: str) -> None:
    """Run the application until it is stopped."""
    app = st.App(NAME, bootstrap, state_dir=state_dir, spark=SPARK)
    build(app)
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
