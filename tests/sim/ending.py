"""Reads the final state of a run: clients read all records again, and the logs of the leaders are read directly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from semel import Admin, ConfigResource, ConfigResourceType, Consumer, TopicPartition
from semel.errors import KafkaError
from semel_broker.node import Node
from semel_broker.txn.model.records import key_of
from semel_protocol.control import read_marker
from semel_protocol.records import decode_batch
from semel_storage.internal_topics import (
    TRANSACTION_STATE,
    TRANSACTION_STATES,
    TransactionLogValue,
    decode_versioned,
)
from semel_storage.log.log import Log

from sim.client import SimEdge
from sim.events import Asking, Place
from sim.final import CoordinatorDecision, Final, LogBatch, PartitionEnd, ReadRecord
from sim.history import History
from sim.host import Host
from sim.look_ups import check_look_ups

POLL_MS = 500
STALLED_POLLS_MAX = 60


class FinalReading:
    """The process that reads the final state. `main` fills `final`; `final.undrained` names unreadable parts."""

    def __init__(self, address: str, history: History, groups: list[str], nodes: Callable[[], Sequence[Node]]) -> None:
        self.final = Final()
        self._address, self._history, self._groups, self._nodes = address, history, groups, nodes

    async def main(self, host: Host) -> None:
        """Read all. Start again if topics appear or disappear meanwhile: a late request may delete a topic."""
        settings: dict[str, Any] = {"bootstrap_servers": self._address, "edge": SimEdge(host)}
        while not await self._read_all(settings):
            self.final = Final()

    async def _read_all(self, settings: dict[str, Any]) -> bool:
        """False if it failed while the topics changed. Raises KafkaError if it failed without such a change."""
        try:
            await self._look(settings)
            if not self.final.undrained:
                return True
        except KafkaError:
            if not await self._has_changed(settings):
                raise
            return False
        return not await self._has_changed(settings)

    async def _has_changed(self, settings: dict[str, Any]) -> bool:
        async with Admin(**settings) as admin:
            return await topics_of(admin) != self.final.topics

    async def _look(self, settings: dict[str, Any]) -> None:
        final = self.final
        async with Admin(**settings) as admin:
            final.topics = await topics_of(admin)
            await self._configs(admin)
            for group in self._groups:
                offsets = await admin.list_consumer_group_offsets(group)
                final.groups[group] = {(place.topic, place.partition): at.offset for place, at in offsets.items()}
        places = [TopicPartition(name, number) for name, count in final.topics.items() for number in range(count)]
        final.partitions = {(place.topic, place.partition): PartitionEnd() for place in places}
        for isolation in ("read_uncommitted", "read_committed"):
            await self._read(places, isolation, settings)
        nodes = self._nodes()
        if nodes:
            self._look_inside(nodes)

    async def _configs(self, admin: Admin) -> None:
        asked = {
            event.target: None
            for event in self._history.events
            if isinstance(event, Asking) and event.change == "configure" and event.target in self.final.topics
        }
        if asked:
            resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in asked]
            for described in await admin.describe_configs(resources):
                self.final.configs[described.name] = {
                    name: "" if entry.value is None else entry.value for name, entry in described.configs.items()
                }

    async def _read(self, places: list[TopicPartition], isolation: Any, settings: dict[str, Any]) -> None:
        if not places:
            return
        final = self.final
        async with Consumer(isolation_level=isolation, auto_offset_reset="earliest", **settings) as consumer:
            starts = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
            consumer.assign(places)
            await consumer.seek_to_beginning()
            for place in places:
                end = final.partitions[place.topic, place.partition]
                end.start_offset = starts[place]
                if isolation == "read_committed":
                    end.last_stable_offset = ends[place]
                else:
                    end.high_watermark = ends[place]
            stalled, before = 0, dict[TopicPartition, int]()
            while stalled < STALLED_POLLS_MAX:
                positions = {place: await consumer.position(place) for place in places}
                behind = [place for place in places if positions[place] < ends[place]]
                if not behind:
                    return
                stalled = stalled + 1 if positions == before else 0  # aborted records move it, and are not returned
                before = positions
                polled = await consumer.getmany(timeout_ms=POLL_MS)
                for place, records in polled.items():
                    end = final.partitions[place.topic, place.partition]
                    rows = end.committed if isolation == "read_committed" else end.uncommitted
                    rows.extend(ReadRecord(record.offset, _text(record.key), _text(record.value)) for record in records)
            final.undrained.append(f"a {isolation} reader did not reach the end of {behind}")

    def _look_inside(self, nodes: Sequence[Node]) -> None:
        """Read the logs of the leaders."""
        final = self.final
        decisions: list[CoordinatorDecision] | None = []
        for partition in (each for node in nodes for each in node.broker.topics.partitions() if each.is_leading):
            end = final.partitions.get((partition.topic, partition.index))
            if end is not None:
                log = partition.open()
                end.batches = batches_of(log)
                check_look_ups(log)
            elif partition.topic == TRANSACTION_STATE and decisions is not None:
                found = decisions_of(partition.open())
                decisions = None if found is None else decisions + found
        final.decisions = decisions


async def topics_of(admin: Admin) -> dict[str, int]:
    """The number of partitions of each topic."""
    return {topic.name: len(topic.partitions) for topic in await admin.describe_topics() if not topic.is_internal}


def batches_of(log: Log) -> list[LogBatch]:
    """The batches of a log, in order."""
    found = []
    for segment in log.segments:
        for _, header, batch in segment.scan():
            marker = read_marker(batch, header) if header.is_control else None
            found.append(
                LogBatch(
                    base_offset=header.base_offset,
                    last_offset=header.last_offset,
                    producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch,
                    base_sequence=header.base_sequence,
                    last_sequence=header.last_sequence,
                    is_transactional=header.is_transactional,
                    marker=marker.control_type.name.lower() if marker is not None else "",
                    coordinator_epoch=marker.coordinator_epoch if marker is not None else -1,
                )
            )
    return found


def decisions_of(log: Log) -> list[CoordinatorDecision] | None:
    """All records of a partition of `__transaction_state`; None if compaction has removed some."""
    found: list[CoordinatorDecision] = []
    expected = 0
    for segment in log.segments:
        for _, header, batch in segment.scan():
            for record in decode_batch(batch, header):
                if record.offset != expected:
                    return None
                expected += 1
                transactional_id = None if record.key is None else key_of(record.key)
                if record.value is not None and transactional_id is not None:
                    found.append(_decision(transactional_id, record.value))
    return found


def _decision(transactional_id: str, data: bytes) -> CoordinatorDecision:
    value = decode_versioned(TransactionLogValue, data)
    places: list[Place] = [
        (topic.topic, number) for topic in value.transaction_partitions or [] for number in topic.partition_ids
    ]
    return CoordinatorDecision(
        transactional_id=transactional_id,
        status=TRANSACTION_STATES[value.transaction_status],
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        places=tuple(places),
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
