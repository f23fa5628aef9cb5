"""ListOffsets, OffsetFetch and OffsetCommit: offsets of partitions, and committed offsets of the group.

Commits use a data connection to the coordinator, not the one that waits in JoinGroup: a rebalance must not delay them.

Committed offsets belong to a topic id where brokers know it (KIP-516, OffsetCommit and OffsetFetch v10). So a topic
that was created again does not get those of its predecessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from operator import attrgetter
from typing import TypeVar

import msgspec
from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.fields import first_version
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from semel_protocol.schema import ZERO_UUID, Message

from semel._config.consumer import ConsumerConfig
from semel._net.calls import grouped
from semel._net.cluster import Cluster
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline, is_lost_coordinator, is_stale_metadata
from semel.errors import (
    BrokerResponseError,
    DeletedTopicCommitError,
    FencedMemberEpochError,
    GroupIdNotFound,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from semel.errors.rights import NeededRight
from semel.structs import Metadata, OffsetAndMetadata, TopicPartition

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
NO_OFFSET = -1
MEMBER_EPOCH_VERSION = 9
"""The version of OffsetCommit and OffsetFetch that has the epoch of a member of the consumer protocol (KIP-848)."""
BY_ID_FROM = first_version(OffsetCommitRequestTopic, "topic_id")
"""The version of OffsetCommit and OffsetFetch that names topics by id."""
UNKNOWN_ANSWERS = 3
"""A topic id is gone when the coordinator has refused it so often, and the metadata does not have it either. Each of
them alone may only lag behind.
"""
OUTDATED_MEMBER = (StaleMemberEpochError, FencedMemberEpochError, UnknownMemberIdError, GroupIdNotFound)
"""The coordinator does not know the member at this epoch."""

T = TypeVar("T")
OffsetAt = tuple[int, int]
"""(offset, timestamp in ms); (-1, -1) without such a record."""


class Membership(msgspec.Struct, frozen=True):
    """The committing member. The default is no member, which a group without members accepts."""

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Offsets:
    """Requests about offsets. Each public call but `list_once` retries until its deadline.

    member: the membership to read committed offsets as, in the consumer protocol (KIP-848); None without one.
    topic_id: the id of the topic that a partition is of; zeros when it is unknown, then the topic is named by name.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        member: Callable[[], Membership | None] = lambda: None,
        topic_id: Callable[[TopicPartition], bytes] = lambda partition: ZERO_UUID,
    ) -> None:
        self._cluster, self._config, self._edge, self._member = cluster, config, cluster.edge, member
        self._topic_id = topic_id

    def _right(self, topic: str | None = None) -> NeededRight:
        """The right of a consumer to its group, and to a topic."""
        return self._cluster.right(Operation.READ, topic=topic, group=self._config.group_id)

    # From the leaders

    async def list(self, wanted: Mapping[TopicPartition, int], timeout_ms: float) -> dict[TopicPartition, OffsetAt]:
        """Offset and timestamp at each wanted timestamp (ms, or -1 latest, -2 earliest).

        Raises KafkaTimeoutError with the last reason, TopicAuthorizationFailedError and other final errors.
        """
        found: dict[TopicPartition, OffsetAt] = {}

        async def attempt(deadline: Deadline) -> dict[TopicPartition, OffsetAt]:
            missing = {partition: timestamp for partition, timestamp in wanted.items() if partition not in found}
            results, failures = await self.list_once(missing, max(deadline.remaining_ms, 1))
            found.update(results)
            if failures:
                final = [error for error in failures.values() if not error.retriable]
                raise [*final, *failures.values()][0]
            return {partition: found[partition] for partition in wanted}

        return await self._cluster.retrying(
            attempt,
            timeout_ms=timeout_ms,
            what="listing offsets",
        )

    async def list_once(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float
    ) -> tuple[dict[TopicPartition, OffsetAt], dict[TopicPartition, KafkaError]]:
        """One try: the offsets found, and the errors of the other partitions. Asks all leaders at the same time."""
        metadata = self._cluster.metadata
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        failures: dict[TopicPartition, KafkaError] = {}
        for partition, timestamp in wanted.items():
            leader = metadata.leader(partition.topic, partition.partition, self._topic_id(partition))
            if leader < 0:
                self._cluster.want([partition.topic])
                self._cluster.request_refresh()
                failures[partition] = _no_leader(metadata, partition, self._right(partition.topic))
            else:
                by_leader.setdefault(leader, {})[partition] = timestamp
        answers = await asyncio.gather(
            *(self._list_from(leader, part, timeout_ms) for leader, part in by_leader.items())
        )
        found: dict[TopicPartition, OffsetAt] = {}
        for results, refused in answers:
            found |= results
            failures |= refused
        if any(is_stale_metadata(error) for error in failures.values()):
            self._cluster.request_refresh()
        return found, failures

    async def _list_from(
        self, leader: int, wanted: Mapping[TopicPartition, int], timeout_ms: float
    ) -> tuple[dict[TopicPartition, OffsetAt], dict[TopicPartition, KafkaError]]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1 if self._config.read_committed else 0,
            topics=[
                ListOffsetsRequestTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequestPartition(
                            partition_index=index,
                            current_leader_epoch=self._cluster.metadata.leader_epoch(topic, index),
                            timestamp=wanted[TopicPartition(topic, index)],
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in grouped(wanted).items()
            ],
        )
        try:
            connection = await self._cluster.connection(leader, ConnectionPurpose.DATA)
            answer: ListOffsetsResponse = await connection.request(request, timeout_ms=self._request_ms(timeout_ms))
        except KafkaError as error:
            return {}, dict.fromkeys(wanted, error)
        found: dict[TopicPartition, OffsetAt] = {}
        refused: dict[TopicPartition, KafkaError] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if partition not in wanted:
                    continue
                if row.error_code:
                    what = f"offsets of {topic.name}-{row.partition_index}"
                    refused[partition] = error_for(row.error_code, what, self._right(topic.name))
                else:
                    found[partition] = (row.offset, row.timestamp)
        for partition in wanted:
            if partition not in found and partition not in refused:
                refused[partition] = KafkaConnectionError(f"{connection.name} left {partition} out of its answer")
        return found, refused

    # From the coordinator

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None where there is none.

        A read_committed consumer waits while a transaction with such offsets completes (KIP-447). Raises
        UnknownTopicIdError for a topic that was deleted.
        """
        wanted = list(partitions)

        async def attempt(deadline: Deadline) -> dict[TopicPartition, OffsetAndMetadata | None]:
            found, unknown = await self.find_committed(wanted, max(deadline.remaining_ms, 1))
            for error in unknown.values():
                raise error
            return found

        return await self._cluster.retrying(
            attempt,
            timeout_ms=timeout_ms,
            what=f"fetching committed offsets of group {self._group_id!r}",
            is_retriable=self._unless_gone(lambda: self._topic_ids(wanted)),
        )

    async def find_committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata | None], dict[TopicPartition, UnknownTopicIdError]]:
        """As `committed`. The second part has the partitions whose topic ids the coordinator does not know, at least
        not yet.
        """
        wanted = list(partitions)
        unknown: dict[TopicPartition, UnknownTopicIdError] = {}

        async def ask(connection: Connection, request_ms: float) -> dict[TopicPartition, OffsetAndMetadata | None]:
            topics = _by_topic(self._topic_ids(wanted), connection, OffsetFetchRequest)
            names = {topic_id: name for name, topic_id in topics}
            answer = await self._fetch_offsets(connection, topics, request_ms)
            _raise_for(answer.error_code, f"committed offsets of group {self._group_id!r}", self._right())
            found: dict[TopicPartition, OffsetAndMetadata | None] = {}
            unknown.clear()
            for topic in answer.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name or names.get(topic.topic_id, ""), row.partition_index)
                    try:
                        what = f"committed offset of {partition.topic}-{partition.partition}"
                        _raise_for(row.error_code, what, self._right(partition.topic))
                    except UnknownTopicIdError as error:
                        unknown[partition] = error
                        self._cluster.request_refresh()
                        continue
                    at = OffsetAndMetadata(row.committed_offset, row.metadata or "")
                    found[partition] = at if at.offset >= 0 else None
            _check_complete({**found, **unknown}, wanted, connection)
            return {partition: found[partition] for partition in wanted if partition not in unknown}

        found = await self._coordinator(
            ask,
            timeout_ms,
            "fetching committed offsets",
            # The next heartbeat brings the present epoch, or says that there is no membership.
            is_retriable=lambda error: (
                error.retriable or (self._config.is_consumer_protocol and isinstance(error, OUTDATED_MEMBER))
            ),
        )
        return found, unknown

    async def _fetch_offsets(
        self, connection: Connection, topics: _Topics, request_ms: float
    ) -> OffsetFetchResponse | OffsetFetchResponseGroup:
        rows = [
            OffsetFetchRequestTopic(name=name, topic_id=topic_id, partition_indexes=indexes)
            for (name, topic_id), indexes in topics.items()
        ]
        request = OffsetFetchRequest(require_stable=self._config.read_committed)
        is_by_id = _is_by_id(topics)
        member = self._member() if connection.serves(OffsetFetchRequest, MEMBER_EPOCH_VERSION) else None
        if member is None and not is_by_id:
            request.group_id, request.topics = self._group_id, rows
            answer: OffsetFetchResponse = await connection.request(request, timeout_ms=request_ms)
            return answer
        asked = OffsetFetchRequestGroup(group_id=self._group_id, topics=rows)
        if member is not None:
            asked.member_id, asked.member_epoch = member.member_id, member.generation
        request.groups = [asked]
        answer = await connection.request(
            request, timeout_ms=request_ms, version_max=BY_ID_FROM if is_by_id else MEMBER_EPOCH_VERSION
        )
        for group in answer.groups:
            if group.group_id == self._group_id:
                return group
        raise KafkaConnectionError(f"{connection.name} left group {self._group_id!r} out of its answer")

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], membership: Membership, timeout_ms: float
    ) -> None:
        """Commit offsets as `membership`.

        Raises RebalanceInProgressError, IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError,
        GroupIdNotFound when the group has rebalanced, StaleMemberEpochError when the member has another epoch
        (KIP-848), DeletedTopicCommitError when the topic was deleted, KafkaTimeoutError, and other final errors such as
        OffsetMetadataTooLargeError.
        """
        ids = self._topic_ids(offsets)  # not those of a later try: the offsets belong to these topics

        async def tell(connection: Connection, request_ms: float) -> None:
            topics = _by_topic(ids, connection, OffsetCommitRequest)
            names = {topic_id: name for name, topic_id in topics}
            request = OffsetCommitRequest(
                group_id=self._group_id,
                generation_id_or_member_epoch=membership.generation,
                member_id=membership.member_id,
                group_instance_id=membership.group_instance_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=name,
                        topic_id=topic_id,
                        partitions=[_commit_row(index, offsets[TopicPartition(name, index)]) for index in indexes],
                    )
                    for (name, topic_id), indexes in topics.items()
                ],
            )
            version_max = MEMBER_EPOCH_VERSION if self._config.is_consumer_protocol else None
            answer: OffsetCommitResponse = await connection.request(
                request, timeout_ms=request_ms, version_max=BY_ID_FROM if _is_by_id(topics) else version_max
            )
            answered: dict[TopicPartition, None] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name or names.get(topic.topic_id, ""), row.partition_index)
                    what = f"commit of {partition.topic}-{partition.partition}"
                    _raise_for(row.error_code, what, self._right(partition.topic))
                    answered[partition] = None
            _check_complete(answered, offsets, connection)

        try:
            await self._coordinator(tell, timeout_ms, "committing offsets", is_retriable=self._unless_gone(lambda: ids))
        except UnknownTopicIdError as error:
            raise DeletedTopicCommitError(error.message) from error

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> _TopicIds:
        return {partition: self._topic_id(partition) for partition in partitions}

    def _unless_gone(self, ids: Callable[[], _TopicIds]) -> Callable[[KafkaError], bool]:
        """Whether an error is retriable, asked once for each error: a topic id may be refused for good."""
        refusals = 0

        def is_retriable(error: KafkaError) -> bool:
            nonlocal refusals
            if not isinstance(error, UnknownTopicIdError):
                return error.retriable
            refusals += 1
            self._cluster.request_refresh()
            return refusals < UNKNOWN_ANSWERS or not any(self._is_gone(each, at) for each, at in ids().items())

        return is_retriable

    def _is_gone(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Whether the metadata has no topic of this name and id."""
        metadata, topic = self._cluster.metadata, partition.topic
        is_unknown = metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown or not metadata.describes(topic, topic_id)

    async def _coordinator(
        self,
        call: Callable[[Connection, float], Awaitable[T]],
        timeout_ms: float,
        what: str,
        is_retriable: Callable[[KafkaError], bool] = attrgetter("retriable"),
    ) -> T:
        async def attempt(deadline: Deadline) -> T:
            left = max(deadline.remaining_ms, 1)
            node_id = await self._cluster.coordinator(self._group_id, timeout_ms=left)
            connection = await self._cluster.connection(node_id, ConnectionPurpose.DATA)
            return await call(connection, self._request_ms(max(deadline.remaining_ms, 1)))

        def on_error(error: KafkaError) -> None:
            if is_lost_coordinator(error) or not isinstance(error, BrokerResponseError):
                self._cluster.forget_coordinator(self._group_id)

        return await self._cluster.retrying(
            attempt,
            timeout_ms=timeout_ms,
            what=f"{what} of group {self._group_id!r}",
            is_retriable=is_retriable,
            on_error=on_error,
        )

    @property
    def _group_id(self) -> str:
        assert self._config.group_id is not None, "the caller checks that there is a group"
        return self._config.group_id

    def _request_ms(self, left_ms: float) -> float:
        return min(self._config.request_timeout_ms, left_ms)


_TopicIds = dict[TopicPartition, bytes]
_Topics = dict[tuple[str, bytes], list[int]]
"""(name, topic id) -> partition indexes."""


def _by_topic(ids: _TopicIds, connection: Connection, request: type[Message]) -> _Topics:
    """The partitions by topic. The topic ids are zeros unless the broker is asked by id."""
    is_by_id = ZERO_UUID not in ids.values() and connection.serves(request, BY_ID_FROM)
    topics: _Topics = {}
    for (topic, index), topic_id in ids.items():
        topics.setdefault((topic, topic_id if is_by_id else ZERO_UUID), []).append(index)
    return topics


def _is_by_id(topics: _Topics) -> bool:
    return any(topic_id != ZERO_UUID for _, topic_id in topics)


def _no_leader(metadata: Metadata, partition: TopicPartition, right: NeededRight) -> KafkaError:
    """Why metadata names no leader: the topic or the partition does not exist, or all replicas are offline."""
    topic, index = partition
    if topic not in metadata.topics:
        if code := metadata.errors.get(topic):
            return error_for(code, f"{topic}-{index}", right)
    elif index >= (count := len(metadata.topics[topic].partitions)):
        return UnknownTopicOrPartitionError(f"{topic} has no partition {index}: it has {count}, numbered from 0")
    return LeaderNotAvailableError(f"{topic}-{index} has no leader")


def _commit_row(index: int, at: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index, committed_offset=at.offset, committed_metadata=at.metadata
    )


def _check_complete(
    answered: Mapping[TopicPartition, object], wanted: Iterable[TopicPartition], connection: Connection
) -> None:
    """Raise a retriable error when the answer leaves a partition out."""
    for partition in wanted:
        if partition not in answered:
            raise KafkaConnectionError(f"{connection.name} left {partition} out of its answer")


def _raise_for(code: int, context: str, right: NeededRight) -> None:
    if code:
        raise error_for(code, context, right)
