"""EDGE: runs spring-kafka listener containers that answer records in transactions; kills them and brokers."""

from __future__ import annotations

from tools.strangers import records, script
from tools.strangers.children import Child, run_with_kills

PARTITIONS = 2
RECORDS = 2000
KILLS = 4
BAD_EVERY = 100


def relay(class_path: str, name: str, mode: str, number: int) -> Child:
    command = [
        *("java", "-Xmx300m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *("-cp", class_path, "Relay", name, mode, str(number)),
    ]
    return Child(f"{name}-{number}", command)


def relayed(class_path: str, name: str, mode: str) -> None:
    """Relay records under kills; each record must appear once, in order."""
    source, target = f"{name}-source", f"{name}-target"
    records.create(source, target, partitions=PARTITIONS)
    feed = records.SlowProducer(source, records.numbers(RECORDS), PARTITIONS, parts=50)
    relays = [relay(class_path, name, mode, number) for number in range(2)]

    def is_relayed() -> bool:
        return feed.is_over() and len(records.flat(target, PARTITIONS)) >= RECORDS

    run_with_kills(relays, is_relayed, kills=KILLS, pause_s=5, timeout_s=400)
    records.require_once(records.flat(target, PARTITIONS), RECORDS)
    records.require_ascending(records.read(target, PARTITIONS))


def dead_letters(class_path: str, name: str) -> None:
    """Check that each record appears once, in the target or among the dead letters."""
    source, target, dead = f"{name}-source", f"{name}-target", f"{name}-dead"
    records.create(source, target, dead, partitions=PARTITIONS)
    records.send(source, records.numbers(RECORDS), PARTITIONS)
    relays = [relay(class_path, name, "dead", number) for number in range(2)]

    def is_relayed() -> bool:
        return len(records.flat(target, PARTITIONS)) + len(records.flat(dead, PARTITIONS)) >= RECORDS

    run_with_kills(relays, is_relayed, kills=0, pause_s=5, timeout_s=400)
    letters = records.flat(dead, PARTITIONS)
    assert sorted(map(int, letters)) == list(range(BAD_EVERY - 1, RECORDS, BAD_EVERY)), f"{len(letters)} dead letters"
    records.require_once([*records.flat(target, PARTITIONS), *letters], RECORDS)


def main() -> None:
    for version in script.pins("spring-kafka"):
        lib = script.jars(script.folder() / "pom.xml", f"lib-{version}", spring_version=version)
        class_path = script.classes(lib, f"classes-{version}")
        for mode in ("record", "batch"):
            with script.test(f"{version}: transactions by {mode}, listeners fail, all are killed: each once, in order"):
                relayed(class_path, f"{mode}-{version}", mode)
        with script.test(f"{version}: records that never work go to the dead letters, in the same transactions"):
            dead_letters(class_path, f"dead-{version}")


script.run(main)
