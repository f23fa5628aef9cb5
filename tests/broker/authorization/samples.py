"""A request for each API, made of its declaration.

It names the topic `t`, the group `g`, the transactional id `x` or the transaction group `s`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from broker.wire import batch
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
)
from semel_protocol.schema import ZERO_UUID, Message

NAMES = {
    "group_id": "g",
    "groups": "g",
    "group_ids": "g",
    "groups_names": "g",
    "key": "g",
    "coordinator_keys": "g",
    "transactional_id": "x",
    "transactional_ids": "x",
    "v3_and_below_transactional_id": "x",
    "group": "s",
    "principal": "User:x",
    "host": "*",
    "protocol_type": "consumer",
}
"""The texts of fields; every other one is the topic's name."""
NUMBERS = {
    "acks": -1,
    "timeout_ms": 1_000,
    "transaction_timeout_ms": 60_000,
    "session_timeout_ms": 10_000,
    "num_partitions": 1,
    "replication_factor": -1,
    "count": 9,
    "producer_id": 7,
    "v3_and_below_producer_id": 7,
    "resource_type": 2,
    "resource_type_filter": 1,
    "resource_pattern_type": 3,
    "pattern_type_filter": 1,
    "operation": 3,
    "permission_type": 3,
    "replica_id": -1,
}
EMPTY = ("configs", "assignments", "protocols", "transactions", "forgotten_topics_data")
GIVEN: dict[int, dict[str, Any]] = {
    0: {"transactional_id": None},
    10: {"key_type": 0},
    19: {"validate_only": False},
    35: {"topics": None},
    46: {"topics": None},
    66: {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": None},
    16: {"states_filter": [], "types_filter": []},
    48: {"components": []},
    49: {
        "entries": [
            AlterClientQuotasRequestEntry(
                entity=[AlterClientQuotasRequestEntity(entity_type="user", entity_name="x")],
                ops=[AlterClientQuotasRequestOp(key="producer_byte_rate", value=1e6, remove=False)],
            )
        ]
    },
    60: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    20_003: {"groups": ["s"]},
}
"""Fields of single APIs."""


def sample(key: int, topic_id: bytes = ZERO_UUID) -> Any:
    """A request. A new object each time, because it may be changed. `topic_id`: of the topic `t`."""
    return _message(APIS[key].request, {"topic_id": topic_id, **GIVEN.get(key, {})})


def _message(kind: type[msgspec.Struct], given: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(**{name: given[name] if name in given else _value(name, hint, given) for name, hint in hints.items()})


def _value(name: str, hint: Any, given: dict[str, Any]) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if name in ("group_instance_id", "committed_metadata", "cluster_id", "principal_filter", "host_filter"):
            return None
        return _value(name, next(each for each in arguments if each is not type(None)), given)
    if origin is list:
        return [] if name in EMPTY else [_value(name, arguments[0], given)]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _message(hint, {"topic_id": given["topic_id"]})
    if hint is str:
        return NAMES.get(name, "t")
    if hint is bool:
        return False
    if hint is int:
        return NUMBERS.get(name, 0)
    if name == "records":
        return batch(b"v")
    return bytes(16) if name == "replica_directory_id" else b""


def error_codes(response: object) -> Iterator[ErrorCode]:
    """All error codes of a response, at any depth."""
    if isinstance(response, Message):
        for name in response.__struct_fields__:
            value = getattr(response, name)
            if name in ("error_code", "partition_error_code"):
                yield ErrorCode(value)
            else:
                yield from error_codes(value)
    elif isinstance(response, list):
        for each in response:
            yield from error_codes(each)
