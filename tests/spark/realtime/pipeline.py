"""Driver program that tests kill: a real-time query with a Python function, from topic to topic.

python -m tests.spark.realtime.pipeline MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT"""

from __future__ import annotations

import sys

import ottla.spark
from ottla.spark.realtime.functions import function_column


def main(master: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    settings: dict[str, str] = {}
    if not master.startswith("local"):
        settings = {
            "spark.executor.cores": "1", "spark.cores.max": "2", "spark.executor.memory": "512m"
        }  # fmt: skip
    spark = ottla.spark.session(master, **settings)
    spark.sparkContext.setLogLevel("ERROR")
    given = {"kafka.bootstrap.servers": bootstrap}
    rows = (
        spark.readStream.format("ottla")
        .options(**given, subscribe=source, startingOffsets="earliest")
        .load()
    )
    seen = function_column(rows, _seen, "seen", "string", [rows["value"]]).alias("value")
    while True:  # a query that has lost a process or the broker is started again
        query = (
            rows.select("key", seen)
            .writeStream.format("ottla")
            .options(**given, topic=target, checkpointLocation=checkpoint)
            .outputMode("update")
            .trigger(realTime="5 seconds")
            .start()
        )
        try:
            query.awaitTermination()
        except Exception as error:
            print(f"query failed: {error}", flush=True)


def _seen(value: bytes) -> str:
    return f"seen {value.decode()}"


if __name__ == "__main__":
    main(*sys.argv[1:])
