"""Reads the state of a cluster over raw connections: partitions from their leaders, groups from their coordinators."""

from __future__ import annotations

import asyncio
import ssl
import time

from broker.sasl_login import log_in
from broker.wire import Wire
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sim.events import Place

from demo.client_settings import of_semel
from faults.observer import NotReadable, Observer

CONNECT_S = 2.0
POLL_S = 0.1
GROUP, TRANSACTION = 0, 1
SINGLE_KEY_VERSION = 2
LOST = (ConnectionError, OSError, asyncio.IncompleteReadError, TimeoutError)


class ClusterObserver(Observer):
    """`async with ClusterObserver(addresses) as see`. `addresses`: node id -> host and port; brokers may be down.

    Its methods raise NotReadable, ConnectionError or TimeoutError if no broker can answer now.
    """

    def __init__(self, addresses: dict[int, tuple[str, int]]) -> None:
        self._addresses = addresses
        self._wires: dict[int, Wire] = {}
        self.metadata: MetadataResponse

    async def __aenter__(self) -> ClusterObserver:
        await self.look()
        return self

    async def __aexit__(self, *error: object) -> None:
        for wire in self._wires.values():
            await wire.close()

    async def look(self) -> None:
        """Request the metadata again, from the first broker that answers."""
        for node_id in self._addresses:
            try:
                self.metadata = await (await self._wire_to(node_id)).call(MetadataRequest(topics=None))
                return
            except LOST:
                self._wires.pop(node_id, None)
        raise NotReadable("no broker answers")

    async def _wire_to(self, node_id: int) -> Wire:
        if node_id not in self._addresses:
            raise NotReadable(f"there is no broker {node_id}")
        if node_id not in self._wires:
            async with asyncio.timeout(CONNECT_S):
                self._wires[node_id] = await connect(*self._addresses[node_id])
        return self._wires[node_id]

    def leaders(self) -> dict[Place, int]:
        """The leader of each partition, also of internal topics; -1: the partition has no leader."""
        return {
            (topic.name or "", partition.partition_index): partition.leader_id
            for topic in self.metadata.topics
            for partition in topic.partitions
        }

    def behind(self) -> str:
        """Text that names the missing brokers, or the partitions with a replica out of sync; "" if there are none."""
        if away := sorted(set(self._addresses) - {broker.node_id for broker in self.metadata.brokers}):
            return f"brokers {away} are down"
        late = [
            f"{topic.name}-{partition.partition_index}: leader {partition.leader_id}, in sync {partition.isr_nodes}"
            for topic in self.metadata.topics
            for partition in topic.partitions
            if len(partition.isr_nodes) < len(partition.replica_nodes) or partition.leader_id < 0
        ]
        return f"{len(late)} partitions are not in sync: {late[0]}" if late else ""

    async def leader_of(self, place: Place) -> Wire:
        return await self._wire_to(self.leaders().get(place, -1))

    async def coordinator_of(self, group: str) -> Wire:
        return await self._wire_to(await self.coordinator(group, GROUP))

    async def coordinator(self, key: str, key_type: int) -> int:
        """The node id of the coordinator of a group or transactional id. Raises NotReadable."""
        wire = next(iter(self._wires.values()))
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        answer: FindCoordinatorResponse = await wire.call(request, SINGLE_KEY_VERSION)
        if answer.error_code:
            raise NotReadable(f"coordinator of {key}: {ErrorCode(answer.error_code).name}")
        return answer.node_id


async def connect(host: str, port: int) -> Wire:
    """A connection to a broker, logged in if the brokers have users. Raises PermissionError if the login is refused."""
    given = of_semel("")
    if "sasl_mechanism" not in given:
        return Wire(*await asyncio.open_connection(host, port))
    context = ssl.create_default_context(cafile=given["ssl_cafile"])
    context.check_hostname = False
    wire = Wire(*await asyncio.open_connection(host, port, ssl=context))
    answer = await log_in(wire, given["sasl_plain_username"], given["sasl_plain_password"], given["sasl_mechanism"])
    if answer.error_code:
        raise PermissionError(answer.error_message)
    return wire


async def in_sync(addresses: dict[int, tuple[str, int]], timeout_s: float) -> str:
    """Wait until all brokers are live and all replicas in sync. Returns `behind` after `timeout_s`; "" on success."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            async with ClusterObserver(addresses) as see:
                left = see.behind()
        except (*LOST, NotReadable) as error:
            left = f"{type(error).__name__}: {error}"
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(POLL_S)
