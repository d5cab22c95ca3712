"""The engine: operators on Spark, a bucket at a time."""
