"""A scripted cluster: several FakeBrokers over one set of partitions. Each broker answers only for what it leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from client.fake_broker import FakeBroker
from semel.structs import TopicPartition
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode
from semel_protocol.messages import k02_list_offsets as list_offsets
from semel_protocol.messages import k03_metadata as metadata
from semel_protocol.messages import k10_find_coordinator as find_coordinator
from semel_protocol.messages import k19_create_topics as create
from semel_protocol.messages import k32_describe_configs as describe_configs
from semel_protocol.messages import k43_elect_leaders as elect
from semel_protocol.messages import k45_alter_partition_reassignments as alter
from semel_protocol.messages import k46_list_partition_reassignments as moves
from semel_protocol.messages import k60_describe_cluster as describe_cluster

NOBODY = -1


class FakePartition(msgspec.Struct):
    """One partition: the first of the replicas is its preferred leader."""

    replicas: list[int]
    leader: int
    isr: list[int]
    epoch: int = 0
    target: list[int] | None = None


class FakeCluster:
    """`FakeCluster({"t": [(1, 2, 3), (2, 3, 1)]})`: topic -> the replicas of each partition. Brokers are in `nodes`.

    Each request for the progress of moves completes one partition, unless `stalled`.
    """

    def __init__(self, topics: Mapping[str, Sequence[Sequence[int]]], racks: Mapping[int, str] | None = None) -> None:
        self.places = {
            TopicPartition(name, index): FakePartition(list(ids), ids[0], list(ids))
            for name, replicas in topics.items()
            for index, ids in enumerate(replicas)
        }
        self.racks = dict(racks or {})
        self.controller = 1
        self.stalled = False
        self.coordinators: dict[str, int] = {}
        self.settings: dict[str, str] = {}
        self.stale: dict[TopicPartition, FakePartition | None] = {}
        """The metadata to answer once for partitions that have changed: brokers learn of changes late."""
        versions = {key: (0, api.high) for key, api in APIS.items() if key not in (0, 9, 10)}
        versions[10] = (0, 2)
        self.nodes = {node_id: _Node(self, node_id, versions) for node_id in (1, 2, 3)}
        self.live = list(self.nodes)
        self.hanging: dict[int, int] = {}
        """Of brokers whose disks hang: for how long, in ms."""
        self.sessions: dict[int, int] = {}
        """The length of the brokers' sessions in ms (of 9 s), for brokers with a shared store."""
        self.is_store_away = False
        """Whether the controller cannot reach the store: it does not know the reassignments."""

    @property
    def bootstrap(self) -> str:
        return ",".join(self.nodes[node_id].address for node_id in self.live)

    async def __aenter__(self) -> FakeCluster:
        for node in self.nodes.values():
            await node.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node_id in self.live:
            await self.nodes[node_id].close()

    async def down(self, node_id: int) -> None:
        """Stop the broker; the controller has elected other leaders among the replicas in sync."""
        await self.nodes[node_id].close()
        self.notice(node_id)

    def notice(self, node_id: int) -> None:
        """The second half of `down`. Until then metadata names a broker that does not answer."""
        self.live.remove(node_id)
        for place in self.places.values():
            if node_id in place.isr and len(place.isr) > 1:
                place.isr.remove(node_id)
            if place.leader == node_id:
                place.leader = next((one for one in place.isr if one in self.live), NOBODY)
                place.epoch += 1

    def asked(self, api_key: int) -> dict[int, int]:
        """The number of requests of this API at each broker."""
        return {node_id: len(node.seen(api_key)) for node_id, node in self.nodes.items() if node.seen(api_key)}


class _Node(FakeBroker):
    def __init__(self, cluster: FakeCluster, node_id: int, versions: dict[int, tuple[int, int]]) -> None:
        super().__init__(versions=dict(versions))
        self.cluster, self.node_id = cluster, node_id
        self.answers |= {
            2: self.list_offsets,
            19: self.create_topics,
            32: self.describe_configs,
            43: self.elect_leaders,
            45: self.alter_reassignments,
            46: self.list_reassignments,
            60: self.describe_cluster,
        }

    @property
    def is_controller(self) -> bool:
        return self.cluster.controller == self.node_id

    async def metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        cluster = self.cluster
        asked = None if request.topics is None else [row.name or "" for row in request.topics]
        told = {
            at: cluster.stale.pop(at, place)
            for at, place in cluster.places.items()
            if asked is None or at.topic in asked
        }
        places = {at: place for at, place in told.items() if place is not None}
        known = dict.fromkeys(at.topic for at in places)
        topics = []
        for name in known if asked is None else asked:
            if name in known:
                topics.append(metadata.MetadataResponseTopic(name=name, partitions=self._partitions(name, places)))
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(metadata.MetadataResponseTopic(name=name, error_code=code))
        brokers = [
            metadata.MetadataResponseBroker(
                node_id=node_id, host="127.0.0.1", port=cluster.nodes[node_id].port, rack=cluster.racks.get(node_id)
            )
            for node_id in cluster.live
        ]
        return metadata.MetadataResponse(
            brokers=brokers, cluster_id="fake", controller_id=cluster.controller, topics=topics
        )

    def _partitions(
        self, name: str, places: Mapping[TopicPartition, FakePartition]
    ) -> list[metadata.MetadataResponsePartition]:
        return [
            metadata.MetadataResponsePartition(
                error_code=ErrorCode.NONE if place.leader in self.cluster.live else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=at.partition,
                leader_id=place.leader,
                leader_epoch=place.epoch,
                replica_nodes=place.replicas,
                isr_nodes=place.isr,
                offline_replicas=[node_id for node_id in place.replicas if node_id not in self.cluster.live],
            )
            for at, place in places.items()
            if at.topic == name
        ]

    async def describe_cluster(self, request: Any) -> describe_cluster.DescribeClusterResponse:
        """Answer with the fields that the request asks for."""
        left_ms = self.cluster.sessions.get(self.node_id, -1)
        return describe_cluster.DescribeClusterResponse(
            session_left_ms=left_ms,
            session_timeout_ms=-1 if left_ms < 0 else 9_000,
            disk_hangs_ms=self.cluster.hanging.get(self.node_id, -1),
            disk_path=f"/data/{self.node_id}" if self.node_id in self.cluster.hanging else "",
        )

    async def create_topics(self, request: create.CreateTopicsRequest) -> create.CreateTopicsResponse:
        """Create topics with the requested replicas, or a single one here. Other brokers learn of them later."""
        rows = []
        for topic in request.topics:
            given = [row.broker_ids for row in topic.assignments] or [[self.node_id]] * max(topic.num_partitions, 1)
            for index, ids in enumerate(given):
                at = TopicPartition(topic.name, index)
                self.cluster.places[at] = FakePartition(list(ids), ids[0], list(ids))
                self.cluster.stale[at] = None
            rows.append(create.CreateTopicsResponseTopic(name=topic.name))
        return create.CreateTopicsResponse(topics=rows)

    async def find_coordinator(self, request: Any) -> find_coordinator.FindCoordinatorResponse:
        node_id = self.cluster.coordinators.get(request.key, 1)
        port = self.cluster.nodes[node_id].port
        return find_coordinator.FindCoordinatorResponse(node_id=node_id, host="127.0.0.1", port=port)

    async def list_offsets(self, request: list_offsets.ListOffsetsRequest) -> list_offsets.ListOffsetsResponse:
        """A partition begins at 0 and ends at 100 times its number."""
        rows = []
        for topic in request.topics:
            parts = []
            for row in topic.partitions:
                leads = self.cluster.places[TopicPartition(topic.name, row.partition_index)].leader == self.node_id
                parts.append(
                    list_offsets.ListOffsetsResponsePartition(
                        partition_index=row.partition_index,
                        error_code=ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        offset=0 if row.timestamp == -2 else 100 * row.partition_index,
                    )
                )
            rows.append(list_offsets.ListOffsetsResponseTopic(name=topic.name, partitions=parts))
        return list_offsets.ListOffsetsResponse(topics=rows)

    async def describe_configs(self, request: Any) -> describe_configs.DescribeConfigsResponse:
        results = [
            describe_configs.DescribeConfigsResponseResult(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    describe_configs.DescribeConfigsResponseConfig(name=name, value=value, config_source=1)
                    for name, value in self.cluster.settings.items()
                ],
            )
            for resource in request.resources
        ]
        return describe_configs.DescribeConfigsResponse(results=results)

    async def elect_leaders(self, request: elect.ElectLeadersRequest) -> elect.ElectLeadersResponse:
        if not self.is_controller:
            return elect.ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)
        asked = request.topic_partitions
        named = None if asked is None else [TopicPartition(t.topic, index) for t in asked for index in t.partitions]
        results: dict[str, list[elect.ElectLeadersResponsePartition]] = {}
        for at in self.cluster.places if named is None else named:
            code = self._elect(at)
            if named is not None or code != ErrorCode.ELECTION_NOT_NEEDED:
                row = elect.ElectLeadersResponsePartition(partition_id=at.partition, error_code=code)
                results.setdefault(at.topic, []).append(row)
        topics = [elect.ElectLeadersResponseTopic(topic=name, partition_result=rows) for name, rows in results.items()]
        return elect.ElectLeadersResponse(replica_election_results=topics)

    def _elect(self, at: TopicPartition) -> ErrorCode:
        place = self.cluster.places.get(at)
        if place is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        preferred = place.replicas[0]
        if place.leader == preferred:
            return ErrorCode.ELECTION_NOT_NEEDED
        if preferred not in self.cluster.live or preferred not in place.isr:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        place.leader, place.epoch = preferred, place.epoch + 1
        return ErrorCode.NONE

    async def alter_reassignments(
        self, request: alter.AlterPartitionReassignmentsRequest
    ) -> alter.AlterPartitionReassignmentsResponse:
        if not self.is_controller:
            return alter.AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        rows = [
            alter.AlterPartitionReassignmentsResponseTopic(
                name=topic.name, partitions=[self._move(topic.name, row) for row in topic.partitions]
            )
            for topic in request.topics
        ]
        return alter.AlterPartitionReassignmentsResponse(responses=rows)

    def _move(
        self, topic: str, row: alter.AlterPartitionReassignmentsRequestPartition
    ) -> alter.AlterPartitionReassignmentsResponsePartition:
        place = self.cluster.places[TopicPartition(topic, row.partition_index)]
        code, why = ErrorCode.NONE, None
        if row.replicas is None:
            if place.target is None:
                code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            place.target = None
        elif any(node_id not in self.cluster.live for node_id in row.replicas):
            code, why = ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a broker that is not there"
        else:
            place.target = list(row.replicas)
        return alter.AlterPartitionReassignmentsResponsePartition(
            partition_index=row.partition_index, error_code=code, error_message=why
        )

    async def list_reassignments(
        self, request: moves.ListPartitionReassignmentsRequest
    ) -> moves.ListPartitionReassignmentsResponse:
        if not self.is_controller:
            return moves.ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        if self.cluster.is_store_away:
            return moves.ListPartitionReassignmentsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
        asked = request.topics
        named = (
            None if asked is None else [TopicPartition(t.name, index) for t in asked for index in t.partition_indexes]
        )
        topics: dict[str, list[moves.ListPartitionReassignmentsResponsePartition]] = {}
        for at, place in self.cluster.places.items():
            if place.target is not None and (named is None or at in named):
                row = moves.ListPartitionReassignmentsResponsePartition(
                    partition_index=at.partition,
                    replicas=[*place.target, *(one for one in place.replicas if one not in place.target)],
                    adding_replicas=[one for one in place.target if one not in place.replicas],
                    removing_replicas=[one for one in place.replicas if one not in place.target],
                )
                topics.setdefault(at.topic, []).append(row)
        self._go_on(topics)
        rows = [moves.ListPartitionReassignmentsResponseTopic(name=name, partitions=p) for name, p in topics.items()]
        return moves.ListPartitionReassignmentsResponse(topics=rows)

    def _go_on(self, told: dict[str, list[moves.ListPartitionReassignmentsResponsePartition]]) -> None:
        """Complete the oldest move."""
        moving = [TopicPartition(name, row.partition_index) for name, rows in told.items() for row in rows]
        if moving and not self.cluster.stalled:
            place = self.cluster.places[moving[0]]
            assert place.target is not None
            self.cluster.stale[moving[0]] = msgspec.structs.replace(place)
            place.replicas, place.isr, place.target = place.target, list(place.target), None
            if place.leader not in place.replicas:
                place.leader, place.epoch = place.replicas[0], place.epoch + 1
