"""PURE: Transaction groups as records of `__transaction_state`, and back.

The kind of record is semel's own: Kafka and other tools skip keys of versions that they do not know.
"""

from __future__ import annotations

from semel_storage.internal_topics import (
    TRANSACTION_GROUP_KEY,
    TRANSACTION_GROUP_VALUE,
    Row,
    TransactionGroupKey,
    TransactionGroupValue,
    decode_versioned,
    encode_versioned,
    version_of,
)

from semel_broker.txn.model.group_metadata import DEAD, TransactionGroup, TransactionGroupState
from semel_broker.txn.model.identity import ClientName


def group_row(group: TransactionGroup) -> Row:
    """The record that stores `group`; a tombstone for one that is DEAD."""
    key = encode_versioned(TransactionGroupKey(group=group.name), TRANSACTION_GROUP_KEY)
    if group.state is DEAD:
        return key, None
    value = TransactionGroupValue(
        group_epoch=group.epoch,
        state=group.state,
        owner=group.owner,
        client_id=group.client.client_id,
        client_host=group.client.host,
        timeout_ms=group.timeout_ms,
        begin_time_ms=group.begin_ms,
        last_update_time_ms=group.last_update_ms,
        decided_token=group.decided_token,
        decided_epoch=group.decided_epoch,
        note=group.note,
    )
    return key, encode_versioned(value, TRANSACTION_GROUP_VALUE)


def group_key_of(data: bytes) -> str | None:
    """The group of a key; None for any other kind of record. Raises ProtocolError."""
    if version_of(data) != TRANSACTION_GROUP_KEY:
        return None
    return decode_versioned(TransactionGroupKey, data).group


def group_of_row(name: str, data: bytes) -> TransactionGroup:
    """The reverse of `group_row`. Raises ProtocolError for malformed bytes, ValueError for a state that is none."""
    value = decode_versioned(TransactionGroupValue, data)
    return TransactionGroup(
        name=name,
        epoch=value.group_epoch,
        state=TransactionGroupState(value.state),
        owner=value.owner,
        client=ClientName(value.client_id, value.client_host),
        timeout_ms=value.timeout_ms,
        begin_ms=value.begin_time_ms,
        last_update_ms=value.last_update_time_ms,
        decided_token=value.decided_token,
        decided_epoch=value.decided_epoch,
        note=value.note,
    )
