"""Several scripted brokers as one cluster: leaders, coordinators and a controller move, and some views are stale.

All brokers share the stored data (`logs`, `kept`), as if every follower were in sync; `truncate` is an unclean
election. A broker answers only for what it leads or coordinates. A frozen broker continues with its old view, as one
that is cut off from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from client.fake_broker import FakeBroker, SequencedLog
from semel_protocol.api import APIS
from semel_protocol.batch import read_header, stamp
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponseLeader,
    ProduceResponseNodeEndpoint,
)
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponseDivergingEpoch,
    FetchResponseLeader,
    FetchResponsePartition,
    FetchResponseTopic,
)
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from semel_protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorResponse
from semel_protocol.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
)
from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from semel_protocol.records import Record, build_batch

Place = tuple[str, int]
PRODUCE, FETCH, LIST, COMMIT, COMMITTED, CREATE, EPOCH_END = 0, 1, 2, 8, 9, 19, 23
VERSIONS = {PRODUCE: (0, 11), FETCH: (0, 12), LIST: (0, 7), 3: (0, 12), EPOCH_END: (0, 4)}
"""The advertised versions where they differ from semel's: leader epochs everywhere, and hints of the current leader."""
DEPOSED = "stored, and then no leader any more: the answer says only that"
REPLACED = "stored, and answered as by one that leads no more"
LONG_POLL_S = 0.02


class MovingPartition(SequencedLog):
    """One partition: its leader in each epoch, and the batches that readers get."""

    def __init__(self, leader: int) -> None:
        super().__init__()
        self.leader, self.epoch = leader, 0
        self.start = 0
        self.batches: list[tuple[int, int, int, bytes]] = []
        """(base offset, next offset, leader epoch, batch)."""

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def put(self, *values: bytes) -> None:
        """Append a batch in the current epoch."""
        base = self.end
        batch = bytearray(build_batch([Record(0, 0, None, value) for value in values], base_offset=base))
        stamp(batch, base, self.epoch)
        self.batches.append((base, read_header(batch).next_offset, self.epoch, bytes(batch)))

    def truncate(self, to: int) -> None:
        """Remove all records from `to` on."""
        self.batches = [batch for batch in self.batches if batch[1] <= to]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to this one, and its end offset (KIP-320)."""
        known = max((row[2] for row in self.batches if row[2] <= epoch), default=-1)
        return known, max((row[1] for row in self.batches if row[2] <= known), default=self.start)


class ClusterBroker(FakeBroker):
    def __init__(self, cluster: MovingCluster, node_id: int) -> None:
        versions = {key: api.advertised for key, api in APIS.items() if api.advertised} | VERSIONS
        super().__init__(cluster.topics, versions)
        self.cluster = cluster
        self.node_id = self.leader = node_id
        self.frozen: dict[Place, tuple[int, int]] | None = None
        self.frozen_coordinator: int | None = None
        self.is_mute = False
        self.answers |= {
            FETCH: self.fetch,
            LIST: self.list_offsets,
            COMMIT: self.commit,
            COMMITTED: self.committed,
            CREATE: self.create_topics,
            EPOCH_END: self.end_of_epoch,
        }

    def freeze(self) -> None:
        """Keep the current view from now on."""
        self.frozen = {place: (truth.leader, truth.epoch) for place, truth in self.cluster.truths.items()}
        self.frozen_coordinator = self.cluster.coordinator

    async def _handle(self, frame: memoryview, writer: asyncio.StreamWriter) -> bool:
        while self.is_mute:  # as a process that was stopped: connections stand, nothing is answered
            await asyncio.sleep(0.005)
        return await super()._handle(frame, writer)

    def leads(self, place: Place, epoch: int = -1) -> int:
        """The error code for a request about this partition with this leader epoch."""
        truth = self.cluster.truth(*place)
        if truth.leader != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < truth.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > truth.epoch else ErrorCode.NONE

    async def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = self.topics if request.topics is None else [row.name or "" for row in request.topics]
        rows = []
        for name in names:
            if name not in self.topics:
                rows.append(MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            partitions = []
            for index in range(self.topics[name]):
                truth = self.cluster.truth(name, index)
                leader, epoch = (self.frozen or {}).get((name, index), (truth.leader, truth.epoch))
                partitions.append(
                    MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
                )
            rows.append(MetadataResponseTopic(name=name, partitions=partitions))
        brokers = [
            MetadataResponseBroker(node_id=peer.node_id, host="127.0.0.1", port=peer.port)
            for peer in self.cluster.brokers
        ]
        return MetadataResponse(brokers=brokers, controller_id=self.cluster.controller, topics=rows)

    async def find_coordinator(self, _: Any) -> FindCoordinatorResponse:
        believed = self.cluster.coordinator if self.frozen_coordinator is None else self.frozen_coordinator
        node = self.cluster.brokers[believed]
        return FindCoordinatorResponse(node_id=node.node_id, host="127.0.0.1", port=node.port)

    # Producing

    def log(self, topic: str = "t", partition: int = 0) -> SequencedLog:
        return self.cluster.truth(topic, partition)

    def produce(self, request: ProduceRequest) -> Any:
        if self.faults and self.faults[0] == DEPOSED:
            self.faults.popleft()
            self._store(request)
            self.cluster.move_all(away_from=self.node_id)
        if self.faults and self.faults[0] == REPLACED:
            self.faults.popleft()
            self._store(request)
            return super()._answer(request, lambda *_: (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1))
        return super().produce(request)

    def _answer(self, request: ProduceRequest, store: Callable[..., tuple[int, int]]) -> ProduceResponse:
        def if_leader(topic: str, partition: int, records: memoryview) -> tuple[int, int]:
            code = self.leads((topic, partition))
            return (code, -1) if code else store(topic, partition, records)

        answer = super()._answer(request, if_leader)
        for topic in answer.responses:
            for row in topic.partition_responses:
                if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self.cluster.hints:
                    truth = self.cluster.truth(topic.name, row.index)
                    row.current_leader = ProduceResponseLeader(leader_id=truth.leader, leader_epoch=truth.epoch)
                    node = self.cluster.brokers[truth.leader]
                    answer.node_endpoints = [
                        ProduceResponseNodeEndpoint(node_id=node.node_id, host="127.0.0.1", port=node.port)
                    ]
        return answer

    # Reading

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        answer = self._fetched(request)
        if not any(row.records or row.error_code or row.diverging_epoch.epoch >= 0 for row in answer):
            await asyncio.sleep(LONG_POLL_S)
            answer = self._fetched(request)
        return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=answer)])

    def _fetched(self, request: FetchRequest) -> list[FetchResponsePartition]:
        return [self._fetched_row(topic.topic, row) for topic in request.topics for row in topic.partitions]

    def _fetched_row(self, topic: str, row: FetchRequestPartition) -> FetchResponsePartition:
        truth = self.cluster.truth(topic, row.partition)
        answer = FetchResponsePartition(
            partition_index=row.partition, error_code=self.leads((topic, row.partition), row.current_leader_epoch)
        )
        if answer.error_code:
            if self.cluster.hints:
                answer.current_leader = FetchResponseLeader(leader_id=truth.leader, leader_epoch=truth.epoch)
            return answer
        answer.high_watermark = answer.last_stable_offset = truth.end
        answer.log_start_offset = truth.start
        if row.last_fetched_epoch >= 0:
            epoch, end = truth.end_of_epoch(row.last_fetched_epoch)
            if epoch < row.last_fetched_epoch or end < row.fetch_offset:
                answer.diverging_epoch = FetchResponseDivergingEpoch(epoch=epoch, end_offset=end)
                return answer
        if not truth.start <= row.fetch_offset <= truth.end:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            answer.high_watermark = answer.log_start_offset = -1
            return answer
        answer.records = b"".join(batch for _, end, _, batch in truth.batches if end > row.fetch_offset)
        return answer

    async def end_of_epoch(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                code = self.leads((topic.topic, row.partition), row.current_leader_epoch)
                epoch, end = (
                    (-1, -1) if code else self.cluster.truth(topic.topic, row.partition).end_of_epoch(row.leader_epoch)
                )
                rows.append(
                    OffsetForLeaderEpochResponsePartition(
                        partition=row.partition, error_code=code, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=rows))
        return OffsetForLeaderEpochResponse(topics=topics)

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                truth = self.cluster.truth(topic.name, row.partition_index)
                code = self.leads((topic.name, row.partition_index), row.current_leader_epoch)
                offset = -1 if code else truth.start if row.timestamp == -2 else truth.end
                rows.append(
                    ListOffsetsResponsePartition(partition_index=row.partition_index, error_code=code, offset=offset)
                )
            topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    # Coordinating

    async def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = ErrorCode.NONE if self.cluster.coordinator == self.node_id else ErrorCode.NOT_COORDINATOR
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                if not code:
                    self.cluster.committed[topic.name, row.partition_index] = row.committed_offset
                rows.append(OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=rows))
        return OffsetCommitResponse(topics=topics)

    async def committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        code = ErrorCode.NONE if self.cluster.coordinator == self.node_id else ErrorCode.NOT_COORDINATOR
        topics = []
        for topic in request.topics or ():
            rows = [
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=-1 if code else self.cluster.committed.get((topic.name, index), -1),
                    metadata="",
                    error_code=code,
                )
                for index in topic.partition_indexes
            ]
            topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=rows))
        return OffsetFetchResponse(topics=topics, error_code=code)

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        code = ErrorCode.NONE if self.cluster.controller == self.node_id else ErrorCode.NOT_CONTROLLER
        for topic in request.topics if not code else ():
            self.topics[topic.name] = topic.num_partitions
        return CreateTopicsResponse(
            topics=[CreateTopicsResponseTopic(name=topic.name, error_code=code) for topic in request.topics]
        )


class MovingCluster:
    """`async with MovingCluster(3) as cluster`; `bootstrap`: the addresses of all its brokers."""

    def __init__(self, count: int = 3, topics: dict[str, int] | None = None) -> None:
        self.topics = {"t": 1} if topics is None else topics
        self.truths: dict[Place, MovingPartition] = {}
        self.brokers = [ClusterBroker(self, node_id) for node_id in range(count)]
        self.controller = self.coordinator = 0
        self.committed: dict[Place, int] = {}
        self.hints = False

    async def __aenter__(self) -> MovingCluster:
        for broker in self.brokers:
            await broker.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def truth(self, topic: str = "t", partition: int = 0) -> MovingPartition:
        found = self.truths.get((topic, partition))
        if found is None:
            found = self.truths[topic, partition] = MovingPartition(partition % len(self.brokers))
        return found

    def move(self, to: int, topic: str = "t", partition: int = 0) -> None:
        """Elect another leader in the next epoch."""
        truth = self.truth(topic, partition)
        truth.leader, truth.epoch = to, truth.epoch + 1

    def move_all(self, away_from: int) -> None:
        for (topic, partition), truth in self.truths.items():
            if truth.leader == away_from:
                self.move((away_from + 1) % len(self.brokers), topic, partition)

    def seen(self, api_key: int) -> list[Any]:
        """The requests of one API so far, of all brokers."""
        return [request for broker in self.brokers for request in broker.seen(api_key)]
