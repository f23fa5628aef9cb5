"""EDGE: runs Kafka's command line tools and compares their output and the stored data."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semel import Producer

from strangers import control, script

TOOLS = "org.apache.kafka.tools"
TOPIC_COMMAND = f"{TOOLS}.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
GROUP_COMMAND = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
PARTITIONS = 3
TOOL_TIMEOUT_S = 180
VALUES = 300


class Tools:
    """Runs the tools by class name. Most take the brokers' address first; those with subcommands take it after them."""

    def __init__(self, class_path: str) -> None:
        self.class_path = class_path

    def run(
        self, name: str, *words: str, at: str = "--bootstrap-server", stdin: str = "", status: int | None = 0
    ) -> str:
        """Returns the output of a tool; `at` is its option for the brokers. Raises AssertionError for another exit
        status.
        """
        where = [at, script.bootstrap()] if at else []
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        return script.output(
            [*command, "-cp", self.class_path, name, *where, *words], TOOL_TIMEOUT_S, status=status, stdin=stdin
        )

    def topic(self, name: str) -> str:
        """Creates a topic of this name."""
        words = ["--partitions", str(PARTITIONS), "--replication-factor", str(script.replicas())]
        self.run(TOPIC_COMMAND, "--create", "--topic", name, *words)
        return name

    def produce(self, topic: str, values: list[str]) -> None:
        """Produces values, with themselves as keys, by the console producer."""
        text = "".join(f"{each}|{each}\n" for each in values)
        properties = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"]
        self.run(f"{TOOLS}.ConsoleProducer", "--topic", topic, *properties, stdin=text)

    def consume(self, topic: str, count: int, isolation: str = "read_uncommitted") -> list[tuple[int, str]]:
        """Returns `count` records as (partition, value), by the console consumer."""
        properties = ["--formatter-property", "print.partition=true", "--isolation-level", isolation]
        text = self.run(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000", *properties),
            status=None,
        )
        return [(int(each[1]), each[2]) for each in re.finditer(r"^Partition:(\d+)\t(.*)$", text, re.MULTILINE)]

    def offsets(self, topic: str, time: str = "latest") -> dict[int, int]:
        """Returns the offsets of partitions, by GetOffsetShell."""
        text = self.run(f"{TOOLS}.GetOffsetShell", "--topic", topic, "--time", time)
        return {int(each[1]): int(each[2]) for each in re.finditer(rf"^{topic}:(\d+):(-?\d+)$", text, re.MULTILINE)}


def node_ids(tools: Tools) -> list[str]:
    """Returns the ids of all brokers, from the replicas of an existing topic."""
    text = tools.run(TOPIC_COMMAND, "--describe", "--topic", "console")
    return sorted(re.findall(r"Replicas: (\S+)", text)[0].split(","))


def require(holds: object, message: object) -> None:
    if not holds:
        raise AssertionError(str(message))


def require_exact(found: list[tuple[int, str]], values: list[str]) -> None:
    """Checks that each value appears once, in each partition in the order in which they were sent."""
    order = {value: number for number, value in enumerate(values)}
    require(sorted(value for _, value in found) == sorted(values), f"{len(found)} of {len(values)}, or others")
    for partition in range(PARTITIONS):
        numbers = [order[value] for at, value in found if at == partition]
        require(numbers == sorted(numbers), f"partition {partition} is out of order")


def topics(tools: Tools) -> None:
    with script.test("topics: create, describe, add partitions, list, delete"):
        tools.topic("made")
        text = tools.run(TOPIC_COMMAND, "--describe", "--topic", "made")
        require(f"PartitionCount: 3\tReplicationFactor: {script.replicas()}" in text, text)
        tools.run(TOPIC_COMMAND, "--alter", "--topic", "made", "--partitions", "5")
        text = tools.run(TOPIC_COMMAND, "--describe", "--topic", "made")
        require(text.count("Leader:") == 5 and "none" not in text, text)
        require("made" in tools.run(TOPIC_COMMAND, "--list").split(), "not listed")
        tools.run(TOPIC_COMMAND, "--delete", "--topic", "made")
        require("made" not in tools.run(TOPIC_COMMAND, "--list").split(), "still listed")
    with script.test("topics: those without all replicas, of which there are none"):
        for what in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
            require("Topic:" not in tools.run(TOPIC_COMMAND, "--describe", what), what)
    with script.test("topics: one that exists is not created again"):
        tools.topic("twice")
        require("exists" in tools.run(TOPIC_COMMAND, "--create", "--topic", "twice", status=1), "taken")


def configs(tools: Tools) -> None:
    entity = ["--entity-type", "topics", "--entity-name", "configured"]
    with script.test("configs: alter, describe and delete a topic's"):
        tools.topic("configured")
        tools.run(CONFIG_COMMAND, *entity, "--alter", "--add-config", "retention.ms=3600000,max.message.bytes=200000")
        text = tools.run(CONFIG_COMMAND, *entity, "--describe")
        require("retention.ms=3600000" in text and "max.message.bytes=200000" in text, text)
        tools.run(CONFIG_COMMAND, *entity, "--alter", "--delete-config", "retention.ms")
        text = tools.run(CONFIG_COMMAND, *entity, "--describe")
        require("retention.ms" not in text and "max.message.bytes=200000" in text, text)
    with script.test("configs: all of a topic and of a broker"):
        require("cleanup.policy=delete" in tools.run(CONFIG_COMMAND, *entity, "--describe", "--all"), "not there")
        text = tools.run(
            CONFIG_COMMAND, "--entity-type", "brokers", "--entity-name", node_ids(tools)[0], "--describe", "--all"
        )
        require("log.retention.hours" in text, "not there")
    with script.test("configs: a setting that makes no sense is refused"):
        words = [*entity, "--alter", "--add-config", "retention.ms=soon"]
        require("retention.ms" in tools.run(CONFIG_COMMAND, *words, status=1), "taken")
    for kind, setting in (
        ("groups", "consumer.session.timeout.ms=50000"),
        ("client-metrics", "interval.ms=10000"),
        ("users", "producer_byte_rate=1000000"),
        ("clients", "producer_byte_rate=1000000"),
        ("ips", "connection_creation_rate=1000"),
    ):
        name = "127.0.0.9" if kind == "ips" else "named"
        with script.test(f"configs: alter, describe, list and delete one of {kind}"):
            one, name_only = ["--entity-type", kind, "--entity-name", name], setting.partition("=")[0]
            tools.run(CONFIG_COMMAND, *one, "--alter", "--add-config", setting)
            for which in (one, one[:2]):
                text = tools.run(CONFIG_COMMAND, *which, "--describe")
                require(setting in text and name in text, text)
            tools.run(CONFIG_COMMAND, *one, "--alter", "--delete-config", name_only)
            text = tools.run(CONFIG_COMMAND, *one, "--describe")
            require(name_only not in text.replace("DEFAULT_CONFIG", ""), text)


def console(tools: Tools) -> None:
    values = [str(number) for number in range(VALUES)]
    with script.test("console producer and consumer: each line once, in order"):
        tools.topic("console")
        tools.produce("console", values)
        require_exact(tools.consume("console", VALUES), values)
        require(sum(tools.offsets("console").values()) == VALUES, "the topic has more than was produced")
    with script.test("console consumer in a group, and again from where it was"):
        words = ["--topic", "console", "--group", "console", "--from-beginning", "--timeout-ms", "60000"]
        name = f"{TOOLS}.consumer.ConsoleConsumer"
        text = tools.run(name, *words, "--max-messages", str(VALUES), status=None)
        require([each for each in values if each not in text.splitlines()] == [], "not all")
        tools.produce("console", ["after"])
        text = tools.run(name, *words, "--max-messages", "1", status=None)
        require("after" in text.splitlines() and not set(text.splitlines()) & set(values), text)


def verifiable(tools: Tools) -> None:
    with script.test("verifiable producer and consumer: each record once"):
        tools.topic("verifiable")
        text = tools.run(f"{TOOLS}.VerifiableProducer", "--topic", "verifiable", "--max-messages", "1000")
        require(len(events(text, "producer_send_success")) == 1000, "not all are acknowledged")
        words = ["--topic", "verifiable", "--group-id", "verifiable", "--max-messages", "1000", "--verbose"]
        text = tools.run(f"{TOOLS}.VerifiableConsumer", *words, "--reset-policy", "earliest")
        read = [each["value"] for each in events(text, "record_data")]
        require(sorted(read, key=int) == [str(number) for number in range(1000)], f"{len(read)} read")


def events(text: str, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [each for each in lines if each.get("name") == name]


def performance(tools: Tools) -> None:
    with script.test("producer and consumer performance, in transactions"):
        tools.topic("performance")
        words = ["--topic", "performance", "--num-records", "5000", "--record-size", "100", "--throughput", "2000"]
        transactions = ["--transactional-id", "performance", "--transaction-duration-ms", "200"]
        properties = ["--producer-props", f"bootstrap.servers={script.bootstrap()}"]
        text = tools.run(f"{TOOLS}.ProducerPerformance", *words, *transactions, *properties, at="")
        require("5000 records sent" in text, text)
        require(len(tools.consume("performance", 5000, "read_committed")) == 5000, "not all are committed")
        words = ["--topic", "performance", "--messages", "5000", "--timeout", "30000"]
        text = tools.run(f"{TOOLS}.ConsumerPerformance", *words)
        require(re.search(r", 5000, ", text), text)


def offsets(tools: Tools) -> None:
    with script.test("get-offsets: latest, earliest, of the largest timestamp; delete-records"):
        tools.topic("places")
        tools.produce("places", [str(number) for number in range(90)])
        latest = tools.offsets("places")
        require(sum(latest.values()) == 90, latest)
        require(set(tools.offsets("places", "earliest").values()) == {0}, "earliest")
        newest = tools.offsets("places", "max-timestamp")
        require(all(0 <= newest[each] < latest[each] for each in newest), newest)
        wish = {"partitions": [{"topic": "places", "partition": 1, "offset": latest[1] - 2}], "version": 1}
        file = script.scratch() / "delete.json"
        file.write_text(json.dumps(wish))
        tools.run(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(file))
        require(tools.offsets("places", "earliest")[1] == latest[1] - 2, "nothing is deleted")


def groups(tools: Tools) -> None:
    group = ["--group", "readers"]
    with script.test("consumer groups: list, describe, members, state"):
        tools.topic("read")
        tools.produce("read", [str(number) for number in range(90)])
        words = ["--topic", "read", *group, "--from-beginning", "--max-messages", "90", "--timeout-ms", "60000"]
        tools.run(f"{TOOLS}.consumer.ConsoleConsumer", *words, status=None)
        require("readers" in tools.run(GROUP_COMMAND, "--list").split(), "not listed")
        text = tools.run(GROUP_COMMAND, "--describe", *group)
        require(len(re.findall(r"^readers +read +\d +(\d+) +\1 +0 ", text, re.MULTILINE)) == PARTITIONS, text)
        require("has no active members" in tools.run(GROUP_COMMAND, "--describe", "--members", *group), "members")
        require("Empty" in tools.run(GROUP_COMMAND, "--describe", "--state", *group), "state")
    with script.test("consumer groups: list by state and by type"):
        require("readers" in tools.run(GROUP_COMMAND, "--list", "--state", "empty"), "not listed")
        require("readers" not in tools.run(GROUP_COMMAND, "--list", "--state", "stable"), "listed")
        require("readers" in tools.run(GROUP_COMMAND, "--list", "--type", "classic"), "not listed")
    with script.test("consumer groups: reset and delete offsets, delete the group"):
        reset = ["--reset-offsets", *group, "--topic", "read"]
        tools.run(GROUP_COMMAND, *reset, "--to-earliest", "--dry-run")
        require(re.search(r"^readers +read +0 +[1-9]", tools.run(GROUP_COMMAND, "--describe", *group), re.M), "dry")
        tools.run(GROUP_COMMAND, *reset, "--to-offset", "3", "--execute")
        text = tools.run(GROUP_COMMAND, "--describe", *group)
        require(len(re.findall(r"^readers +read +\d +3 ", text, re.M)) == PARTITIONS, text)
        tools.run(GROUP_COMMAND, "--delete-offsets", *group, "--topic", "read:1")
        require(not re.search(r"^readers +read +1 ", tools.run(GROUP_COMMAND, "--describe", *group), re.M), "there")
        tools.run(GROUP_COMMAND, "--delete", *group)
        require("readers" not in tools.run(GROUP_COMMAND, "--list").split(), "still listed")
    with script.test("consumer groups: one that is not there"):
        text = tools.run(GROUP_COMMAND, "--describe", "--group", "none", status=None)
        require("does not exist" in text or "GroupIdNotFoundException" in text, text)
    with script.test("groups: list"):
        tools.run(f"{TOOLS}.GroupsCommand", "--list")


@contextmanager
def open_transaction(topic: str, transactional_id: str) -> Iterator[None]:
    """Keeps a transaction open in partition 0 of a topic, and commits it at the end."""
    loop = asyncio.new_event_loop()
    producer = Producer(bootstrap_servers=script.bootstrap(), transactional_id=transactional_id)

    async def begin() -> None:
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)

    async def commit() -> None:
        await producer.commit_transaction()
        await producer.stop()

    loop.run_until_complete(begin())
    try:
        yield
    finally:
        loop.run_until_complete(commit())
        loop.close()


def transactions(tools: Tools) -> None:
    tools.topic("committed")
    with open_transaction("committed", "holder"):
        with script.test("transactions: list, describe, describe-producers"):
            text = tools.run(TRANSACTIONS, "list")
            require(re.search(r"^holder\s+\d+\s+\d+\s+Ongoing", text, re.M), text)
            text = tools.run(TRANSACTIONS, "describe", "--transactional-id", "holder")
            require("Ongoing" in text and "committed-0" in text, text)
            words = ["--topic", "committed", "--partition", "0"]
            text = tools.run(TRANSACTIONS, "describe-producers", *words)
            require(re.search(r"^\d+\s+\d+\s+-?\d+\s+\d+", text, re.M), text)
        of_partition = ["--topic", "committed", "--partition", "0"]
        for where, words in (("partition", of_partition), ("broker", ["--broker-id", node_ids(tools)[0]])):
            with script.test(f"transactions: an open one is not hanging, of a {where}"):
                text = tools.run(TRANSACTIONS, "find-hanging", *words, "--max-transaction-timeout", "0")
                require(not re.search(r"^committed", text, re.M), text)
    with script.test("console consumer: committed records, and all"):
        require([value for _, value in tools.consume("committed", 1, "read_committed")] == ["open"], "not committed")


def cluster(tools: Tools) -> None:
    with script.test("cluster id and endpoints"):
        text = tools.run(f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", script.bootstrap(), at="")
        require("Cluster ID:" in text, text)
    with script.test("broker API versions"):
        text = tools.run(f"{TOOLS}.BrokerApiVersionsCommand")
        require(text.count("-> (") == script.brokers() and "Produce(0)" in text, text[:300])
    with script.test("features: describe"):
        tools.run(f"{TOOLS}.FeatureCommand", "describe")
    with script.test("leader election: preferred"):
        tools.run(f"{TOOLS}.LeaderElectionCommand", "--election-type", "PREFERRED", "--all-topic-partitions")
    with script.test("log directories"):
        tools.run(f"{TOOLS}.LogDirsCommand", "--describe")
    with script.test("ACLs: there is no authorizer"):
        text = tools.run(f"{TOOLS}.AclCommand", "--list", status=None)
        require("SecurityDisabledException" in text or "No Authorizer" in text, text)
    with script.test("metadata quorum: describe"):
        tools.run(f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")


def reassign(tools: Tools) -> None:
    topic = tools.topic("moved")
    values = [str(number) for number in range(VALUES)]
    tools.produce(topic, values)
    ids = [int(each) for each in node_ids(tools)]
    plan = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": each, "replicas": ids[each % len(ids) :] + ids[: each % len(ids)]}
            for each in range(PARTITIONS)
        ],
    }
    file = script.scratch() / "plan.json"
    file.write_text(json.dumps(plan))
    for name, extra in (("reassign: execute and verify", []), ("reassign: with a throttle", ["--throttle", "5000000"])):
        with script.test(name):
            tools.run(REASSIGN, "--reassignment-json-file", str(file), "--execute", *extra)
            text = tools.run(REASSIGN, "--reassignment-json-file", str(file), "--verify")
            require(text.count("is complete") == PARTITIONS, text)
            require_exact(tools.consume(topic, VALUES), values)


def dump(tools: Tools, data: Path) -> None:
    """Runs only with one broker, whose files the suite can read."""
    with script.test("dump-log: the files of a broker that was stopped"):
        control.ask("stop", 0)
        try:
            logs = sorted(data.glob("*/*.log"))
            require(logs, f"no segments in {data}")
            words = ["--files", ",".join(map(str, logs)), "--deep-iteration"]
            text = tools.run("org.apache.kafka.tools.DumpLogSegments", *words, at="")
            require("isvalid: false" not in text and "Found timestamp mismatch" not in text, "invalid batches")
            require(text.count("isvalid: true") > VALUES / 10, "few batches")
            indexes = [str(each) for name in ("index", "timeindex") for each in sorted(data.glob(f"*/*.{name}"))]
            text = tools.run("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(indexes), at="")
            require("mismatch" not in text.lower() and "out of order" not in text.lower(), text[-300:])
        finally:
            control.ask("start", 0)


def main() -> None:
    lib = script.jars(script.folder() / "pom.xml", "lib", kafka_version=script.pin("kafka-tools"))
    tools = Tools(f"{lib}/*")
    for part in (topics, console, configs, verifiable, performance, offsets, groups, transactions, cluster, reassign):
        part(tools)
    if script.brokers() == 1:
        dump(tools, script.scratch() / "data")


script.run(main)
