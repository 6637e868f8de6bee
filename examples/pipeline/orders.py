"""Topic `orders` to a table, to a view of totals by item, and large orders to the topic `large`."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
BOOTSTRAP = spark.conf.get("orders.bootstrap", "localhost:9092")
COLUMNS = "item STRING, amount DOUBLE"


@dp.table
def orders() -> DataFrame:
    """Every order, appended as it arrives in the topic."""
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = f.from_json(f.col("value").cast("string"), COLUMNS).alias("order")
    return records.select(order, "timestamp").select("order.*", "timestamp")


@dp.materialized_view
def totals() -> DataFrame:
    """Total amount of each item, computed anew by each run."""
    return spark.read.table("orders").groupBy("item").agg(f.sum("amount").alias("total"))


dp.create_sink("large", "ottla", {"kafka.bootstrap.servers": BOOTSTRAP, "topic": "large"})


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    """Orders of 100 and more, as JSON, written to the topic exactly once."""
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.select(f.to_json(f.struct("item", "amount")).alias("value"))
