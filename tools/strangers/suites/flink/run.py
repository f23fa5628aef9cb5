"""EDGE: runs a Flink job that copies a topic with the exactly-once sink; the job fails, it and brokers are killed."""

from __future__ import annotations

from tools.strangers import records, script
from tools.strangers.children import Child, run_with_kills

PARTITIONS = 2
RECORDS = 2500
KILLS = 4
PACKAGES = ("java.lang", "java.util", "java.net", "java.nio", "java.time", "java.util.concurrent")


def job(class_path: str, name: str) -> Child:
    """Start a Flink cluster in one process. It continues from its newest checkpoint, also after SIGKILL."""
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in PACKAGES]
    command = [
        *("java", "-Xmx768m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *opens),
        *("-cp", class_path, "Relay", f"{name}-source", f"{name}-target"),
        *(str(script.scratch() / f"checkpoints-{name}"), str(PARTITIONS)),
    ]
    return Child(name, command)


def copy(class_path: str, name: str) -> None:
    """Copy a topic under kills; each record must appear once, in order."""
    source, target = f"{name}-source", f"{name}-target"
    records.create(source, target, partitions=PARTITIONS)
    feed = records.SlowProducer(source, records.numbers(RECORDS), PARTITIONS, parts=90)

    def is_copied() -> bool:
        return feed.is_over() and len(records.flat(target, PARTITIONS)) >= RECORDS

    run_with_kills([job(class_path, name)], is_copied, kills=KILLS, pause_s=10, timeout_s=600)
    records.require_once(records.flat(target, PARTITIONS), RECORDS)
    records.require_ascending(records.read(target, PARTITIONS))


def main() -> None:
    for version, connector in zip(script.pins("flink"), script.pins("flink-connector-kafka"), strict=True):
        lib = script.jars(
            script.folder() / "pom.xml", f"lib-{version}", flink_version=version, connector_version=connector
        )
        class_path = script.classes(lib, f"classes-{version}")
        with script.test(
            f"{version}: a topic is copied; the job fails, it and brokers are killed: each once, in order"
        ):
            copy(class_path, f"flink-{version}")


script.run(main)
