"""Topics named by id (KIP-516): no record and no offset of a deleted topic reaches its successor."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import Any

import pytest
from broker.authorization.test_rules import allow, guarded
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, records_of
from broker.transactional import TransactionalProducer
from semel_broker.handlers import k00_appends
from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
)
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.schema import ZERO_UUID

ABSENT = b"\x01" * 16
BY_ID = [13, 15, 16, 17, 18]


def topic_id(harness: Harness, name: str = "t") -> bytes:
    assert harness.node is not None
    return harness.node.broker.topics.required(name).topic_id


def by_id(*asked: tuple[bytes, int], session_id: int = 0, epoch: int = -1, **fields: Any) -> FetchRequest:
    """A fetch of partition 0 of each topic (id, offset)."""
    return FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=1,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequestTopic(
                topic_id=each,
                partitions=[FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
            for each, offset in asked
        ],
        **fields,
    )


def rows(response: Any) -> dict[bytes, tuple[int, list[bytes | None]]]:
    """(error code, values) by topic id."""
    return {
        topic.topic_id: (row.error_code, [record.value for record in records_of(row.records)])
        for topic in response.responses
        for row in topic.partitions
    }


async def delete(wire: Wire, name: str) -> None:
    answer = await wire.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
    assert answer.responses[0].error_code == 0


async def created_anew(harness: Harness, wire: Wire) -> tuple[bytes, bytes]:
    """The topic `t` with the record "old", deleted and created again with "new": both ids."""
    await wire.create_topic("t")
    await wire.produce("t", batch(b"old"))
    old = topic_id(harness)
    await delete(wire, "t")
    await wire.create_topic("t")
    await wire.produce("t", batch(b"new"))
    return old, topic_id(harness)


# --- Fetch


@pytest.mark.parametrize("version", BY_ID)
async def test_a_fetch_by_id_reads_the_topic_of_that_id(broker: Harness, wire: Wire, version: int) -> None:
    for name in ("t", "u"):
        await wire.create_topic(name)
        await wire.produce(name, batch(name.encode()))
    t, u = topic_id(broker, "t"), topic_id(broker, "u")
    assert rows(await wire.call(by_id((u, 0), (t, 0)), version)) == {u: (0, [b"u"]), t: (0, [b"t"])}


@pytest.mark.parametrize("version", BY_ID)
async def test_an_id_that_no_topic_has_is_unknown_and_others_are_answered(
    broker: Harness, wire: Wire, version: int
) -> None:
    await wire.create_topic("t")
    await wire.produce("t", batch(b"v"))
    answer = rows(await wire.call(by_id((ABSENT, 0), (topic_id(broker), 0), (ZERO_UUID, 0)), version))
    assert answer[topic_id(broker)] == (0, [b"v"])
    assert answer[ABSENT] == answer[ZERO_UUID] == (ErrorCode.UNKNOWN_TOPIC_ID, [])


async def test_a_fetch_by_the_id_of_a_deleted_topic_gets_nothing_of_its_successor(broker: Harness, wire: Wire) -> None:
    old, new = await created_anew(broker, wire)
    assert old != new
    expected = {old: (ErrorCode.UNKNOWN_TOPIC_ID, []), new: (0, [b"new"])}
    assert rows(await wire.call(by_id((old, 0), (new, 0)), 17)) == expected
    await broker.restart()
    wire = await broker.wire()
    assert rows(await wire.call(by_id((old, 0), (new, 0)), 17)) == expected


async def test_a_fetch_that_waits_while_its_topic_is_created_anew_gets_no_record_of_the_new_one(
    broker: Harness, wire: Wire
) -> None:
    await wire.create_topic("t")
    old = topic_id(broker)
    wire.send(by_id((old, 0), max_wait_ms=60_000), 17)
    other = await broker.wire()
    await delete(other, "t")
    await other.create_topic("t")
    await other.produce("t", batch(b"new"))
    assert rows(await wire.receive()) == {old: (ErrorCode.UNKNOWN_TOPIC_ID, [])}


async def test_a_session_by_ids_forgets_and_refuses_by_id(broker: Harness, wire: Wire) -> None:
    for name in ("t", "u"):
        await wire.create_topic(name)
    t, u = topic_id(broker, "t"), topic_id(broker, "u")
    session = (await wire.call(by_id((t, 0), (u, 0), epoch=0), 17)).session_id
    assert session
    await wire.produce("u", batch(b"u"))
    assert rows(await wire.call(by_id(session_id=session, epoch=1), 17)) == {u: (0, [b"u"])}
    forgotten = [FetchRequestForgottenTopic(topic_id=u, partitions=[0])]
    answer = await wire.call(by_id(session_id=session, epoch=2, forgotten_topics_data=forgotten), 17)
    assert rows(answer) == {}
    await delete(wire, "t")
    await wire.create_topic("t")
    await wire.produce("t", batch(b"new"))
    assert rows(await wire.call(by_id(session_id=session, epoch=3), 17)) == {t: (ErrorCode.UNKNOWN_TOPIC_ID, [])}
    new = topic_id(broker, "t")
    asked = by_id((new, 0), session_id=session, epoch=4)
    assert rows(await wire.call(asked, 17))[new] == (0, [b"new"])


async def test_a_session_does_not_change_between_names_and_ids(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    by_ids = (await wire.call(by_id((topic_id(broker), 0), epoch=0), 13)).session_id
    assert (await wire.call(by_id(session_id=by_ids, epoch=1), 12)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    named = by_id((ZERO_UUID, 0), epoch=0)
    named.topics[0].topic = "t"
    by_names = (await wire.call(named, 12)).session_id
    answer = await wire.call(by_id(session_id=by_names, epoch=1), 13)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_rights_are_those_on_the_name_behind_the_id(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    t = topic_id(harness)
    assert rows(await wire.call(by_id((t, 0), (ABSENT, 0)), 17)) == {
        t: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, []),
        ABSENT: (ErrorCode.UNKNOWN_TOPIC_ID, []),
    }
    await allow(harness, Operation.READ, ResourceType.TOPIC, "t")
    assert rows(await wire.call(by_id((t, 0)), 17)) == {t: (0, [])}


@pytest.mark.parametrize("version", [15, 17])
async def test_a_replica_is_refused_also_by_its_replica_state(broker: Harness, wire: Wire, version: int) -> None:
    await wire.create_topic("t")
    request = by_id((topic_id(broker), 0), replica_state=FetchRequestReplicaState(replica_id=1, replica_epoch=1))
    assert (await wire.call(request, version)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# --- the log and the leader that a fetch finds


async def in_epochs(broker: Harness, wire: Wire) -> None:
    """Offsets 0 to 2 have epoch 0, 3 and 4 have epoch 2."""
    await wire.create_topic("t")
    assert broker.node is not None
    partition = broker.node.broker.topics.partition("t", 0)
    for epoch, count in ((0, 3), (2, 2)):
        partition.leader_epoch = epoch
        for _ in range(count):
            await wire.produce("t", batch(b"x"))


@pytest.mark.parametrize(
    ("offset", "last_epoch", "divergence"),
    [(3, 0, None), (4, 0, (0, 3)), (3, 1, (0, 3)), (5, 2, None), (6, 2, (2, 5)), (4, -1, None)],
)
@pytest.mark.parametrize("version", [12, 13, 17])
async def test_a_consumer_gets_the_offset_at_which_its_log_diverges(
    broker: Harness, wire: Wire, version: int, offset: int, last_epoch: int, divergence: tuple[int, int] | None
) -> None:
    await in_epochs(broker, wire)
    request = by_id((topic_id(broker), offset), max_wait_ms=100)
    request.topics[0].topic = "t"
    request.topics[0].partitions[0].last_fetched_epoch = last_epoch
    (topic,) = (await wire.call(request, version)).responses
    (row,) = topic.partitions
    found = (row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
    assert (row.error_code, found) == (0, divergence or (-1, -1))
    assert bool(row.records) is (divergence is None and offset < 5)


async def test_an_epoch_that_the_log_does_not_know_is_out_of_range(broker: Harness, wire: Wire) -> None:
    await in_epochs(broker, wire)
    request = by_id((topic_id(broker), 4))
    request.topics[0].partitions[0].last_fetched_epoch = 3
    assert rows(await wire.call(request, 13)) == {topic_id(broker): (ErrorCode.OFFSET_OUT_OF_RANGE, [])}


async def test_a_divergence_is_news_in_a_session(broker: Harness, wire: Wire) -> None:
    await in_epochs(broker, wire)
    request = by_id((topic_id(broker), 4), epoch=0)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    session = (await wire.call(request, 17)).session_id
    ((topic,),) = [(await wire.call(by_id(session_id=session, epoch=1), 17)).responses]
    assert topic.partitions[0].diverging_epoch.end_offset == 3


@pytest.mark.parametrize("version", [13, 15, 16, 17])
async def test_a_fenced_client_gets_the_leader_with_its_address_from_version_16_on(
    broker: Harness, wire: Wire, version: int
) -> None:
    await in_epochs(broker, wire)
    request = by_id((topic_id(broker), 0))
    request.topics[0].partitions[0].current_leader_epoch = 1
    answer = await wire.call(request, version)
    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
    leader = (row.current_leader.leader_id, row.current_leader.leader_epoch)
    found = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
    if version < 16:
        assert (leader, found) == ((-1, -1), [])
    else:
        assert (leader, found) == ((0, 2), [(0, "127.0.0.1", broker.port)])


# --- Produce


def produce(asked: bytes, *, acks: int = -1, partition: int = 0) -> ProduceRequest:
    row = ProduceRequestPartition(index=partition, records=batch(b"sent"))
    topics = [ProduceRequestTopic(topic_id=asked, partition_data=[row])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def produced(response: Any) -> tuple[bytes, int, int]:
    (topic,) = response.responses
    (row,) = topic.partition_responses
    return topic.topic_id, row.error_code, row.base_offset


@pytest.mark.proves("record-for-a-deleted-topic")
async def test_a_batch_for_the_id_of_a_deleted_topic_is_not_appended_to_its_successor(
    broker: Harness, wire: Wire
) -> None:
    old, new = await created_anew(broker, wire)
    assert produced(await wire.call(produce(old), 13)) == (old, ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert produced(await wire.call(produce(new), 13)) == (new, 0, 1)
    assert await wire.values("t") == [b"new", b"sent"]


@pytest.mark.proves("record-for-a-deleted-topic")
async def test_a_batch_that_waits_while_its_topic_is_created_anew_is_refused(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is deleted and created anew between the check of the records and the append."""
    broker = await start_broker(durability="os")
    wire, other = await broker.wire(), await broker.wire()
    await wire.create_topic("t")
    old = topic_id(broker)
    inspect = k00_appends.inspect

    async def meanwhile(*args: Any, **options: Any) -> Any:
        inspections = await inspect(*args, **options)
        await get_running_loop().create_task(create_anew())
        return inspections

    async def create_anew() -> None:
        await delete(other, "t")
        await other.create_topic("t")

    monkeypatch.setattr(k00_appends, "inspect", meanwhile)
    monkeypatch.setattr(k00_appends, "BYTES_AT_ONCE_MAX", 0)
    assert produced(await wire.call(produce(old), 13)) == (old, ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert await wire.values("t") == []


async def test_an_unknown_id_without_an_answer_closes_the_connection(broker: Harness, wire: Wire) -> None:
    wire.forget(wire.send(produce(ABSENT, acks=0), 13))
    assert await wire.closed_by_peer()


async def test_a_recompressed_batch_is_appended_by_id(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t", compression_type="gzip")
    assert produced(await wire.call(produce(topic_id(broker)), 13)) == (topic_id(broker), 0, 0)
    assert await wire.values("t") == [b"sent"]


@pytest.mark.parametrize("acks", [-1, 0])
async def test_rights_to_write_are_those_on_the_name_behind_the_id(start_broker: StartBroker, acks: int) -> None:
    harness = await guarded(start_broker)
    wire = await harness.wire()
    t = topic_id(harness)
    wire.send(produce(t, acks=acks), 13)
    if acks:
        assert produced(await wire.receive()) == (t, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
        assert produced(await wire.call(produce(ABSENT), 13)) == (ABSENT, ErrorCode.UNKNOWN_TOPIC_ID, -1)
    else:
        assert await wire.closed_by_peer()
    await allow(harness, Operation.WRITE, ResourceType.TOPIC, "t")
    assert produced(await (await harness.wire()).call(produce(t), 13)) == (t, 0, 0)


async def test_without_transaction_version_2_batches_name_topics(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", transaction_version="1")
    wire = await broker.wire()
    wire.send(produce(ABSENT), 13)
    assert await wire.closed_by_peer()


# --- OffsetCommit and OffsetFetch


async def commit(wire: Wire, offsets: dict[bytes, int], partition: int = 0) -> dict[bytes, int]:
    """Commit for the group "g"; returns the error codes by id."""
    topics = [
        OffsetCommitRequestTopic(
            topic_id=each,
            partitions=[
                OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="m")
            ],
        )
        for each, offset in offsets.items()
    ]
    answer = await wire.call(OffsetCommitRequest(group_id="g", member_id="", topics=topics), 10)
    return {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}


async def committed(wire: Wire, *ids: bytes) -> dict[bytes, tuple[int, int]]:
    """(error code, offset) by id; without ids of all topics of the group."""
    rows = [OffsetFetchRequestTopic(topic_id=each, partition_indexes=[0]) for each in ids]
    group = OffsetFetchRequestGroup(group_id="g", topics=rows or None)
    (found,) = (await wire.call(OffsetFetchRequest(groups=[group]), 10)).groups
    assert found.error_code == 0
    return {
        topic.topic_id: (row.error_code, row.committed_offset) for topic in found.topics for row in topic.partitions
    }


async def test_offsets_are_committed_and_read_by_id(broker: Harness, wire: Wire) -> None:
    for name in ("t", "u"):
        await wire.create_topic(name)
    t, u = topic_id(broker, "t"), topic_id(broker, "u")
    expected = {t: ErrorCode.NONE, u: ErrorCode.NONE, ABSENT: ErrorCode.UNKNOWN_TOPIC_ID}
    assert await commit(wire, {t: 7, u: 8, ABSENT: 9}) == expected
    assert await commit(wire, {t: 7}, partition=5) == {t: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await committed(wire, u, ABSENT, t) == {u: (0, 8), ABSENT: (ErrorCode.UNKNOWN_TOPIC_ID, -1), t: (0, 7)}
    assert await committed(wire) == {t: (0, 7), u: (0, 8)}


@pytest.mark.proves("committed-offset-of-a-deleted-topic")
async def test_no_offset_of_a_deleted_topic_is_carried_over_to_its_successor(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    old = topic_id(broker)
    assert await commit(wire, {old: 5}) == {old: ErrorCode.NONE}
    await delete(wire, "t")
    await wire.create_topic("t")
    new = topic_id(broker)
    for _ in range(2):
        assert await committed(wire, old, new) == {old: (ErrorCode.UNKNOWN_TOPIC_ID, -1), new: (0, -1)}
        assert await committed(wire) == {}
        assert await commit(wire, {old: 6}) == {old: ErrorCode.UNKNOWN_TOPIC_ID}
        await broker.restart()
        wire = await broker.wire()
    assert await commit(wire, {new: 1}) == {new: ErrorCode.NONE}
    assert await committed(wire) == {new: (0, 1)}


async def test_rights_on_offsets_are_those_on_the_name_behind_the_id(start_broker: StartBroker) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.READ, ResourceType.GROUP, "g")
    wire = await harness.wire()
    t = topic_id(harness)
    refused, unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID
    assert await commit(wire, {t: 1, ABSENT: 1}) == {t: refused, ABSENT: unknown}
    assert await committed(wire, t, ABSENT) == {t: (refused, -1), ABSENT: (unknown, -1)}
    await allow(harness, Operation.READ, ResourceType.TOPIC, "t")
    assert await commit(wire, {t: 1}) == {t: ErrorCode.NONE}
    assert await committed(wire, t) == await committed(wire) == {t: (0, 1)}


# --- TxnOffsetCommit


async def test_offsets_of_a_transaction_are_committed_by_id(broker: Harness, wire: Wire) -> None:
    await wire.create_topic("t")
    t = topic_id(broker)
    one = await TransactionalProducer(await broker.wire()).init()
    assert await one.commit_offsets({0: 5}, topic="", topic_id=t, version=6) == [ErrorCode.NONE]
    absent = await one.commit_offsets({0: 5}, topic="", topic_id=ABSENT, version=6)
    assert absent == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert await committed(wire, t) == {t: (0, -1)}
    assert await one.end() == 0
    assert await committed(wire, t) == {t: (0, 5)}
    strange = {"topic": "", "topic_id": t, "group_id": "other", "generation_id": 3, "member_id": "m"}
    assert await one.commit_offsets({0: 5}, version=6, **strange) == [ErrorCode.GROUP_ID_NOT_FOUND]
    strange |= {"topic": "t"}
    assert await one.commit_offsets({0: 5}, version=5, **strange) == [ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize("when", ["after the topic was created again", "before it was deleted"])
async def test_a_transaction_carries_no_offset_over_to_the_successor_of_a_deleted_topic(
    broker: Harness, wire: Wire, when: str
) -> None:
    await wire.create_topic("t")
    old = topic_id(broker)
    one = await TransactionalProducer(await broker.wire()).init()
    if when == "before it was deleted":
        assert await one.commit_offsets({0: 5}, topic="", topic_id=old, version=6) == [ErrorCode.NONE]
    await delete(wire, "t")
    await wire.create_topic("t")
    new = topic_id(broker)
    if when != "before it was deleted":
        late = await one.commit_offsets({0: 5}, topic="", topic_id=old, version=6)
        assert late == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert await one.end() == 0
    for _ in range(2):
        assert await committed(wire, new) == {new: (0, -1)}
        await broker.restart()
        wire = await broker.wire()


async def test_rights_on_offsets_of_a_transaction_are_those_on_the_name_behind_the_id(
    start_broker: StartBroker,
) -> None:
    harness = await guarded(start_broker)
    await allow(harness, Operation.READ, ResourceType.GROUP, "g")
    await allow(harness, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    one = await TransactionalProducer(await harness.wire()).init()
    place = {"topic": "", "topic_id": topic_id(harness), "version": 6}
    assert await one.commit_offsets({0: 1}, **place) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    await allow(harness, Operation.READ, ResourceType.TOPIC, "t")
    assert await one.commit_offsets({0: 1}, **place) == [ErrorCode.NONE]
    absent = await one.commit_offsets({0: 1}, **{**place, "topic_id": ABSENT})
    assert absent == [ErrorCode.UNKNOWN_TOPIC_ID]
