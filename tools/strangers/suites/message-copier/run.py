"""EDGE: runs two of Kafka's TransactionalMessageCopier, which copy a topic in transactions while they and brokers are
killed.
"""

from __future__ import annotations

from tools.strangers import records, script
from tools.strangers.children import Child, run_with_kills

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PARTITIONS = 2
RECORDS = 3000
KILLS = 4


def copier(class_path: str, source: str, target: str, partition: int, words: list[str]) -> Child:
    """Start a process that copies one partition, or those that its group assigns."""
    command = [
        *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *("-cp", class_path, COPIER, "--broker-list", script.bootstrap()),
        *("--input-topic", source, "--output-topic", target, "--input-partition", str(partition)),
        *("--transactional-id", f"{target}-{partition}", "--consumer-group", target),
        *("--transaction-size", "25", "--transaction-timeout", "20000", "--enable-random-aborts", *words),
    ]
    return Child(f"{target}-{partition}", command)


def copy(class_path: str, name: str, words: list[str]) -> None:
    """Copy a topic until the group has committed all of it; each record must appear once, in order.

    The copier writes to the partition that a record came from, and stops at the end offset of its start.
    """
    source, target = f"{name}-source", f"{name}-target"
    records.create(source, target, partitions=PARTITIONS)
    feed = records.SlowProducer(source, records.numbers(RECORDS), PARTITIONS, parts=40)
    copiers = [copier(class_path, source, target, partition, words) for partition in range(PARTITIONS)]
    run_with_kills(
        copiers,
        lambda: feed.is_over() and records.committed(target, source) >= RECORDS,
        kills=KILLS,
        pause_s=4,
        timeout_s=400,
    )
    records.require_once(records.flat(target, PARTITIONS), RECORDS)
    records.require_ascending(records.read(target, PARTITIONS))


def main() -> None:
    lib = script.jars(script.folder() / "pom.xml", "lib", kafka_version=script.pin("kafka-tools"))
    with script.test("two copy a partition each, brokers and copiers are killed: each record once, in order"):
        copy(f"{lib}/*", "assigned", [])
    with script.test("two copy as a group, brokers and copiers are killed: each record once, in order"):
        copy(f"{lib}/*", "grouped", ["--group-mode", "--use-group-metadata"])


script.run(main)
