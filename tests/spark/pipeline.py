"""Driver program that tests kill: it copies one topic to another, exactly once, batch by batch.

python -m tests.spark.pipeline BOOTSTRAP SOURCE TARGET CHECKPOINT"""

from __future__ import annotations

import sys

import ottla.spark


def main(bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    # Up to 20 attempts per task, because workers and the broker are killed.
    spark = ottla.spark.session("local[2,20]", **{"spark.sql.shuffle.partitions": "3"})
    spark.sparkContext.setLogLevel("ERROR")
    query = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200")
        .option("kafka.group.id", f"copies-{source}")
        .load()
        .selectExpr("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
