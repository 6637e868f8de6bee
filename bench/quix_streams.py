"""Quix Streams on a topic, for comparison with `bench.streams`.

`bench.streams` runs this program with a Python that has Quix Streams:

python quix_streams.py BOOTSTRAP WORKLOAD TOPIC HOME

It prints the rows per second from the first processed record to the last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]

IDLE_S = 5.0
"""Time without records after which all are considered processed."""


def main(bootstrap: str, workload: str, source: str, home: str) -> None:
    times: list[float] = []

    def processed(topic: str, partition: int, offset: int) -> None:
        times.append(time.perf_counter())

    app = Application(
        broker_address=bootstrap, consumer_group=f"quix-{workload}-{source}-{os.getpid()}",
        auto_offset_reset="earliest", state_dir=f"{home}/quix-{workload}-{source}",
        loglevel="ERROR", on_message_processed=processed,
    )  # fmt: skip
    kind = "json" if workload != "map" else "str"
    rows = app.dataframe(app.topic(source, key_deserializer="str", value_deserializer=kind))
    target = app.topic(f"out-{workload}-{source}", key_serializer="str", value_serializer=kind)
    BUILD[workload](app, rows).to_topic(target)
    app.run(timeout=IDLE_S)
    print(json.dumps({"rows": len(times), "rows_per_second": len(times) / (times[-1] - times[0])}))


def stateless(app: Any, rows: Any) -> Any:
    big = rows.filter(lambda o: o["amount"] > 10)
    return big.apply(lambda o: {"item": o["item"], "cents": o["amount"] * 100})


def windowed_count(app: Any, rows: Any) -> Any:
    return rows.tumbling_window(timedelta(minutes=1), timedelta(hours=1)).count().current()


def table_join(app: Any, rows: Any) -> Any:
    topic = app.topic("quix-items", key_deserializer="str", value_deserializer="json")
    return rows.join_asof(app.dataframe(topic), how="inner")


def map_values(app: Any, rows: Any) -> Any:
    return rows.apply(lambda text: f"{text[:20]}…")


def aggregation(app: Any, rows: Any) -> Any:
    def add(value: Any, state: Any) -> Any:
        found = state.get("s", {"n": 0, "most": 0.0})
        found = {"n": found["n"] + 1, "most": max(found["most"], value["amount"])}
        state.set("s", found)
        return found

    return rows.apply(add, stateful=True)


BUILD = {
    "stateless": stateless,
    "windowed-count": windowed_count,
    "table-join": table_join,
    "map": map_values,
    "aggregation": aggregation,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
