"""EDGE: runs MirrorMaker 2, which mirrors a topic exactly once; kills it and brokers, and counts every record."""

from __future__ import annotations

from tools.strangers import records, script
from tools.strangers.children import Child, run_with_kills
from tools.strangers.ports import free_ports

PARTITIONS = 2
RECORDS = 4000
KILLS = 4


def mirror(class_path: str, port: int) -> Child:
    """Mirror the cluster to itself under another name; the first name becomes the topic's prefix."""
    replicas = str(script.replicas())
    settings = {
        "clusters": "east, west",
        "east.bootstrap.servers": script.bootstrap(),
        "west.bootstrap.servers": script.bootstrap(),
        "east->west.enabled": "true",
        "west->east.enabled": "false",
        "east->west.topics": "mirrored",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "west.exactly.once.source.support": "enabled",
        "tasks.max": "2",
        "emit.heartbeats.enabled": "false",  # a cluster that mirrors itself would mirror heartbeats forever
        "heartbeats.replication.enabled": "false",
        "replication.factor": replicas,
        "checkpoints.topic.replication.factor": replicas,
        "heartbeats.topic.replication.factor": replicas,
        "offset-syncs.topic.replication.factor": replicas,
        "offset.storage.replication.factor": replicas,
        "status.storage.replication.factor": replicas,
        "config.storage.replication.factor": replicas,
        "offset.storage.partitions": "3",
        "refresh.topics.interval.seconds": "3",
        "refresh.groups.interval.seconds": "3",
        "sync.topic.configs.interval.seconds": "5",
        "emit.checkpoints.interval.seconds": "2",
        "sync.group.offsets.enabled": "true",
        "scheduled.rebalance.max.delay.ms": "1000",
        "west.producer.override.transaction.timeout.ms": "20000",
    }
    file = script.scratch() / f"mirror-{port}.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    command = ["java", "-Xmx768m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    return Child(f"mirror-{port}", [*command, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)])


def main() -> None:
    lib = script.jars(script.folder() / "pom.xml", "lib", kafka_version=script.pin("connect-mirror"))
    with script.test("a topic is mirrored while MirrorMaker and brokers are killed: each record once, in order"):
        records.create("mirrored", "east.mirrored", partitions=PARTITIONS)
        feed = records.SlowProducer("mirrored", records.numbers(RECORDS), PARTITIONS, parts=100)
        (port,) = free_ports(1)

        def is_mirrored() -> bool:
            return feed.is_over() and len(records.flat("east.mirrored", PARTITIONS)) >= RECORDS

        run_with_kills([mirror(f"{lib}/*", port)], is_mirrored, kills=KILLS, pause_s=12, timeout_s=600)
        records.require_once(records.flat("east.mirrored", PARTITIONS), RECORDS)
        assert records.read("east.mirrored", PARTITIONS) == records.read("mirrored", PARTITIONS), (
            "the mirror differs from the source"
        )


script.run(main)
