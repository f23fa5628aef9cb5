"""Messages without recorded bytes of Kafka, between brokers and about clusters, compared with kafka-python."""

from __future__ import annotations

import importlib
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.test_messages import messages
from semel_protocol.api import APIS, Api
from semel_protocol.fields import Array, Kind, fields_of
from semel_protocol.messages.k01_fetch import FetchRequestReplicaState
from semel_protocol.schema import Message

OWN_TAGS = 10_000
"""The first tag of fields that Kafka does not have."""
THEIR_MODULES = ("admin.topics", "consumer.fetch", "producer.transaction")
VERSIONS = {1: range(12, 16), 24: range(6), 43: range(3), 45: range(2), 46: range(1)}
"""Fetch v12 and AddPartitionsToTxn v0-3 have been recorded: they are here to show that the comparison works."""

BODIES = [
    pytest.param(APIS[key], side, version, id=f"{APIS[key].name}-{side}-v{version}")
    for key, versions in VERSIONS.items()
    for version in versions
    for side in ("Request", "Response")
]


def their_class(name: str) -> Any:
    for module in THEIR_MODULES:
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    raise AssertionError(f"kafka-python has no {name}")


def as_theirs(cls: Any, message: Any, version: int) -> Any:
    """The same message as an object of kafka-python, by field names; defaults may be missing."""
    given = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.exists_in(version) and not (field.tag is not None and value == field.default):
            given[field.name] = _value(cls, field.name, field.type, value, version)
    return cls(version=version, **given)


def _without_own_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_own_fields(each) for each in value]
    if not isinstance(value, Message):
        return value
    kept = {
        field.name: _without_own_fields(getattr(value, field.name))
        for field in fields_of(type(value))
        if field.tag is None or field.tag < OWN_TAGS
    }
    return type(value)(**kept)


def _value(cls: Any, name: str, kind: Any, value: Any, version: int) -> Any:
    inner = kind.element if isinstance(kind, Array) else kind
    if value is None or (isinstance(inner, Kind) and inner is not Kind.UUID):
        return value
    if inner is Kind.UUID:
        return uuid.UUID(bytes=value)
    nested = cls._struct.fields[name].data_class
    if isinstance(kind, Array):
        return [as_theirs(nested, each, version) for each in value]
    return as_theirs(nested, value, version)


@pytest.mark.parametrize(("api", "side", "version"), BODIES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_bytes_are_kafka_pythons_and_are_read_back(api: Api, side: str, version: int, data: Any) -> None:
    codec = api.request_codec(version) if side == "Request" else api.response_codec(version)
    message = _without_own_fields(data.draw(messages(codec.cls, version)))
    foreign = bytes(as_theirs(their_class(api.name + side), message, version).encode(version=version))
    assert codec.encode_bytes(message) == foreign
    assert codec.decode(foreign) == message


@pytest.mark.parametrize("api", [APIS[key] for key in VERSIONS], ids=lambda api: api.name)
def test_the_first_flexible_version_is_kafka_pythons(api: Api) -> None:
    for side in ("Request", "Response"):
        for version in range(api.low, api.high + 1):
            assert their_class(api.name + side).flexible_version_q(version) == api.is_flexible(version)


def test_fetch_of_a_follower_has_its_replica_state_in_a_tag() -> None:
    """KIP-903, bytes written by hand: tag 1 has replica id, replica epoch and its own tag buffer."""
    api = APIS[1]
    state = FetchRequestReplicaState(replica_id=3, replica_epoch=0x1122334455)
    fetch = api.request(replica_state=state, max_wait_ms=1, min_bytes=2, isolation_level=0, topics=[])
    fixed = bytes.fromhex("00000001 00000002 7fffffff 00 00000000 ffffffff 01 01 01")
    state = bytes.fromhex("00000003 0000001122334455 00")
    assert api.encode_request(fetch, 15) == fixed + b"\x01\x01" + bytes([len(state)]) + state
    fetch.replica_id = 3
    assert api.encode_request(fetch, 12) == b"\x00\x00\x00\x03" + fixed + b"\x00"
