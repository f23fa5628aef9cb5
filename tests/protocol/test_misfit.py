"""An encoder's error names the field and the value, and tells a wrong value from one of a newer version."""

from __future__ import annotations

from typing import Any

import pytest
from semel_protocol.api import APIS
from semel_protocol.errors import ProtocolError
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest
from semel_protocol.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from semel_protocol.misfit import UnfitError


def created(**values: Any) -> CreateTopicsRequest:
    right: dict[str, Any] = {
        "name": "t",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return CreateTopicsRequest(
        topics=[CreateTopicsRequestTopic(**{**right, **values})], timeout_ms=5, validate_only=False
    )


def config(value: Any) -> dict[str, Any]:
    return {"configs": [CreateTopicsRequestConfig(name="retention.ms", value=value)]}


@pytest.mark.parametrize(
    ("key", "version", "message", "reason", "is_of_type"),
    [
        (19, 5, created(**config(1000)), "topics[0].configs[0].value=1000 (int): not a str", False),
        (19, 5, created(**config(b"5")), "topics[0].configs[0].value=b'5' (bytes): not a str", False),
        (19, 5, created(name="\ud800"), r"topics[0].name='\ud800': not Unicode text: surrogates not allowed", True),
        (19, 5, created(name=None), "topics[0].name=None: not null", False),
        (19, 5, created(num_partitions=1.5), "topics[0].num_partitions=1.5 (float): not a whole number", False),
        (
            19,
            5,
            created(replication_factor=1 << 15),
            "topics[0].replication_factor=32768: not from -32768 to 32767",
            True,
        ),
        (19, 5, created(configs=5), "topics[0].configs=5 (int): not a list", False),
        (3, 12, MetadataRequest(topics=[5]), "topics[0]=5 (int): not a MetadataRequestTopic", False),  # type: ignore[list-item]
        (
            12,
            0,
            HeartbeatRequest(group_id="x" * 40_000, generation_id=1, member_id="m"),
            "longer than 32767 bytes",
            True,
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_field(
    key: int, version: int, message: Any, reason: str, is_of_type: bool
) -> None:
    for encode in (APIS[key].encode_request, in_steps):
        with pytest.raises(UnfitError) as raised:
            encode(message, version)  # type: ignore[operator]
        error = raised.value
        assert reason in error.reason
        assert (error.is_of_type, error.is_of_version) == (is_of_type, False)
        assert isinstance(error, ProtocolError)
        assert reason in str(error)


def in_steps(message: Any, version: int) -> None:
    key = {CreateTopicsRequest: 19, MetadataRequest: 3, HeartbeatRequest: 12}[type(message)]
    list(APIS[key].request_codec(version).encode_in_steps(message, []))


def test_a_null_that_a_newer_version_carries_is_one_of_versions() -> None:
    with pytest.raises(UnfitError, match="topics=None: null needs a newer version") as raised:
        APIS[3].encode_request(MetadataRequest(topics=None), 0)
    assert raised.value.is_of_version
    APIS[3].encode_request(MetadataRequest(topics=None), 1)
    APIS[3].encode_request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 0)
