"""PURE: Transaction metadata as records of `__transaction_state`, and back.

Byte for byte Kafka's: key version 0, value version 1. The ledger and the owner, for which Kafka has no field,
travel in semel's own tagged fields, which other readers skip.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct as Layout

from semel_protocol.primitives import Buffer, uvarint
from semel_protocol.schema import codec
from semel_storage.internal_topics import (
    TRANSACTION_LOG_KEY,
    TRANSACTION_LOG_VALUE,
    Row,
    TransactionLogKey,
    TransactionLogValue,
    TransactionLogValueFence,
    TransactionLogValuePartitions,
    decode_versioned,
    encode_versioned,
    version_of,
)

from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import FenceReason, FenceRecord, Fences
from semel_broker.txn.model.metadata import DEAD, EMPTY, TopicPartition, TransactionMetadata, TransactionState

KNOWN_TAILS_MAX = 1024
_HEAD = Layout(">hqhibBqq")
"""A value of version 1 without partitions, up to its tagged fields: version, producer id, epoch, timeout, state,
length of the array of partitions, last update, start."""
_FRONT = Layout(">hqhib")
_TIMES = Layout(">qq")
"""The parts before and behind the partitions."""
_PARTITIONS_CODEC = codec(TransactionLogValuePartitions, TRANSACTION_LOG_VALUE, True)
_NO_PARTITIONS = (0, 1)
"""Null and empty, as compact lengths."""
_PARTITIONS_AT = 17
_KEY_HEAD = Layout(">hh")
_STATES = tuple(TransactionState)


def row_of(txn: TransactionMetadata) -> Row:
    """The record that stores `txn`; a tombstone for one that is DEAD.

    Three of them are written in the life of each transaction, which differ in a few fields in front of the tagged ones.
    """
    key = _key(txn.transactional_id)
    if txn.state is DEAD:
        return key, None
    front = _FRONT.pack(TRANSACTION_LOG_VALUE, txn.producer_id, txn.producer_epoch, txn.timeout_ms, txn.state)
    partitions = b"\x00" if txn.state is EMPTY else _partitions(txn.partitions)
    tail = _tail(
        txn.previous_producer_id,
        txn.next_producer_id,
        txn.next_producer_epoch,
        txn.last_producer_epoch,
        txn.client_transaction_version,
        txn.owner,
        txn.fences,
        txn.group_epoch,
    )
    return key, b"".join((front, partitions, _TIMES.pack(txn.last_update_ms, txn.start_ms), tail))


@lru_cache(KNOWN_TAILS_MAX)
def _key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), TRANSACTION_LOG_KEY)


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    rows = [
        TransactionLogValuePartitions(topic=topic, partition_ids=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]
    out: list[Buffer] = [uvarint(len(rows) + 1)]
    for row in rows:
        _PARTITIONS_CODEC.encode(row, out)
    return b"".join(out)


@lru_cache(KNOWN_TAILS_MAX)
def _tail(
    previous_producer_id: int,
    next_producer_id: int,
    next_producer_epoch: int,
    last_producer_epoch: int,
    client_transaction_version: int,
    owner: ClientName,
    fences: Fences,
    group_epoch: int,
) -> bytes:
    """The tagged fields of a value."""
    value = TransactionLogValue(
        producer_id=0,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=0,
        transaction_timeout_ms=0,
        transaction_status=0,
        client_transaction_version=client_transaction_version,
        next_producer_epoch=next_producer_epoch,
        last_producer_epoch=last_producer_epoch,
        client_id=owner.client_id,
        client_host=owner.host,
        fences=[_stored_fence(fence) for fence in fences],
        group_epoch=group_epoch,
    )
    return encode_versioned(value, TRANSACTION_LOG_VALUE)[_HEAD.size :]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition indexes per topic, in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def key_of(data: bytes) -> str | None:
    """The transactional id of a key; None for a kind of record that a later release wrote. Raises ProtocolError."""
    if data.isascii() and data.startswith(_KEY_HEAD.pack(TRANSACTION_LOG_KEY, len(data) - _KEY_HEAD.size)):
        return data[_KEY_HEAD.size :].decode("ascii")
    if version_of(data) != TRANSACTION_LOG_KEY:
        return None
    return decode_versioned(TransactionLogKey, data).transactional_id


def metadata_of(transactional_id: str, data: bytes) -> TransactionMetadata:
    """The reverse of `row_of`. Raises ProtocolError for malformed bytes, ValueError for a state that is none.

    A start reads one for each transactional id. Most have no transaction open; what they differ in lies in front, and
    the tagged fields behind it are those of many others: the client's name.
    """
    if len(data) < _HEAD.size or data[1] != TRANSACTION_LOG_VALUE or data[_PARTITIONS_AT] not in _NO_PARTITIONS:
        return _decoded(transactional_id, data)
    version, producer_id, epoch, timeout_ms, state, _, last_update_ms, start_ms = _HEAD.unpack_from(data)
    if version != TRANSACTION_LOG_VALUE or not 0 <= state < len(_STATES):
        return _decoded(transactional_id, data)
    like = _with_tail(data[_HEAD.size :])
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=_STATES[state],
        last_producer_epoch=like.last_producer_epoch,
        previous_producer_id=like.previous_producer_id,
        next_producer_id=like.next_producer_id,
        next_producer_epoch=like.next_producer_epoch,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        client_transaction_version=like.client_transaction_version,
        owner=like.owner,
        fences=like.fences,
        group_epoch=like.group_epoch,
    )


@lru_cache(KNOWN_TAILS_MAX)
def _with_tail(tail: bytes) -> TransactionMetadata:
    """Metadata with only the tagged fields set. Raises ProtocolError."""
    return _decoded("", _HEAD.pack(TRANSACTION_LOG_VALUE, 0, 0, 0, 0, 0, 0, 0) + tail)


def _decoded(transactional_id: str, data: bytes) -> TransactionMetadata:
    value = decode_versioned(TransactionLogValue, data)
    partitions = {(row.topic, index): None for row in value.transaction_partitions or () for index in row.partition_ids}
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        last_producer_epoch=value.last_producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        partitions=partitions,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
        owner=ClientName(value.client_id, value.client_host),
        fences=tuple(_fence(fence) for fence in value.fences),
        group_epoch=value.group_epoch,
    )


def _stored_fence(fence: FenceRecord) -> TransactionLogValueFence:
    return TransactionLogValueFence(
        at_ms=fence.at_ms,
        reason=fence.reason,
        old_producer_id=fence.old.producer_id,
        old_epoch=fence.old.epoch,
        new_producer_id=fence.new.producer_id,
        new_epoch=fence.new.epoch,
        client_id=fence.by.client_id,
        client_host=fence.by.host,
        note=fence.note,
    )


def _fence(stored: TransactionLogValueFence) -> FenceRecord:
    return FenceRecord(
        FenceReason(stored.reason),
        stored.at_ms,
        ClientName(stored.client_id, stored.client_host),
        stored.note,
        ProducerIdentity(stored.old_producer_id, stored.old_epoch),
        ProducerIdentity(stored.new_producer_id, stored.new_epoch),
    )
