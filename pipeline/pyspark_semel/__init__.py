"""semel for Spark: `spark.read.format("semel")`, `spark.readStream.format("semel")`, `df.writeStream.format("semel")`.

Spark finds the package by its name. Options and columns are those of Spark's own Kafka connector.
"""
