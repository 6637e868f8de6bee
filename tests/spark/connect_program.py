"""Program that tests Ottla with Spark Connect; `test_spark_connect` runs it and reads its output.

A process has either classic sessions or sessions of Spark Connect, so it is a process of its own.
The program prints a line of JSON with what it has seen.

    python connect_program.py BOOTSTRAP STATE_DIR
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ottla.spark
import ottla.streams as st
from ottla import Producer
from ottla.base.errors import UserError
from ottla.streams.testing import TopologyDriver

BOOTSTRAP, STATE_DIR = sys.argv[1:]
ORDER = st.Json("item string, amount double")


def send(first: int, count: int) -> None:
    with Producer(BOOTSTRAP) as producer:
        for number in range(first, first + count):
            value = json.dumps({"item": "ab"[number % 2], "amount": number})
            producer.send("orders", value.encode(), key=str(number).encode())


def app(name: str) -> st.App:
    return st.App(name, BOOTSTRAP, state_dir=STATE_DIR)


def build() -> st.App:
    made = app("shop")
    orders = made.stream("orders", value=ORDER)
    orders.filter(lambda order: order.amount >= 5).to("large")
    orders.group_by(lambda order: order.item).aggregate(total=st.sum("amount")).to("totals")
    return made


def refusal_of(action: Any) -> str:
    try:
        action()
    except UserError as error:
        return str(error)
    return "not refused"


def main() -> None:
    send(0, 10)
    spark = ottla.spark.session(spark_remote="local[2]", spark_sql_shuffle_partitions=1)
    seen: dict[str, object] = {"session": type(spark).__module__}
    ottla.spark.register(spark)
    seen["same session"] = ottla.spark.session() is spark
    table = ottla.spark.table("orders", bootstrap=BOOTSTRAP, metadata=True)
    seen["table"] = [table.count(), table.schema["amount"].dataType.simpleString()]

    first = build().start()
    first.process_all_available()
    send(10, 4)
    first.process_all_available()
    status = {each.topic: each for each in first.status()}
    seen["rows"] = {topic: each.operators[0].rows for topic, each in status.items()}
    first.stop()
    send(14, 2)
    second = build().start()
    second.process_all_available()
    second.stop()

    printing = app("printing")
    printing.stream("orders", value=ORDER).print("all")
    other = app("shop")
    other.stream("orders", value=ORDER).filter(lambda order: order.amount >= 6).to("large")
    seen["refused"] = {
        "print": refusal_of(printing.start),
        "driver": refusal_of(lambda: TopologyDriver(build(), spark)),
        "master": refusal_of(lambda: ottla.spark.session("local[1]")),
        "setting": refusal_of(lambda: ottla.spark.session(spark_driver_memory="9g")),
        "topology": refusal_of(other.start),
    }
    build().reset()
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
