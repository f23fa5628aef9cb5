"""`semel txn`, `topic stuck` and `group stuck` against a broker, with the transactions of a foreign client."""

from __future__ import annotations

import time
import uuid
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from semel.cli.main import main
from semel_broker.node import Node
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.batch import read_header
from semel_protocol.records import Record, build_batch
from support.against import OutsideBroker

WAIT_S = 10


class TxnShell:
    def __init__(self, broker: EphemeralBroker) -> None:
        self.environment = {"SEMEL_BOOTSTRAP_SERVER": broker.bootstrap_servers}

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env=self.environment)

    def __call__(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    def refused(self, *arguments: str) -> str:
        """Run a command that has to end with status 1. Returns its output."""
        return self._ends(1, *arguments)

    def trouble(self, *arguments: str) -> str:
        """Run a command that has to report a problem by its exit status. Returns its output."""
        return self._ends(3, *arguments)

    def _ends(self, status: int, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.exit_code == status, (done.output, done.exception)
        return done.output


@pytest.fixture
def semel(semel_broker: EphemeralBroker) -> TxnShell:
    semel_broker.create_topic("orders")
    return TxnShell(semel_broker)


def started(broker: EphemeralBroker, name: str, **settings: object) -> Producer:
    """A producer whose transaction of two records is open."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    at = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "log_level": 0}
    producer = Producer({**at, "transactional.id": name, "client.id": "web-1", **given})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    produce(producer)
    return producer


NO_LEDGER = "keeps no fence ledger: it is Apache Kafka or another Kafka."


def is_ledger_kept(broker: EphemeralBroker | OutsideBroker) -> bool:
    return isinstance(broker, EphemeralBroker)


def produce(producer: Producer) -> None:
    refused: list[object] = []
    for value in (b"one", b"two"):
        producer.produce("orders", value, partition=0, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(WAIT_S) == 0
    assert refused == [None, None]


def hang(broker: EphemeralBroker, producer_id: int = 4242) -> None:
    """A record of a transaction that no coordinator knows, as a broker without verification would take it."""
    records = [Record(0, int(time.time() * 1000), None, b"lost")]
    batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)

    if isinstance(broker, OutsideBroker):
        broker.hang("orders", batch)
        return

    async def append(node: Node) -> None:
        node.broker.topics.partition("orders", 0).append(batch, header=read_header(batch))

    broker.call(append)


def wait_for_markers(semel: TxnShell, name: str) -> None:
    """Return when the last transaction is complete: Kafka answers a commit before the markers are written."""
    until = time.monotonic() + WAIT_S
    while ": Prepare" in semel("txn", "describe", name):
        assert time.monotonic() < until, "the markers are not written"


def committed_values(broker: EphemeralBroker, count: int) -> list[bytes | None]:
    """The next `count` records that a reader of committed records gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": str(uuid.uuid4()),
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = consumer.consume(count, WAIT_S)
    consumer.close()
    return [record.value() for record in found]


def test_the_help_names_the_commands(semel: TxnShell) -> None:
    out = semel("txn", "--help")
    for command in ("abort", "describe", "hanging", "list", "timeline", "why"):
        assert command in out
        assert "Usage" in semel("txn", command, "--help")
    assert "txn" in semel("--help")


def test_list_shows_ids_with_their_states(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    shop, till = started(semel_broker, "shop"), started(semel_broker, "till")
    till.commit_transaction(WAIT_S)
    wait_for_markers(semel, "till")
    rows = dict(line.split()[:2] for line in semel("txn", "list").splitlines() if "0" in line)
    assert rows["shop"] == "Ongoing"
    assert rows["till"] == "CompleteCommit"
    assert semel("txn", "list", "--open", "-q").split() == ["shop"]
    completed = semel("txn", "list", "--state", "CompleteCommit", "-q").split()
    assert "till" in completed
    assert "shop" not in completed
    assert semel("txn", "list", "--older-than", "3600", "-q") == ""
    assert semel("txn", "list", "--older-than", "0", "-q").split() == ["shop"]
    assert semel.run("txn", "list", "--open", "--state", "Empty").exit_code == 2
    shop.abort_transaction(WAIT_S)


def test_describe_shows_owner_partitions_and_the_fence_ledger(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    started(semel_broker, "shop")
    second = started(semel_broker, "shop", client_id="web-2")
    out = semel("txn", "describe", "shop")
    assert "shop: Ongoing" in out
    assert "orders: 0" in out
    if is_ledger_kept(semel_broker):
        assert "client 'web-2' at 127.0.0.1" in out
        assert "new instance" in out
    else:
        assert "initialised by  not known" in out
        assert NO_LEDGER in " ".join(out.split())
    second.abort_transaction(WAIT_S)
    assert "TransactionalIdNotFound" in semel.refused("txn", "describe", "ship")


def test_why_names_the_fencing_and_the_fenced_producer(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    first = started(semel_broker, "shop")
    second = started(semel_broker, "shop", client_id="web-2")
    with pytest.raises(KafkaException):
        first.commit_transaction(WAIT_S)
    out = semel("txn", "why", "shop")
    assert "shop: Ongoing" in out
    assert "It waits for its producer to commit or abort" in out
    assert "orders-0: from offset 3" in out, "two records and the abort marker of the first instance come before"
    if is_ledger_kept(semel_broker):
        assert "a new producer with this transactional.id was initialised (by client 'web-2' at 127.0.0.1" in out
        assert "ProducerFenced: stop it" in out
    else:
        assert NO_LEDGER in out
        assert "with an older epoch gets ProducerFenced" in out
    second.commit_transaction(WAIT_S)
    wait_for_markers(semel, "shop")
    assert "Its last transaction was committed" in semel("txn", "why", "shop")


def test_why_explains_a_timeout(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    producer = started(semel_broker, "shop", transaction_timeout_ms=1000)
    until = time.monotonic() + WAIT_S
    while "CompleteAbort" not in (out := semel("txn", "why", "shop")) and time.monotonic() < until:
        time.sleep(0.1)
    assert "Its last transaction was aborted" in out
    if is_ledger_kept(semel_broker):
        assert "open for longer than its transaction.timeout.ms" in out
        assert "allowed were 1000 ms" in out
    else:
        assert NO_LEDGER in out
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)


def test_why_of_an_unknown_id_names_similar_ids(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    started(semel_broker, "shop-1").commit_transaction(WAIT_S)
    out = semel.refused("txn", "why", "shop-2")
    assert "no coordinator has this transactional id" in out
    assert "shop-1" in out


def test_a_stuck_topic_names_the_transaction_that_holds_it(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    assert "orders is not stuck: all of 1 partition" in semel("topic", "stuck", "orders")
    shop, till = started(semel_broker, "shop"), started(semel_broker, "till")
    till.commit_transaction(WAIT_S)
    out = semel.trouble("topic", "stuck", "orders:0")
    assert "last stable offset 0, high watermark 5: 5 offsets held back" in out
    assert "transactional id shop (producer" in out
    assert ("client 'web-1' at 127.0.0.1" in out) == is_ledger_kept(semel_broker)
    assert "otherwise the coordinator aborts it at" in out
    assert "semel txn abort shop" in out
    assert "till" not in out
    shop.commit_transaction(WAIT_S)
    wait_for_markers(semel, "shop")
    assert "is not stuck" in semel("topic", "stuck", "orders")
    assert "no partition 7" in semel.refused("topic", "stuck", "orders:7")
    assert "There is no topic 'order'. Did you mean 'orders'?" in semel.refused("topic", "stuck", "order")


def test_abort_fences_the_producer_and_hides_its_records(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    producer = started(semel_broker, "shop")
    asked = CliRunner().invoke(main, ["txn", "abort", "shop"], env=semel.environment, input="n\n")
    assert "Abort the transaction of shop, open for" in asked.output
    assert asked.exit_code == 1
    assert "shop: aborted" in semel("txn", "abort", "shop", "-y")
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)
    assert "is not stuck" in semel("topic", "stuck", "orders")
    assert ("an operator ended it" if is_ledger_kept(semel_broker) else NO_LEDGER) in semel("txn", "why", "shop")
    after = started(semel_broker, "shop")
    after.commit_transaction(WAIT_S)
    assert committed_values(semel_broker, 2) == [b"one", b"two"], "those of the second producer"


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_abort_is_refused_without_an_open_transaction(
    semel_broker: EphemeralBroker, semel: TxnShell, outcome: str
) -> None:
    producer = started(semel_broker, "shop")
    getattr(producer, f"{outcome}_transaction")(WAIT_S)
    wait_for_markers(semel, "shop")
    assert "has no transaction open" in semel.refused("txn", "abort", "shop", "-y")
    assert "TransactionalIdNotFound" in semel.refused("txn", "abort", "nosuch", "-y")
    assert semel.run("txn", "abort").exit_code == 2
    assert semel.run("txn", "abort", "--partition", "orders:0").exit_code == 2


def test_a_hanging_transaction_is_found_explained_and_ended(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    assert "No hanging transaction in 1 partition" in semel("txn", "hanging", "orders")
    shop = started(semel_broker, "shop")
    shop.commit_transaction(WAIT_S)
    wait_for_markers(semel, "shop")
    hang(semel_broker)
    assert "4242" in semel.trouble("txn", "hanging", "orders")
    assert "4242" in semel.trouble("txn", "hanging")
    stuck = semel.trouble("topic", "stuck", "orders")
    assert "never by itself: no coordinator has a transaction that is open in this partition" in stuck
    command = "txn abort --partition orders:0 --producer-id 4242"
    assert command in stuck
    assert "the transaction of producer 4242 is aborted" in semel(*command.split(), "-y")
    assert "No hanging transaction" in semel("txn", "hanging", "orders")
    assert "is not stuck" in semel("topic", "stuck", "orders")
    assert committed_values(semel_broker, 2) == [b"one", b"two"]
    assert "no transaction open" in semel.refused(*command.split(), "-y")


def test_a_transaction_of_a_coordinator_is_not_aborted_as_hanging(
    semel_broker: EphemeralBroker, semel: TxnShell
) -> None:
    producer = started(semel_broker, "shop")
    producer_id = semel("txn", "list").split("Ongoing")[1].split()[2]
    out = semel.refused("txn", "abort", "--partition", "orders:0", "--producer-id", producer_id, "-y")
    assert "is not hanging" in out
    assert "semel txn why shop" in out
    assert "No hanging transaction" in semel("txn", "hanging")
    producer.commit_transaction(WAIT_S)


def test_the_timeline_shows_committed_aborted_open_and_the_stable_offset(
    semel_broker: EphemeralBroker, semel: TxnShell, tmp_path: Path
) -> None:
    shop, till = started(semel_broker, "shop"), started(semel_broker, "till")
    till.abort_transaction(WAIT_S)
    shop.commit_transaction(WAIT_S)
    wait_for_markers(semel, "till")
    shop.begin_transaction()
    produce(shop)
    out = semel("txn", "timeline", "orders", "--list")
    assert "orders-0  offsets 0 to 8  1 committed  1 aborted  1 open" in out
    assert "6, 2 offsets held back" in out
    lanes = {line.split()[0]: line for line in out.splitlines()[:5] if line.startswith(("  shop", "  till"))}
    assert "C" in lanes["shop"]
    assert "░" in lanes["shop"]
    assert "A" in lanes["till"]
    assert "offsets 2 to 5" in semel("txn", "timeline", "orders:0", "--from-offset", "2", "--last", "3")
    picture = tmp_path / "orders.svg"
    assert "written" in semel("txn", "timeline", "orders", "--svg", str(picture))
    text = " ".join(ElementTree.fromstring(picture.read_text()).itertext())
    assert "last stable offset 6: 2 offsets held back" in text
    assert "TOPIC:PARTITION" in semel.run("txn", "timeline", "orders:x").output
    shop.abort_transaction(WAIT_S)


def test_a_stuck_group_names_the_transaction_that_holds_it_back(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    assert "there is no such group" in semel.refused("group", "stuck", "kitchen", "--wait", "0")
    committed = started(semel_broker, "shop")
    committed.commit_transaction(WAIT_S)
    wait_for_markers(semel, "shop")
    at = {"bootstrap.servers": semel_broker.bootstrap_servers, "group.id": "kitchen"}
    consumer = Consumer({**at, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(2, WAIT_S)) == 2
    consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
    assert "at the end, nothing to read" in semel("group", "stuck", "kitchen", "--wait", "0")
    open_one = started(semel_broker, "till")
    out = semel.trouble("group", "stuck", "kitchen", "--wait", "0.1")
    assert "committed 3 of 5: a read_committed consumer cannot read further" in out
    assert "transactional id till" in out
    open_one.send_offsets_to_transaction([TopicPartition("orders", 0, 5)], consumer.consumer_group_metadata(), WAIT_S)
    out = semel.trouble("group", "stuck", "kitchen", "--wait", "0")
    assert "Offsets committed in a transaction take effect when it ends" in out
    open_one.commit_transaction(WAIT_S)
    wait_for_markers(semel, "till")
    out = semel("group", "stuck", "kitchen", "--wait", "0")
    assert "committed 5 of 6: at the end, only markers and aborted records follow" in out
    started(semel_broker, "till").abort_transaction(WAIT_S)
    wait_for_markers(semel, "till")
    assert "at the end, only markers and aborted" in semel("group", "stuck", "kitchen", "--wait", "0")
    started(semel_broker, "till").commit_transaction(WAIT_S)
    wait_for_markers(semel, "till")
    assert "committed 5 of 12: 7 offsets can be read, and none was committed" in semel.trouble(
        "group", "stuck", "kitchen", "--wait", "0"
    )
    consumer.close()


def test_a_group_with_only_pending_offsets_names_their_transaction(
    semel_broker: EphemeralBroker, semel: TxnShell
) -> None:
    producer = started(semel_broker, "till")
    reader = Consumer({"bootstrap.servers": semel_broker.bootstrap_servers, "group.id": "fresh"})
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], reader.consumer_group_metadata(), WAIT_S)
    out = semel.trouble("group", "stuck", "fresh", "--wait", "0")
    assert "fresh  Empty, 0 members" in out
    assert "transactional id till" in out
    producer.commit_transaction(WAIT_S)
    wait_for_markers(semel, "till")
    assert "committed 1 of 3" in semel.trouble("group", "stuck", "fresh", "--wait", "0")
    reader.close()


def test_the_dump_reads_like_the_ones_that_show_fencing(
    semel_broker: EphemeralBroker, semel: TxnShell, tmp_path: Path
) -> None:
    """Two producers of one transactional id: the second one aborts the first one's open transaction, then commits
    its own.
    """
    started(semel_broker, "anyValue")
    second = started(semel_broker, "anyValue")
    second.commit_transaction(WAIT_S)
    semel_broker.stop()
    out = semel("log", "dump", str(semel_broker.save(tmp_path / "data") / "orders-0"))
    lines = [
        dict(zip((w := line[2:].split())[::2], w[1::2], strict=False)) for line in out.splitlines() if line[:1] == "|"
    ]
    seen = [
        (row["offset:"], row.get("payload:"), row.get("endTxnMarker:"), int(row["producerEpoch:"])) for row in lines
    ]
    epoch = seen[0][3]
    assert seen == [
        ("0", "one", None, epoch),
        ("1", "two", None, epoch),
        ("2", None, "ABORT", epoch + 1),
        ("3", "one", None, epoch + 2),
        ("4", "two", None, epoch + 2),
        ("5", None, "COMMIT", epoch + 2),
    ]
    assert len({row["producerId:"] for row in lines}) == 1
    assert all("coordinatorEpoch:" in row for row in lines if "endTxnMarker:" in row)
