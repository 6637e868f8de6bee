"""Driver program that tests kill: a real-time query from one topic to another.

python -m tests.spark.realtime.pipeline MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT"""

from __future__ import annotations

import sys

import ottla.spark


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
    while True:  # a query that has lost a process or the broker is started again
        query = (
            rows.selectExpr("key", "concat('seen ', string(value)) value")
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


if __name__ == "__main__":
    main(*sys.argv[1:])
