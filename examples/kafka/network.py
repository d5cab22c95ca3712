"""What a Structured Streaming job did between the topics `orders` and `revenue`.

The job it replaces:

    orders = (
        spark.readStream.format("kafka").option("subscribe", "orders").load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order"), "timestamp")
        .select("order.*", "timestamp")
        .withWatermark("timestamp", "2 seconds")
    )
    (
        orders.filter("amount > 0")
        .groupBy(F.window("timestamp", "10 seconds"), "shop")
        .agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))
        .select(F.col("shop").alias("key"), F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("kafka").option("topic", "revenue")
        .option("checkpointLocation", "checkpoints").start()
    )

The same topics, keys and values; those who write the one and read the other notice nothing, except
that a record is there once also after a crash, and that results go on while a replica is down.
"""

from pyspark.sql import functions as F

from holdfast import Network, window

network = Network("revenue", bucket="200 ms")
orders = network.source(
    "orders", "shop string, amount double, kafka_timestamp timestamp", stime="kafka_timestamp"
)
(
    orders.filter("amount > 0")
    .groupBy(window("10 seconds"), "shop")
    .agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))
    .output("revenue")
)
