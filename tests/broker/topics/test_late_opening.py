"""A start with very many logs: the broker listens before all logs are open, and none of them looks empty meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, fetch_request, headers_of, records_of
from broker.members import WireMember, committed
from broker.transactional import TransactionalProducer
from semel_broker.config.loading import BrokerConfig, load
from semel_broker.topics.topics import OPEN_AGAIN_S, Topics
from semel_broker.world import StopRequestedError
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k03_metadata import MetadataRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from semel_storage.disk.disk import FilesUsedUp

PARTITIONS = 8
FIRST_TOPIC = "A"
"""Its directories come before those of the internal topics."""
LATEST = -1
SEGMENT = "00000000000000000000.log"


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start opens two logs."""

    def load_with_limit(*arguments: Any, **named: Any) -> BrokerConfig:
        config = load(*arguments, **named)
        config.limits = msgspec.structs.replace(config.limits, logs_opened_at_start_max=2)
        return config

    monkeypatch.setattr("broker.harness.load", load_with_limit)


@pytest.fixture
def no_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are opened only when they are used."""
    monkeypatch.setattr(Topics, "begin_opening", lambda topics: None)


def first(producer_id: int) -> bytes:
    return batch(b"first", producer_id=producer_id, producer_epoch=0, base_sequence=0)


async def written(start_broker: StartBroker, how: str) -> Harness:
    """A broker that was stopped, and started again, with a record in each partition of topic "t"."""
    broker = await start_broker(durability="fsync")
    wire = await broker.wire()
    await wire.create_topic("t", partitions=PARTITIONS)
    producer = await wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    for index in range(PARTITIONS):
        assert (await wire.produce("t", first(producer.producer_id), partition=index)).error_code == 0
    await broker.stop()
    if how == "killed":
        (broker.directory / ".kafka_cleanshutdown").unlink()
    return await broker.start()


def unopened(broker: Harness) -> int:
    assert broker.node is not None
    return len(broker.node.broker.topics._unopened)


async def latest(wire: Wire, index: int) -> Any:
    row = ListOffsetsRequestPartition(partition_index=index, timestamp=LATEST)
    topic = ListOffsetsRequestTopic(name="t", partitions=[row])
    return (await wire.call(ListOffsetsRequest(replica_id=-1, topics=[topic]))).topics[0].partitions[0]


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_a_log_is_opened_when_it_is_used(start_broker: StartBroker, no_background: None, how: str) -> None:
    broker = await written(start_broker, how)
    wire = await broker.wire()
    assert unopened(broker) == PARTITIONS - 2
    assert (await latest(wire, 3)).offset == 1
    fetched = (await wire.call(fetch_request("t", 0, partition=4))).responses[0].partitions[0]
    assert [record.value for record in records_of(fetched.records)] == [b"first"]
    (known,) = headers_of(fetched.records)
    produced = await wire.produce("t", first(known.producer_id), partition=5)
    assert (produced.error_code, produced.base_offset) == (0, 0), "the producer's batch is known"
    assert unopened(broker) == PARTITIONS - 5
    await wire.call(MetadataRequest(topics=None))
    listed = (await wire.call(DescribeLogDirsRequest(topics=None))).results[0].topics
    assert unopened(broker) == PARTITIONS - 5, "a listing opens no log"
    sizes = {row.partition_size for topic in listed if topic.name == "t" for row in topic.partitions}
    assert sizes == {len(fetched.records)}, "and none looks empty in it"


@pytest.mark.proves("coordinators-of-late-logs")
@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_coordinators_read_their_logs_also_if_these_are_not_among_the_first(
    start_broker: StartBroker, no_background: None, how: str
) -> None:
    broker = await start_broker(durability="fsync")
    wire = await broker.wire()
    await wire.create_topic(FIRST_TOPIC, partitions=3)
    for index in range(3):
        await wire.produce(FIRST_TOPIC, batch(b"first"), partition=index)
    before = await TransactionalProducer(wire).init()
    assert (await WireMember(wire, "g").commit({0: 1}, topic=FIRST_TOPIC)) == [0]
    await broker.stop()
    if how == "killed":
        (broker.directory / ".kafka_cleanshutdown").unlink()
    await broker.start()
    wire = await broker.wire()
    assert await committed(wire, "g", 0, topic=FIRST_TOPIC) == [1]
    again = await TransactionalProducer(wire).init()
    assert (again.producer_id, again.epoch) == (before.producer_id, before.epoch + 1)


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_the_others_are_opened_in_the_background(start_broker: StartBroker, how: str) -> None:
    broker = await written(start_broker, how)
    await asyncio.sleep(1)
    assert unopened(broker) == 0
    assert broker.node is not None
    assert len(broker.node.broker.topics.partitions()) == PARTITIONS
    assert [fields["logs"] for fields in broker.log.of("other_logs_opened")] == [PARTITIONS - 2]


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_a_stop_before_all_are_open_loses_nothing(
    start_broker: StartBroker, no_background: None, how: str
) -> None:
    broker = await written(start_broker, how)
    marker = broker.directory / ".kafka_cleanshutdown"
    await broker.stop()
    assert marker.exists() is (how == "stopped"), "logs that were not recovered are recovered by the next start"
    await broker.start()
    wire = await broker.wire()
    assert [(await latest(wire, index)).offset for index in range(PARTITIONS)] == [1] * PARTITIONS


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_a_start_ends_between_two_logs_at_a_signal_to_stop(start_broker: StartBroker, how: str) -> None:
    broker = await written(start_broker, "stopped")
    await broker.stop()
    marker = broker.directory / ".kafka_cleanshutdown"
    if how == "killed":
        marker.unlink()
    answers = iter([False, True])
    broker.is_to_stop = lambda: next(answers)
    with pytest.raises(StopRequestedError):
        await broker.start()
    assert marker.exists() is (how == "stopped"), "a clean stop counts still"
    broker.is_to_stop = lambda: False
    await broker.start()
    wire = await broker.wire()
    assert [(await latest(wire, index)).offset for index in range(PARTITIONS)] == [1] * PARTITIONS


async def test_a_topic_that_is_created_anew_has_no_records_of_logs_that_were_not_open(
    start_broker: StartBroker, no_background: None
) -> None:
    broker = await written(start_broker, "stopped")
    wire = await broker.wire()
    await wire.delete_topic("t")
    await wire.create_topic("t", partitions=PARTITIONS)
    assert unopened(broker) == 0
    assert [(await latest(wire, index)).offset for index in range(PARTITIONS)] == [0] * PARTITIONS


async def test_a_log_that_cannot_be_opened_now_does_not_look_empty(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await written(start_broker, "stopped")
    assert broker.node is not None

    def no_room(files: int) -> None:
        raise FilesUsedUp("Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(broker.node.broker.world.disk, "check_room", no_room)
        wire = await broker.wire()
        left = unopened(broker)
        assert left == PARTITIONS - 2
        assert (await latest(wire, 5)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        fetched = (await wire.call(fetch_request("t", 0, partition=5))).responses[0].partitions[0]
        assert fetched.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert unopened(broker) == left
    assert broker.log.of("log_not_opened")
    await asyncio.sleep(OPEN_AGAIN_S + 1)
    assert unopened(broker) == 0
    assert (await latest(wire, 5)).offset == 1


async def test_torn_tails_are_cut_without_a_wait_of_the_loop(start_broker: StartBroker) -> None:
    """A sync on the loop's thread is an error here (`support/loop_syncs.py`)."""
    broker = await start_broker(durability="fsync")
    wire = await broker.wire()
    await wire.create_topic("t", partitions=PARTITIONS)
    for index in range(PARTITIONS):
        await wire.produce("t", batch(b"first"), partition=index)
    await broker.stop()
    (broker.directory / ".kafka_cleanshutdown").unlink()
    files = [broker.directory / f"t-{index}" / SEGMENT for index in range(PARTITIONS)]
    wholes = [file.read_bytes() for file in files]
    for file, whole in zip(files, wholes, strict=True):
        file.write_bytes(whole + whole[:70])
    await broker.start()
    await asyncio.sleep(1)
    assert len(broker.log.of("log_tail_cut")) == PARTITIONS
    assert len(broker.log.of("other_logs_opened")) == 1
    assert [file.read_bytes() for file in files] == wholes
    wire = await broker.wire()
    assert [(await wire.produce("t", batch(b"next"), partition=index)).base_offset for index in range(PARTITIONS)] == [
        1
    ] * PARTITIONS


async def test_logs_amid_a_replacement_or_a_deletion_of_segments_are_opened_at_the_start(
    start_broker: StartBroker, no_background: None
) -> None:
    """These are finished in steps, each durable before the next one."""
    broker = await written(start_broker, "stopped")
    await broker.stop()
    (broker.directory / ".kafka_cleanshutdown").unlink()
    (broker.directory / "t-5" / SEGMENT).rename(broker.directory / "t-5" / f"{SEGMENT}.swap")
    starts = broker.directory / "log-start-offset-checkpoint"
    starts.write_text("0\n1\nt 7 1\n")
    (broker.directory / "t-7" / "00000000000000000001.log").touch()
    await broker.start()
    assert unopened(broker) == PARTITIONS - 4
    assert (broker.directory / "t-5" / SEGMENT).exists()
    wire = await broker.wire()
    assert [(await latest(wire, index)).offset for index in range(PARTITIONS)] == [1] * PARTITIONS


async def test_a_damaged_directory_is_offline_and_the_others_are_opened(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="fsync")
    wire = await broker.wire()
    await wire.create_topic("t", partitions=PARTITIONS)
    for index in range(PARTITIONS):
        await wire.produce("t", batch(b"first"), partition=index)
    await broker.stop()
    _damage(broker.directory / "t-6")
    await broker.start()
    await asyncio.sleep(1)
    wire = await broker.wire()
    codes = [(await latest(wire, index)).error_code for index in range(PARTITIONS)]
    assert codes == [0] * 6 + [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert unopened(broker) == 0


def _damage(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("9\nnothing\n")
