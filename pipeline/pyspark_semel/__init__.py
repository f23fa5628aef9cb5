"""The Spark format `semel`: `spark.read.format("semel")`, `spark.readStream.format("semel")`,
`df.writeStream.format("semel")`.

Spark finds the package by its name, and the class `DefaultSource` in it. Options and columns are those of Spark's own
Kafka connector.

Every Spark session on a machine imports this file, also one that reads no topic. The import must be fast and must not
fail.
"""

from __future__ import annotations

from pyspark_semel.data_source import DefaultSource, SemelDataSource

__all__ = ["DefaultSource", "SemelDataSource"]
