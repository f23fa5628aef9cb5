"""PURE: decodes the records of the internal topics for `semel log dump`.

A decoder turns the key and value of one record into two dicts. It shows invalid bytes with the reason, because a dump
is often used to inspect damaged files.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import msgspec
from semel_protocol.errors import ProtocolError
from semel_protocol.schema import Int32, Message, codec

from semel_storage.internal_topics import (
    CONSUMER_GROUP_VALUES,
    CONSUMER_OFFSETS,
    OFFSETS_KEYS,
    TRANSACTION_GROUP_KEY,
    TRANSACTION_GROUP_STATES,
    TRANSACTION_LOG_KEY,
    TRANSACTION_STATE,
    TRANSACTION_STATES,
    VERSION_BYTES,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionGroupKey,
    TransactionGroupValue,
    TransactionLogKey,
    TransactionLogValue,
    decode_versioned,
    version_of,
)

Shown = str | dict[str, Any] | None
Decoder = Callable[[bytes | None, bytes | None], tuple[Shown, Shown]]

VALUE_OF: dict[type[Message], type[Message]] = {
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    **CONSUMER_GROUP_VALUES,
    TransactionLogKey: TransactionLogValue,
    TransactionGroupKey: TransactionGroupValue,
}
TRANSACTION_KEYS: dict[int, type[Message]] = {
    TRANSACTION_LOG_KEY: TransactionLogKey,
    TRANSACTION_GROUP_KEY: TransactionGroupKey,
}
TYPE_NAME: dict[type[Message], str] = {
    OffsetCommitKey: "offset_commit",
    GroupMetadataKey: "group_metadata",
    ConsumerGroupMetadataKey: "consumer_group_metadata",
    ConsumerGroupPartitionMetadataKey: "consumer_group_partition_metadata",
    ConsumerGroupMemberMetadataKey: "consumer_group_member_metadata",
    ConsumerGroupTargetAssignmentMetadataKey: "consumer_group_target_assignment_metadata",
    ConsumerGroupTargetAssignmentMemberKey: "consumer_group_target_assignment_member",
    ConsumerGroupCurrentMemberAssignmentKey: "consumer_group_current_member_assignment",
    ConsumerGroupRegularExpressionKey: "consumer_group_regular_expression",
    TransactionLogKey: "transaction",
    TransactionGroupKey: "transaction_group",
}


class ConsumerSubscription(Message, kw_only=True):
    """The subscription of a consumer; later versions append fields (KIP-429, KIP-792, KIP-881)."""

    topics: list[str]
    user_data: bytes | None = None


class ConsumerAssignmentPartitions(Message, kw_only=True):
    topic: str
    partitions: list[Int32]


class ConsumerAssignment(Message, kw_only=True):
    """The assignment of a consumer by the leader of its group."""

    assigned_partitions: list[ConsumerAssignmentPartitions]
    user_data: bytes | None = None


def text(data: bytes | None) -> str | None:
    """Bytes as one printable line: UTF-8 with escaped control characters, or 0x and hex."""
    if data is None:
        return None
    try:
        decoded = bytes(data).decode()
    except UnicodeDecodeError:
        return "0x" + bytes(data).hex()
    if decoded.isprintable():
        return decoded
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in decoded)


def plain(key: bytes | None, value: bytes | None) -> tuple[Shown, Shown]:
    """Decoder of any topic: keys and values as text."""
    return text(key), text(value)


def offsets(key: bytes | None, value: bytes | None) -> tuple[Shown, Shown]:
    """Decoder of `__consumer_offsets`: committed offsets, and groups with their members."""
    return _decode(OFFSETS_KEYS.get, key, value)


def transactions(key: bytes | None, value: bytes | None) -> tuple[Shown, Shown]:
    """Decoder of `__transaction_state`: transactional ids and transaction groups."""
    return _decode(TRANSACTION_KEYS.get, key, value)


DECODERS: dict[str, Decoder] = {"plain": plain, "offsets": offsets, "transactions": transactions}
DECODER_OF_TOPIC = {CONSUMER_OFFSETS: "offsets", TRANSACTION_STATE: "transactions"}


def decoder_for(partition_directory: str) -> str:
    """The decoder's name for a file in the directory `<topic>-<partition>`."""
    return DECODER_OF_TOPIC.get(partition_directory.rpartition("-")[0], "plain")


def _decode(
    key_class: Callable[[int], type[Message] | None], key: bytes | None, value: bytes | None
) -> tuple[Shown, Shown]:
    if key is None:
        return None, text(value)
    try:
        cls = key_class(version_of(key))
        if cls is None:
            return {"type": f"unknown v{version_of(key)}", "bytes": text(key)}, text(value)
        shown_key = {"type": TYPE_NAME[cls]} | _fields(decode_versioned(cls, key))
    except ProtocolError as e:
        return {"type": f"unreadable: {e}", "bytes": text(key)}, text(value)
    if value is None:
        return shown_key, None
    try:
        fields = _fields(decode_versioned(VALUE_OF[cls], value))
    except ProtocolError as e:
        return shown_key, {"unreadable": str(e), "bytes": text(value)}
    return shown_key, {"version": version_of(value)} | _readable(_named(fields))


def _fields(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(message, builtin_types=(bytes, memoryview))
    return fields


def _consumer_protocol(cls: type[Message], data: bytes) -> Any:
    """The version 0 fields of a member's subscription or assignment; the bytes if they are invalid."""
    try:
        return {"version": version_of(data)} | _fields(codec(cls, 0).decode(data, VERSION_BYTES))
    except ProtocolError:
        return data


def _readable(value: Any) -> Any:
    """`value` with bytes replaced by text, for JSON."""
    if isinstance(value, bytes | memoryview):
        return text(bytes(value))
    if isinstance(value, dict):
        return {name: _readable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_readable(inner) for inner in value]
    return value


def _named(value: dict[str, Any]) -> dict[str, Any]:
    """Replace state numbers by names, and decode subscriptions, assignments and topic ids."""
    if value.get("protocol_type") == "consumer":
        for member in value["members"]:
            member["subscription"] = _consumer_protocol(ConsumerSubscription, member["subscription"])
            member["assignment"] = _consumer_protocol(ConsumerAssignment, member["assignment"])
    topic_id = value.pop("topic_id", b"")
    if any(topic_id):
        value["topic_id"] = urlsafe_b64encode(topic_id).decode().rstrip("=")  # as Kafka writes a Uuid
    status = value.get("transaction_status")
    if status is not None and 0 <= status < len(TRANSACTION_STATES):
        value["transaction_status"] = TRANSACTION_STATES[status]
    step = value.get("state")
    if step is not None and 0 <= step < len(TRANSACTION_GROUP_STATES):
        value["state"] = TRANSACTION_GROUP_STATES[step]
    return value
