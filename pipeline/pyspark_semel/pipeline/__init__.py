"""Runs the streaming queries of Spark that a file defines: the package behind the command `semel pipeline`.

from pyspark_semel.pipeline import Definition, Query, Source

def loud(spark, flights): ...

pipeline = Definition(
    name="flights", checkpoint="/var/lib/flights", functions={"loud": loud},
    sources={"flights": Source(format="semel", options={...})},
    queries={"out": Query(python="loud", inputs=["flights"], format="semel", options={...})},
)
"""

from pyspark_semel.pipeline.definition import Definition, DefinitionError, Query, Source, View, Watermark

__all__ = ["Definition", "DefinitionError", "Query", "Source", "View", "Watermark"]
