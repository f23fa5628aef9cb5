"""EDGE: runs Kafka's command line tools and compares their output and the stored data."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from semel import Producer

from tools.strangers import control, script
from tools.strangers.children import Child

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
        """Return the output of a tool. Raises AssertionError for another exit status."""
        return script.output(self.command(name, *words, at=at), TOOL_TIMEOUT_S, status=status, stdin=stdin)

    def command(self, name: str, *words: str, at: str = "--bootstrap-server") -> list[str]:
        """Return the command line of a tool; `at` is its option for the brokers."""
        where = [at, script.bootstrap()] if at else []
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        return ["java", *options, "-cp", self.class_path, name, *where, *words]

    def topic(self, name: str) -> str:
        """Create a topic of this name."""
        words = ["--partitions", str(PARTITIONS), "--replication-factor", str(script.replicas())]
        self.run(TOPIC_COMMAND, "--create", "--topic", name, *words)
        return name

    def produce(self, topic: str, values: list[str]) -> None:
        """Produce values, with themselves as keys, by the console producer."""
        text = "".join(f"{each}|{each}\n" for each in values)
        properties = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"]
        self.run(f"{TOOLS}.ConsoleProducer", "--topic", topic, *properties, stdin=text)

    def consume(self, topic: str, count: int, isolation: str = "read_uncommitted") -> list[tuple[int, str]]:
        """Return `count` records as (partition, value), by the console consumer."""
        properties = ["--formatter-property", "print.partition=true", "--isolation-level", isolation]
        text = self.run(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000", *properties),
            status=None,
        )
        return [(int(each[1]), each[2]) for each in re.finditer(r"^Partition:(\d+)\t(.*)$", text, re.MULTILINE)]

    def offsets(self, topic: str, time: str = "latest") -> dict[int, int]:
        """Return the offsets of partitions, by GetOffsetShell."""
        text = self.run(f"{TOOLS}.GetOffsetShell", "--topic", topic, "--time", time)
        return {int(each[1]): int(each[2]) for each in re.finditer(rf"^{topic}:(\d+):(-?\d+)$", text, re.MULTILINE)}


def node_ids(tools: Tools) -> list[str]:
    """Return the ids of all brokers, from the replicas of an existing topic."""
    text = tools.run(TOPIC_COMMAND, "--describe", "--topic", "console")
    return sorted(re.findall(r"Replicas: (\S+)", text)[0].split(","))


def require(holds: object, message: object) -> None:
    if not holds:
        raise AssertionError(str(message))


def require_exact(found: list[tuple[int, str]], values: list[str]) -> None:
    """Check that each value appears once, in each partition in the order in which they were sent."""
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


class DescribedMember(NamedTuple):
    """A row of `--describe --members --verbose`. The assignments are as the tool writes them: "topic:0,1"."""

    member_id: str
    epoch: int
    assignment: str
    target_epoch: int
    target: str


class ConsumerProtocolGroups:
    """Groups of the consumer protocol (KIP-848). `members`: those of the group `new` that the tool has shown."""

    TOPIC = "read-new"
    GROUP = ("--group", "new")
    MEMBERS = 2
    WAIT_S = 180

    def __init__(self, tools: Tools) -> None:
        self.members: list[DescribedMember] = []
        self._tools = tools

    def run(self) -> None:
        with script.test("consumer protocol: console consumer in a group, and again from where it was"):
            self._tools.topic(self.TOPIC)
            values = [str(number) for number in range(90)]
            self._tools.produce(self.TOPIC, values)
            require(sorted(self._consume(90, "--from-beginning")) == sorted(values), "not each once")
            self._tools.produce(self.TOPIC, ["after"])
            require(self._consume(1) == ["after"], "not where it was")
        with script.test("consumer protocol: verifiable consumer with an assignor, static"):
            words = ["--topic", self.TOPIC, "--group-id", "verifiable-new", "--max-messages", "91", "--verbose"]
            new = ["--group-protocol", "consumer", "--group-remote-assignor", "range", "--group-instance-id", "one"]
            text = self._tools.run(f"{TOOLS}.VerifiableConsumer", *words, *new, "--reset-policy", "earliest")
            require(len(events(text, "record_data")) == 91, f"{len(events(text, 'record_data'))} read")
        members = [Child(f"member-{number}", self._console(f"member-{number}")) for number in range(self.MEMBERS)]
        try:
            self._with_members()
        finally:
            for member in members:
                member.stop()
        self._without_members()

    def _console(self, client_id: str, *words: str) -> list[str]:
        """Return the command line of a console consumer in the group."""
        name, new = f"{TOOLS}.consumer.ConsoleConsumer", ["--consumer-property", "group.protocol=consumer"]
        client = ["--consumer-property", f"client.id={client_id}"]
        return self._tools.command(name, "--topic", self.TOPIC, *self.GROUP, *new, *client, *words)

    def _consume(self, count: int, *words: str) -> list[str]:
        """Return `count` values, read in the group."""
        limits = ["--max-messages", str(count), "--timeout-ms", "60000"]
        text = script.output(self._console("reader", *limits, *words), TOOL_TIMEOUT_S, status=None)
        return [line for line in text.splitlines() if line.isdigit() or line == "after"]

    def _described(self, *words: str) -> str:
        return self._tools.run(GROUP_COMMAND, "--describe", *self.GROUP, *words)

    def _wait(self, *words: str, rows: str, count: int) -> list[tuple[str, ...]]:
        """Describe the group until the output has `count` matches of `rows`; return their groups."""
        deadline = time.monotonic() + self.WAIT_S
        while True:
            text = self._described(*words)
            found = [each.groups() for each in re.finditer(rows, text, re.MULTILINE)]
            if len(found) == count:
                return found
            require(time.monotonic() < deadline, text)

    def _with_members(self) -> None:
        with script.test("consumer protocol: list, describe, members and state of a group with members"):
            stable = rf"^new +127\.\S+ +\(\d+\) +uniform +Stable +(\d+) +\1 +{self.MEMBERS} *$"
            [[epoch]] = self._wait("--state", "--verbose", rows=stable, count=1)
            row = rf"^new +(\S+) +/127\.\S+ +member-\d +(\d) +{epoch} +({self.TOPIC}:\S+) +{epoch} +(\S+) *$"
            found = self._wait("--members", "--verbose", rows=row, count=self.MEMBERS)
            self.members = [
                DescribedMember(name, int(epoch), has, int(epoch), target) for name, _, has, target in found
            ]
            require(sorted(number for _, number, _, _ in found) == ["1", "2"], found)
            require(all(has == target for _, _, has, target in found), found)
            parts = [part for _, _, has, _ in found for part in has.rpartition(":")[2].split(",")]
            require(sorted(parts) == ["0", "1", "2"], found)
            owned = rf"^new +{self.TOPIC} +\d +(\d+) +\1 +0 +(\S+) +/127\.\S+ +member-\d *$"
            rows = self._wait(rows=owned, count=PARTITIONS)
            require({name for _, name in rows} == {each.member_id for each in self.members}, rows)
            for words in (["--type", "consumer"], ["--state", "stable"]):
                require("new" in self._tools.run(GROUP_COMMAND, "--list", *words).split(), words)
            require("new" not in self._tools.run(GROUP_COMMAND, "--list", "--type", "classic").split(), "classic")
            text = self._tools.run(f"{TOOLS}.GroupsCommand", "--list")
            require(re.search(r"^new +Consumer +consumer *$", text, re.M), text)
        with script.test("consumer protocol: a group with members keeps its offsets and is not deleted"):
            reset = ["--reset-offsets", *self.GROUP, "--topic", self.TOPIC, "--to-earliest", "--execute"]
            text = self._tools.run(GROUP_COMMAND, *reset, status=None)
            require("if the group 'new' is inactive, but the current state is Stable" in text, text)
            text = self._tools.run(GROUP_COMMAND, "--delete-offsets", *self.GROUP, "--topic", self.TOPIC, status=None)
            require(text.count("GroupSubscribedToTopicException") == PARTITIONS, text)
            text = self._tools.run(GROUP_COMMAND, "--delete", *self.GROUP, status=None)
            require("GroupNotEmptyException" in text, text)
            committed = rf"^new +{self.TOPIC} +\d +(\d+) +\1 +0 +\S+ +/"
            require(len(re.findall(committed, self._described(), re.MULTILINE)) == PARTITIONS, "offsets")

    def _without_members(self) -> None:
        with script.test("consumer protocol: reset and delete offsets, delete the group"):
            self._wait("--state", rows=r"^new .* Empty +0 *$", count=1)
            require("has no active members" in self._described("--members"), "members")
            reset = ["--reset-offsets", *self.GROUP, "--topic", self.TOPIC]
            self._tools.run(GROUP_COMMAND, *reset, "--to-earliest", "--dry-run")
            require(not re.search(rf"^new +{self.TOPIC} +\d +0 ", self._described(), re.M), "dry")
            self._tools.run(GROUP_COMMAND, *reset, "--to-offset", "3", "--execute")
            text = self._described()
            require(len(re.findall(rf"^new +{self.TOPIC} +\d +3 ", text, re.M)) == PARTITIONS, text)
            require(len(self._consume(82)) == 82, "not from there on")
            self._tools.run(GROUP_COMMAND, "--delete-offsets", *self.GROUP, "--topic", f"{self.TOPIC}:1")
            found = re.findall(rf"^new +{self.TOPIC} +(\d) ", self._described(), re.M)
            require(sorted(found) == ["0", "2"], found)
            self._tools.run(GROUP_COMMAND, "--delete", *self.GROUP)
            require("new" not in self._tools.run(GROUP_COMMAND, "--list").split(), "still listed")

    def require_records(self, text: str) -> None:
        """Check the output of `dump-log --offsets-decoder`: it has what was described, and then delete all of it."""
        records = [
            (json.loads(key), None if value == "<DELETE>" else json.loads(value)["data"])
            for key, value in re.findall(r' key: (\{"type":.*\}) payload: (.*)$', text, re.MULTILINE)
        ]
        ours = [(int(key["type"]), key["data"], data) for key, data in records if key["data"].get("groupId") == "new"]
        for kind in GroupRecord:
            require(any(each == kind and data for each, _, data in ours), f"there is no {kind.name}")
        epochs = [data["epoch"] for kind, _, data in ours if kind == GroupRecord.GROUP_METADATA and data]
        require(epochs == sorted(epochs), epochs)
        for member in self.members:
            own = [(kind, data) for kind, key, data in ours if key.get("memberId") == member.member_id and data]
            subscribed = [data["subscribedTopicNames"] for kind, data in own if kind == GroupRecord.MEMBER_METADATA]
            require(subscribed and all(topics == [self.TOPIC] for topics in subscribed), subscribed)
            targets = [partitions(data["topicPartitions"]) for kind, data in own if kind == GroupRecord.TARGET_MEMBER]
            require(member.target.rpartition(":")[2] in targets, targets)
            current = [
                (data["memberEpoch"], partitions(data["assignedPartitions"]))
                for kind, data in own
                if kind == GroupRecord.CURRENT_ASSIGNMENT
            ]
            require((member.epoch, member.assignment.rpartition(":")[2]) in current, current)
        require(self.members, "no members were described")
        last = {(kind, json.dumps(key)): data for kind, key, data in ours}
        left = [key for key, data in last.items() if data is not None]
        require(not left, f"not deleted: {left}")


class GroupRecord(IntEnum):
    """The types of the records of a group of the consumer protocol, but for those that not every broker writes."""

    GROUP_METADATA = 3
    MEMBER_METADATA = 5
    TARGET_METADATA = 6
    TARGET_MEMBER = 7
    CURRENT_ASSIGNMENT = 8


def partitions(rows: list[dict[str, Any]]) -> str:
    """Format the partitions of the only topic of a record as `kafka-consumer-groups.sh` does."""
    return ",".join(str(each) for row in rows for each in sorted(row["partitions"]))


@contextmanager
def open_transaction(topic: str, transactional_id: str) -> Iterator[None]:
    """Keep a transaction open in partition 0 of a topic, and commit it at the end."""
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


def dump(tools: Tools, data: Path, groups: ConsumerProtocolGroups) -> None:
    """Run only with one broker, whose files the suite can read."""
    control.ask("stop", 0)
    try:
        with script.test("dump-log: the files of a broker that was stopped"):
            logs = sorted(data.glob("*/*.log"))
            require(logs, f"no segments in {data}")
            words = ["--files", ",".join(map(str, logs)), "--deep-iteration"]
            text = tools.run("org.apache.kafka.tools.DumpLogSegments", *words, at="")
            require("isvalid: false" not in text and "Found timestamp mismatch" not in text, "invalid batches")
            require(text.count("isvalid: true") > VALUES / 10, "few batches")
            indexes = [str(each) for name in ("index", "timeindex") for each in sorted(data.glob(f"*/*.{name}"))]
            text = tools.run("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(indexes), at="")
            require("mismatch" not in text.lower() and "out of order" not in text.lower(), text[-300:])
        with script.test("dump-log: the records of a group of the consumer protocol"):
            logs = sorted(data.glob("__consumer_offsets-*/*.log"))
            words = ["--files", ",".join(map(str, logs)), "--offsets-decoder"]
            groups.require_records(tools.run("org.apache.kafka.tools.DumpLogSegments", *words, at=""))
    finally:
        control.ask("start", 0)


def main() -> None:
    lib = script.jars(script.folder() / "pom.xml", "lib", kafka_version=script.pin("kafka-tools"))
    tools = Tools(f"{lib}/*")
    for part in (topics, console, configs, verifiable, performance, offsets, groups):
        part(tools)
    consumer_protocol = ConsumerProtocolGroups(tools)
    consumer_protocol.run()
    for part in (transactions, cluster, reassign):
        part(tools)
    if script.brokers() == 1:
        dump(tools, script.scratch() / "data", consumer_protocol)


script.run(main)
