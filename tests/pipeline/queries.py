"""Small streaming queries for tests of the sink: files of rows as input, a topic as output, every row counted.

Each query has a folder of its own: `in` for its files, `checkpoint`, and `points` for armed fault points.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.fault_points import FOLDER, FORMAT, path_for_workers
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from semel import Consumer, TopicPartition
from semel.structs import ConsumerRecord

FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
ROWS = 40
"""The rows of a file."""


class QueryCase:
    """One query and its expected output. Its name is also that of the topic and the sink."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address, self.name = folder, address, folder.name
        self.points = folder / "points"
        for each in (folder / "in", self.points):
            each.mkdir(parents=True, exist_ok=True)

    def add_file(self, number: int, rows: int = ROWS) -> None:
        """Add a file of rows; each file is a batch."""
        lines = (json.dumps({"k": f"k{row % 7}", "v": f"{number}:{row}"}) + "\n" for row in range(rows))
        made = self.folder / f"{number:04}.json"
        made.write_text("".join(lines))
        made.rename(self.folder / "in" / made.name)

    def rows(self, spark: SparkSession, partitions: int | None = 2) -> DataFrame:
        """Return the files as a stream, one per batch, with the rows in several tasks; None: Spark chooses their
        number.
        """
        files = spark.readStream.schema("k string, v string").option("maxFilesPerTrigger", 1)
        rows = files.json(str(self.folder / "in")).selectExpr("k as key", "v as value")
        return rows.repartition("key") if partitions is None else rows.repartition(partitions)

    def start(self, rows: DataFrame, with_faults: bool = False, **options: str) -> StreamingQuery:
        """Write all existing files exactly once, then end."""
        writer = rows.writeStream.format(FORMAT if with_faults else "semel").trigger(availableNow=True)
        given = {
            "checkpointLocation": str(self.folder / "checkpoint"),
            "kafka.bootstrap.servers": self.address,
            "semel.sink.id": self.name,
            "topic": self.name,
            **({FOLDER: str(self.points)} if with_faults else {}),
            **options,
        }
        return writer.outputMode("append").options(**given).start()

    def check(self, files: int, rows: int = ROWS) -> None:
        """Check that every row of the files is in the topic once, and no other."""
        expected = Counter(f"{number}:{row}" for number in range(files) for row in range(rows))
        found = Counter((record.value or b"").decode() for record in committed(self.address, self.name))
        assert found == expected, (
            f"{self.name}: missing {sorted((expected - found).elements())[:5]} of {(expected - found).total()}, "
            f"too many {sorted((found - expected).elements())[:5]} of {(found - expected).total()}"
        )


def committed(address: str, topic: str, isolation_level: str = "read_committed") -> list[ConsumerRecord]:
    """Return all records of a topic at this isolation level."""
    return asyncio.run(_committed(address, topic, isolation_level))


async def _committed(address: str, topic: str, isolation_level: Any) -> list[ConsumerRecord]:
    settings: dict[str, Any] = {"isolation_level": isolation_level, "auto_offset_reset": "earliest"}
    found: list[ConsumerRecord] = []
    async with Consumer(bootstrap_servers=address, **settings) as consumer:
        partitions = [TopicPartition(topic, each) for each in sorted(await consumer.fetch_partitions(topic))]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
    return found


def session(master: str, **settings: str) -> SparkSession:
    """Return a Spark session for a separate process."""
    from pyspark_semel import java

    java.prepare()
    path_for_workers()
    builder = SparkSession.builder.master(master).appName("semel tests")
    quiet = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        **settings,
    }
    for name, value in quiet.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(arguments: list[str]) -> None:
    """Run the queries of these folders at once, in a process of its own; write how each has ended."""
    from pipeline.fault_points import FaultPointSource

    master, address, *folders = arguments
    spark = session(master, **dict(each.split("=", 1) for each in os.environ.get("SPARK_SETTINGS", "").split()))
    spark.dataSource.register(FaultPointSource)
    cases = [QueryCase(Path(folder), address) for folder in folders]
    queries = [(case, case.start(case.rows(spark), with_faults=True)) for case in cases]
    for case, query in queries:
        try:
            query.awaitTermination()
            said = ""
        except Exception as error:
            said = str(error)
        (case.folder / "ended").write_text(said)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
