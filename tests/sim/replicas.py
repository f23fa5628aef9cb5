"""Reads every replica of every partition from the brokers' memory at the end, for the checker of divergence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from semel_broker.groups.replay import GroupReplay
from semel_broker.node import Node
from semel_broker.partitions.partition import Partition
from semel_protocol.records import decode_batch
from semel_storage.internal_topics import (
    CONSUMER_OFFSETS,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offsets_key,
    decode_versioned,
)
from semel_storage.log.log import Log

from sim.clock import EPOCH_MS
from sim.events import Place
from sim.final import ReplicaLog, StoredRecord
from sim.look_ups import check_look_ups

CLOCK_FAULTS_MS = 60_000
"""How far one clock fault sets a clock back at most."""


def replicas_of(nodes: Sequence[Node]) -> dict[Place, list[ReplicaLog]]:
    """The replicas of each partition, in the order of the brokers."""
    found: dict[Place, list[ReplicaLog]] = {}
    for node in nodes:
        broker = node.broker
        may_have_expired = _may_have_expired(broker.world.now_ms(), broker.config.producer_id_expiration_ms)
        for partition in node.broker.topics.here():
            forgets = "compact" in node.broker.topics.required(partition.topic).config.cleanup_policy
            replica = look_at(f"broker-{node.broker.node_id}", partition, one_by_one=forgets)
            replica.may_have_expired = may_have_expired
            found.setdefault((partition.topic, partition.index), []).append(replica)
    return found


def _may_have_expired(now_ms: int, expiration_ms: int) -> bool:
    """Whether `expiration_ms` can have passed by this broker's clock since its first batch.

    A fault may have set the clock back before that batch.
    """
    return now_ms - EPOCH_MS + CLOCK_FAULTS_MS >= expiration_ms


def look_at(broker: str, partition: Partition, *, one_by_one: bool) -> ReplicaLog:
    """One replica. `one_by_one`: compaction removes single records, so it gets records instead of batches."""
    log = partition.open()
    check_look_ups(log)
    start, end = log.start_offset, log.end_offset
    aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in log.aborted_transactions(start, end)]
    return ReplicaLog(
        broker=broker,
        is_leader=partition.is_leading,
        start_offset=start,
        end_offset=end,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        batches=[] if one_by_one else [(base_offset, data) for base_offset, data in _batches(log)],
        records=list(_records(log, aborted)) if one_by_one else None,
        producers=[
            (
                state.producer_id,
                state.epoch,
                state.last_sequence,
                state.last_offset,
                state.coordinator_epoch,
                state.txn_first_offset,
            )
            for state in sorted(log.producers.all(), key=lambda state: state.producer_id)
        ],
        aborted=aborted,
        groups=_groups(log, partition.index) if partition.topic == CONSUMER_OFFSETS else {},
    )


def _batches(log: Log) -> Iterator[tuple[int, bytes]]:
    for segment in log.segments:
        for _, header, batch in segment.scan():
            yield header.base_offset, bytes(batch)


def _records(log: Log, aborted: Sequence[tuple[int, int, int]]) -> Iterator[StoredRecord]:
    for segment in log.segments:
        for _, header, batch in segment.scan():
            writer = (header.producer_id, header.producer_epoch, header.is_transactional, header.is_control)
            for record in decode_batch(batch, header):
                is_aborted = header.is_transactional and any(
                    producer_id == header.producer_id and first <= record.offset <= last
                    for producer_id, first, last in aborted
                )
                what = (*writer, record.timestamp, record.key, record.value, record.headers)
                is_bare = header.is_control or is_aborted or record.value is None
                key = None if header.is_control or is_aborted else record.key
                yield StoredRecord(record.offset, key, repr(what).encode(), is_bare)


def _groups(log: Log, index: int) -> dict[str, int]:
    """The committed offsets of the groups, as a coordinator would load them from this log."""
    replay = GroupReplay()
    for segment in log.segments:
        for _, header, batch in segment.scan():
            replay.feed(index, header, batch)
    found = {}
    for raw_key, raw_value in replay._latest.items():
        key = decode_offsets_key(raw_key) if raw_key is not None else None
        if isinstance(key, OffsetCommitKey) and raw_value is not None:
            value = decode_versioned(OffsetCommitValue, raw_value)
            found[f"{key.group} {key.topic}-{key.partition}"] = value.offset
    return found
