"""EDGE: runs a Kafka Streams application on two instances; kills them and brokers, and checks every count."""

from __future__ import annotations

from tools.strangers import records, script
from tools.strangers.children import Child, run_with_kills

PARTITIONS = 2
RECORDS = 4000
WORDS = 20
KILLS = 4


def instance(class_path: str, name: str, number: int) -> Child:
    state = script.scratch() / "state" / f"{name}-{number}"
    command = [
        *("java", "-Xmx400m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *("-cp", class_path, "Counting", name, str(state)),
    ]
    return Child(f"{name}-{number}", command)


def count(class_path: str, name: str, kills: int) -> None:
    """Counts words; each count of each word must be in the target once, in order."""
    source, target = f"{name}-source", f"{name}-target"
    records.create(source, target, partitions=PARTITIONS)
    words = [f"w{number * 7 % WORDS}".encode() for number in range(RECORDS)]
    feed = records.SlowProducer(source, [(b"k", word) for word in words], PARTITIONS, parts=80)
    instances = [instance(class_path, name, number) for number in range(2)]
    run_with_kills(
        instances,
        lambda: feed.is_over() and len(flat(target)) >= RECORDS,
        kills=kills,
        pause_s=8,
        timeout_s=500,
    )
    found = flat(target)
    for word in range(WORDS):
        counts = [int(each.split("=")[1]) for each in found if each.startswith(f"w{word}=")]
        right = list(range(1, RECORDS // WORDS + 1))
        told = f"w{word}: {len(set(right) - set(counts))} lost, {len(counts) - len(set(counts))} twice"
        assert counts == right, f"{told}, in order: {counts == sorted(counts)}"
    assert len(found) == RECORDS, f"{len(found)} records, not {RECORDS}"


def flat(topic: str) -> list[str]:
    """Return all values, each partition in offset order; a word is always in the same partition."""
    return [value.decode() for value in records.flat(topic, PARTITIONS)]


def main() -> None:
    for version in script.pins("kafka-streams"):
        lib = script.jars(script.folder() / "pom.xml", f"lib-{version}", kafka_version=version)
        class_path = script.classes(lib, f"classes-{version}")
        with script.test(f"{version}: counts of two instances, which are killed, as brokers are: each once, in order"):
            count(class_path, f"counting-{version}", KILLS)


script.run(main)
