"""Requests with `size` rows: of each API with an array of topics, partitions, groups or ids.

They are sent one after the other on one connection. Later requests use the state that earlier ones have made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from semel_protocol.errors import ErrorCode
from semel_protocol.messages import k00_produce as k00
from semel_protocol.messages import k01_fetch as k01
from semel_protocol.messages import k02_list_offsets as k02
from semel_protocol.messages import k03_metadata as k03
from semel_protocol.messages import k08_offset_commit as k08
from semel_protocol.messages import k09_offset_fetch as k09
from semel_protocol.messages import k10_find_coordinator as k10
from semel_protocol.messages import k13_leave_group as k13
from semel_protocol.messages import k15_describe_groups as k15
from semel_protocol.messages import k16_list_groups as k16
from semel_protocol.messages import k19_create_topics as k19
from semel_protocol.messages import k20_delete_topics as k20
from semel_protocol.messages import k21_delete_records as k21
from semel_protocol.messages import k22_init_producer_id as k22
from semel_protocol.messages import k23_offset_for_leader_epoch as k23
from semel_protocol.messages import k24_add_partitions_to_txn as k24
from semel_protocol.messages import k25_add_offsets_to_txn as k25
from semel_protocol.messages import k26_end_txn as k26
from semel_protocol.messages import k27_write_txn_markers as k27
from semel_protocol.messages import k28_txn_offset_commit as k28
from semel_protocol.messages import k32_describe_configs as k32
from semel_protocol.messages import k35_describe_log_dirs as k35
from semel_protocol.messages import k37_create_partitions as k37
from semel_protocol.messages import k42_delete_groups as k42
from semel_protocol.messages import k43_elect_leaders as k43
from semel_protocol.messages import k45_alter_partition_reassignments as k45
from semel_protocol.messages import k46_list_partition_reassignments as k46
from semel_protocol.messages import k47_offset_delete as k47
from semel_protocol.messages import k61_describe_producers as k61
from semel_protocol.messages import k65_describe_transactions as k65
from semel_protocol.messages import k66_list_transactions as k66
from semel_protocol.messages import k68_consumer_group_heartbeat as k68
from semel_protocol.messages import k69_consumer_group_describe as k69
from semel_protocol.messages import k75_describe_topic_partitions as k75
from semel_protocol.records import Record, build_batch
from semel_protocol.schema import ZERO_UUID, Message

TOPIC = "wide"
GROWN = "grown"
GROUP = "wide-readers"
CONSUMERS = "wide-consumers"
ID = "wide-writer"
WAIT_MS = 1_000
TIMEOUT_MS = 600_000
GROUP_RESOURCE = 32


class Wide(msgspec.Struct):
    """The subjects of the requests.

    `size`: rows; `now_ms`: the time of records. The rest is learnt from the answers.
    """

    size: int
    now_ms: int = 1
    topic_id: bytes = ZERO_UUID
    producer_id: int = -1
    producer_epoch: int = -1
    member_epoch: int = 0
    session_id: int = 0
    sequence: int = 0

    @property
    def rows(self) -> range:
        return range(self.size)

    def names(self, prefix: str) -> list[str]:
        """One name for each row."""
        return [f"{prefix}-{number:05}" for number in self.rows]


Make = Callable[[Wide], Message]
Learn = Callable[[Wide, Any], None]


def _nothing(wide: Wide, answer: Any) -> None:
    """Ignore the answer."""


class WideRequest(msgspec.Struct, frozen=True):
    """`errors`: the error codes that rows may have. `learn`: called with the answer."""

    name: str
    key: int
    version: int
    make: Make
    learn: Learn = _nothing
    errors: frozenset[ErrorCode] = frozenset()

    def check(self, answer: Message) -> None:
        """Raise AssertionError for a row with another error."""
        wrong = Counter(ErrorCode(code).name for code in _codes(answer) if code and ErrorCode(code) not in self.errors)
        assert not wrong, f"{self.name}: errors of rows: {wrong}"


def _codes(value: Any) -> Iterator[int]:
    """All error codes of an answer."""
    if isinstance(value, list):
        for each in value:
            yield from _codes(each)
    elif isinstance(value, Message):
        for name in value.__struct_fields__:
            if name in ("error_code", "partition_error_code"):
                yield getattr(value, name)
            else:
                yield from _codes(getattr(value, name))


def _create(wide: Wide) -> Message:
    return k19.CreateTopicsRequest(
        topics=[
            k19.CreateTopicsRequestTopic(
                name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
            )
            for name, count in ((TOPIC, wide.size), (GROWN, 1))
        ],
        validate_only=False,
    )


def _create_assigned(wide: Wide) -> Message:
    assignments = [k19.CreateTopicsRequestAssignment(partition_index=row, broker_ids=[0]) for row in wide.rows]
    topic = k19.CreateTopicsRequestTopic(
        name="assigned", num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
    )
    return k19.CreateTopicsRequest(topics=[topic], validate_only=True)


def _grow(wide: Wide) -> Message:
    topic = k37.CreatePartitionsRequestTopic(name=GROWN, count=wide.size, assignments=None)
    return k37.CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)


def _metadata(wide: Wide) -> Message:
    return k03.MetadataRequest(topics=None)


def _learn_topic(wide: Wide, answer: Any) -> None:
    (wide.topic_id,) = (topic.topic_id for topic in answer.topics if topic.name == TOPIC)


def _metadata_of_many(wide: Wide) -> Message:
    topics = [k03.MetadataRequestTopic(name=name) for name in wide.names("missing")]
    return k03.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _produce(wide: Wide) -> Message:
    records = build_batch([Record(offset=0, timestamp=wide.now_ms, key=None, value=b"v", headers=())])
    return _produce_rows(wide, records, acks=1)


def _produce_rows(wide: Wide, records: bytes, acks: int, transactional_id: str | None = None) -> Message:
    rows = [k00.ProduceRequestPartition(index=index, records=records) for index in wide.rows]
    return k00.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[k00.ProduceRequestTopic(name=TOPIC, partition_data=rows)],
    )


def _produce_in_transaction(wide: Wide) -> Message:
    records = build_batch(
        [Record(offset=0, timestamp=wide.now_ms, key=None, value=b"v", headers=())],
        producer_id=wide.producer_id,
        producer_epoch=wide.producer_epoch,
        base_sequence=wide.sequence,
        is_transactional=True,
    )
    wide.sequence += 1
    return _produce_rows(wide, records, acks=-1, transactional_id=ID)


def _fetch(offset: int, *, has_session: bool = False, isolation: int = 0) -> Make:
    def make(wide: Wide) -> Message:
        rows = [
            k01.FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index in wide.rows
        ]
        return k01.FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            isolation_level=isolation,
            session_epoch=0 if has_session else -1,
            topics=[k01.FetchRequestTopic(topic=TOPIC, partitions=rows)],
        )

    return make


def _learn_session(wide: Wide, answer: Any) -> None:
    wide.session_id = answer.session_id


def _fetch_again(wide: Wide) -> Message:
    return k01.FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        isolation_level=0,
        session_id=wide.session_id,
        session_epoch=1 if wide.session_id else -1,
        topics=[],
    )


def _list_offsets(timestamp: int) -> Make:
    def make(wide: Wide) -> Message:
        rows = [k02.ListOffsetsRequestPartition(partition_index=index, timestamp=timestamp) for index in wide.rows]
        return k02.ListOffsetsRequest(replica_id=-1, topics=[k02.ListOffsetsRequestTopic(name=TOPIC, partitions=rows)])

    return make


def _leader_epochs(wide: Wide) -> Message:
    rows = [k23.OffsetForLeaderEpochRequestPartition(partition=index, leader_epoch=0) for index in wide.rows]
    return k23.OffsetForLeaderEpochRequest(topics=[k23.OffsetForLeaderEpochRequestTopic(topic=TOPIC, partitions=rows)])


def _topic_partitions(wide: Wide) -> Message:
    topic = k75.DescribeTopicPartitionsRequestTopic(name=TOPIC)
    return k75.DescribeTopicPartitionsRequest(topics=[topic], response_partition_limit=wide.size)


def _configs(wide: Wide) -> Message:
    resources = [
        k32.DescribeConfigsRequestResource(resource_type=GROUP_RESOURCE, resource_name=name, configuration_keys=None)
        for name in wide.names("group")
    ]
    return k32.DescribeConfigsRequest(resources=resources, include_synonyms=True)


def _log_dirs(wide: Wide) -> Message:
    topic = k35.DescribeLogDirsRequestTopic(topic=TOPIC, partitions=list(wide.rows))
    return k35.DescribeLogDirsRequest(topics=[topic])


def _producers(wide: Wide) -> Message:
    topic = k61.DescribeProducersRequestTopic(name=TOPIC, partition_indexes=list(wide.rows))
    return k61.DescribeProducersRequest(topics=[topic])


def _elect(wide: Wide) -> Message:
    topic = k43.ElectLeadersRequestTopic(topic=TOPIC, partitions=list(wide.rows))
    return k43.ElectLeadersRequest(topic_partitions=[topic])


def _elect_all(wide: Wide) -> Message:
    return k43.ElectLeadersRequest(topic_partitions=None)


def _reassign(wide: Wide) -> Message:
    rows = [k45.AlterPartitionReassignmentsRequestPartition(partition_index=row, replicas=[0]) for row in wide.rows]
    topic = k45.AlterPartitionReassignmentsRequestTopic(name=TOPIC, partitions=rows)
    return k45.AlterPartitionReassignmentsRequest(topics=[topic])


def _reassignments(wide: Wide) -> Message:
    topic = k46.ListPartitionReassignmentsRequestTopic(name=TOPIC, partition_indexes=list(wide.rows))
    return k46.ListPartitionReassignmentsRequest(topics=[topic])


def _offset_commit(wide: Wide) -> Message:
    rows = [
        k08.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in wide.rows
    ]
    topic = k08.OffsetCommitRequestTopic(name=TOPIC, partitions=rows)
    return k08.OffsetCommitRequest(group_id=GROUP, member_id="", topics=[topic])


def _offset_fetch(wide: Wide) -> Message:
    topic = k09.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(wide.rows))
    group = k09.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    return k09.OffsetFetchRequest(groups=[group], require_stable=True)


def _offset_fetch_all(wide: Wide) -> Message:
    return k09.OffsetFetchRequest(
        groups=[k09.OffsetFetchRequestGroup(group_id=GROUP, topics=None)], require_stable=True
    )


def _offset_fetch_of_old(wide: Wide) -> Message:
    return k09.OffsetFetchRequest(group_id=GROUP, topics=None)


def _offset_fetch_of_many(wide: Wide) -> Message:
    groups = [k09.OffsetFetchRequestGroup(group_id=name, topics=None) for name in wide.names("group")]
    return k09.OffsetFetchRequest(groups=groups)


def _offset_delete(wide: Wide) -> Message:
    rows = [k47.OffsetDeleteRequestPartition(partition_index=index) for index in wide.rows]
    return k47.OffsetDeleteRequest(group_id=GROUP, topics=[k47.OffsetDeleteRequestTopic(name=TOPIC, partitions=rows)])


def _find_coordinators(key_type: int) -> Make:
    def make(wide: Wide) -> Message:
        return k10.FindCoordinatorRequest(key_type=key_type, coordinator_keys=wide.names("group"))

    return make


def _leave(wide: Wide) -> Message:
    members = [k13.LeaveGroupRequestMember(member_id=name) for name in wide.names("member")]
    return k13.LeaveGroupRequest(group_id=GROUP, members=members)


def _describe_groups(wide: Wide) -> Message:
    return k15.DescribeGroupsRequest(groups=wide.names("group"), include_authorized_operations=True)


def _describe_consumer_groups(wide: Wide) -> Message:
    groups = [CONSUMERS, *wide.names("group")]
    return k69.ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=True)


def _list_groups(wide: Wide) -> Message:
    return k16.ListGroupsRequest()


def _delete_groups(wide: Wide) -> Message:
    return k42.DeleteGroupsRequest(groups_names=wide.names("group"))


def _delete_group(wide: Wide) -> Message:
    return k42.DeleteGroupsRequest(groups_names=[GROUP])


def _join_consumers(wide: Wide) -> Message:
    return k68.ConsumerGroupHeartbeatRequest(
        group_id=CONSUMERS,
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


def _learn_epoch(wide: Wide, answer: Any) -> None:
    wide.member_epoch = answer.member_epoch


def _heartbeat(wide: Wide) -> Message:
    return k68.ConsumerGroupHeartbeatRequest(
        group_id=CONSUMERS,
        member_id="member",
        member_epoch=wide.member_epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[
            k68.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=wide.topic_id, partitions=list(wide.rows))
        ],
    )


def _leave_consumers(wide: Wide) -> Message:
    return k68.ConsumerGroupHeartbeatRequest(group_id=CONSUMERS, member_id="member", member_epoch=-1)


def _init_producer(wide: Wide) -> Message:
    return k22.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)


def _learn_producer(wide: Wide, answer: Any) -> None:
    wide.producer_id, wide.producer_epoch, wide.sequence = answer.producer_id, answer.producer_epoch, 0


def _learn_ended(wide: Wide, answer: Any) -> None:
    if answer.producer_id >= 0:
        _learn_producer(wide, answer)


def _add_partitions(wide: Wide) -> Message:
    return k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=wide.producer_id,
        v3_and_below_producer_epoch=wide.producer_epoch,
        v3_and_below_topics=[k24.AddPartitionsToTxnRequestTopic(name=TOPIC, partitions=list(wide.rows))],
    )


def _add_offsets(wide: Wide) -> Message:
    return k25.AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=wide.producer_id, producer_epoch=wide.producer_epoch, group_id=GROUP
    )


def _txn_offset_commit(wide: Wide) -> Message:
    rows = [
        k28.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=2, committed_metadata="")
        for index in wide.rows
    ]
    return k28.TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=wide.producer_id,
        producer_epoch=wide.producer_epoch,
        topics=[k28.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=rows)],
    )


def _end(wide: Wide) -> Message:
    """Commit, because an aborted transaction opens another index file in each partition."""
    return k26.EndTxnRequest(
        transactional_id=ID, producer_id=wide.producer_id, producer_epoch=wide.producer_epoch, committed=True
    )


def _describe_transactions(wide: Wide) -> Message:
    return k65.DescribeTransactionsRequest(transactional_ids=[ID, *wide.names("id")])


def _list_transactions(wide: Wide) -> Message:
    return k66.ListTransactionsRequest(state_filters=[], producer_id_filters=[])


def _write_markers(wide: Wide) -> Message:
    marker = k27.WriteTxnMarkersRequestMarker(
        producer_id=wide.producer_id,
        producer_epoch=wide.producer_epoch,
        transaction_result=False,
        topics=[k27.WriteTxnMarkersRequestTopic(name=TOPIC, partition_indexes=list(wide.rows))],
        coordinator_epoch=0,
    )
    return k27.WriteTxnMarkersRequest(markers=[marker])


def _delete_records(wide: Wide) -> Message:
    rows = [k21.DeleteRecordsRequestPartition(partition_index=index, offset=-1) for index in wide.rows]
    return k21.DeleteRecordsRequest(
        topics=[k21.DeleteRecordsRequestTopic(name=TOPIC, partitions=rows)], timeout_ms=TIMEOUT_MS
    )


def _delete_topic(wide: Wide) -> Message:
    return k20.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=TIMEOUT_MS)


def _delete_many(wide: Wide) -> Message:
    return k20.DeleteTopicsRequest(topic_names=wide.names("missing"), timeout_ms=TIMEOUT_MS)


MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
NO_GROUP = frozenset({ErrorCode.GROUP_ID_NOT_FOUND})
NOT_NEEDED = frozenset({ErrorCode.ELECTION_NOT_NEEDED})
STRANGER = frozenset({ErrorCode.UNKNOWN_MEMBER_ID})
NO_ID = frozenset({ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})
NOT_HANGING = frozenset(
    {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH}
)

WIDE_REQUESTS: tuple[WideRequest, ...] = (
    WideRequest("CreateTopics", 19, 7, _create),
    WideRequest("CreateTopics, replicas given, validated", 19, 7, _create_assigned),
    WideRequest("CreatePartitions", 37, 3, _grow),
    WideRequest("Metadata", 3, 12, _metadata, _learn_topic),
    WideRequest("Metadata, unknown topics", 3, 12, _metadata_of_many, errors=MISSING),
    WideRequest("DescribeTopicPartitions", 75, 0, _topic_partitions),
    WideRequest("Produce, first records", 0, 7, _produce),
    WideRequest("Produce", 0, 7, _produce),
    WideRequest("Fetch, all have records", 1, 11, _fetch(0)),
    WideRequest("Fetch, read_committed", 1, 11, _fetch(0, isolation=1)),
    WideRequest("Fetch, waits at all ends", 1, 11, _fetch(2)),
    WideRequest("Fetch, begins a session", 1, 11, _fetch(2, has_session=True), _learn_session),
    WideRequest("Fetch, waits in a session", 1, 11, _fetch_again),
    WideRequest("ListOffsets, latest", 2, 7, _list_offsets(-1)),
    WideRequest("ListOffsets, newest timestamp", 2, 7, _list_offsets(-3)),
    WideRequest("ListOffsets, by time", 2, 7, _list_offsets(0)),
    WideRequest("OffsetForLeaderEpoch", 23, 4, _leader_epochs),
    WideRequest("DescribeLogDirs", 35, 2, _log_dirs),
    WideRequest("DescribeConfigs, groups", 32, 4, _configs),
    WideRequest("ElectLeaders", 43, 2, _elect, errors=NOT_NEEDED),
    WideRequest("ElectLeaders, all", 43, 2, _elect_all),
    WideRequest("AlterPartitionReassignments", 45, 0, _reassign),
    WideRequest("ListPartitionReassignments", 46, 0, _reassignments),
    WideRequest("FindCoordinator, groups", 10, 4, _find_coordinators(0)),
    WideRequest("OffsetCommit", 8, 8, _offset_commit),
    WideRequest("OffsetFetch", 9, 8, _offset_fetch),
    WideRequest("OffsetFetch, all partitions", 9, 8, _offset_fetch_all),
    WideRequest("OffsetFetch, one group", 9, 7, _offset_fetch_of_old),
    WideRequest("OffsetFetch, many groups", 9, 8, _offset_fetch_of_many),
    WideRequest("DescribeGroups", 15, 5, _describe_groups),
    WideRequest("ListGroups", 16, 4, _list_groups),
    WideRequest("LeaveGroup", 13, 4, _leave, errors=STRANGER),
    WideRequest("ConsumerGroupHeartbeat, joins", 68, 1, _join_consumers, _learn_epoch),
    WideRequest("ConsumerGroupHeartbeat", 68, 1, _heartbeat, _learn_epoch),
    WideRequest("ConsumerGroupDescribe", 69, 1, _describe_consumer_groups, errors=NO_GROUP),
    WideRequest("ConsumerGroupHeartbeat, leaves", 68, 1, _leave_consumers),
    WideRequest("FindCoordinator, transactions", 10, 4, _find_coordinators(1)),
    WideRequest("InitProducerId", 22, 4, _init_producer, _learn_producer),
    WideRequest("AddPartitionsToTxn", 24, 3, _add_partitions),
    WideRequest("Produce in a transaction", 0, 7, _produce_in_transaction),
    WideRequest("AddOffsetsToTxn", 25, 3, _add_offsets),
    WideRequest("TxnOffsetCommit", 28, 3, _txn_offset_commit),
    WideRequest("DescribeProducers", 61, 0, _producers),
    WideRequest("DescribeTransactions", 65, 0, _describe_transactions, errors=NO_ID),
    WideRequest("ListTransactions", 66, 1, _list_transactions),
    WideRequest("EndTxn, commit", 26, 3, _end),
    WideRequest("Fetch after it, read_committed", 1, 11, _fetch(0, isolation=1)),
    WideRequest("WriteTxnMarkers", 27, 1, _write_markers, errors=NOT_HANGING),
    WideRequest("Produce in a transaction, KIP-890", 0, 12, _produce_in_transaction),
    WideRequest("TxnOffsetCommit, KIP-890", 28, 5, _txn_offset_commit),
    WideRequest("EndTxn, KIP-890", 26, 5, _end, _learn_ended),
    WideRequest("OffsetDelete", 47, 0, _offset_delete),
    WideRequest("OffsetCommit again", 8, 8, _offset_commit),
    WideRequest("DeleteGroups, one", 42, 2, _delete_group),
    WideRequest("DeleteGroups", 42, 2, _delete_groups, errors=NO_GROUP),
    WideRequest("DeleteRecords", 21, 1, _delete_records),
    WideRequest("DeleteTopics", 20, 5, _delete_topic),
    WideRequest("DeleteTopics, unknown", 20, 5, _delete_many, errors=MISSING),
)

WRITTEN = tuple(asked for asked in WIDE_REQUESTS if asked.name in ("CreateTopics", "Produce, first records"))
"""The topics in which each partition has a record."""
