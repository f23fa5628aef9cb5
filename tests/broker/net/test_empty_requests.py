"""Empty requests: every API in every served version answers them, or closes its own connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from broker.harness import Harness, Wire
from semel_broker.handlers import HANDLERS
from semel_protocol.api import APIS
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic
from semel_protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
)
from semel_protocol.messages.k20001_begin_transaction_group import BeginTransactionGroupRequest
from semel_protocol.messages.k20002_decide_transaction_group import (
    DecideTransactionGroupRequest,
    DecideTransactionGroupRequestTransaction,
)
from semel_protocol.messages.k20003_describe_transaction_groups import DescribeTransactionGroupsRequest
from semel_protocol.messages.k20004_forget_transaction_group import ForgetTransactionGroupRequest

WIRE_CASES = Path(__file__).parents[2] / "data" / "wire-cases.txt"
PRODUCE = 0

BESIDE_THE_CORPUS = [
    ElectLeadersRequest(topic_partitions=[ElectLeadersRequestTopic(topic="t", partitions=[1])]),
    ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsRequestTopic(name="t", partition_indexes=[1])]),
    BeginTransactionGroupRequest(group="g", timeout_ms=1),
    DecideTransactionGroupRequest(
        group="g",
        group_epoch=1,
        token="t",
        committed=True,
        transactions=[
            DecideTransactionGroupRequestTransaction(transactional_id="g/m", producer_id=1, producer_epoch=0)
        ],
    ),
    DescribeTransactionGroupsRequest(groups=["g"]),
    ForgetTransactionGroupRequest(group="g", group_epoch=1),
]
"""Requests of which the corpus of Kafka's own encoder has no list with an element, and semel's own."""


def served_requests() -> list[tuple[int, int, Any]]:
    """(key, version, message) of the requests in the corpus that this broker serves, and of `BESIDE_THE_CORPUS`."""
    cases = []
    for line in WIRE_CASES.read_text().splitlines():
        if line.startswith("#"):
            continue
        number, direction, version, body = line.split()
        api = APIS[int(number)]
        high = api.advertised[1] if api.advertised else -1
        if direction == "Q" and api.key in HANDLERS and api.low <= int(version) <= high:
            data = b"" if body == "-" else bytes.fromhex(body)
            cases.append((api.key, int(version), api.decode_request(data, int(version))))
    return cases + [
        (api.key, version, message)
        for message in BESIDE_THE_CORPUS
        for api in APIS.values()
        for version in range(api.low, api.high + 1)
        if api.request is type(message)
    ]


def emptied(value: Any, rows: int) -> Any:
    """The same message, empty: empty names and bytes, zeros, lists of at most `rows` empty elements."""
    if isinstance(value, list):
        return [emptied(one, rows) for one in value[:rows]]
    if isinstance(value, msgspec.Struct):
        fields = {field: emptied(getattr(value, field), rows) for field in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, memoryview):
        return b""
    if isinstance(value, UUID):
        return UUID(int=0)
    return None if value is None else type(value)()


def frame(key: int, version: int, body: bytes) -> bytes:
    tags = b"\x00" if APIS[key].is_flexible(version) else b""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\x00\x00" + tags  # client id ""
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


@pytest.mark.proves("empty-message")
@pytest.mark.parametrize("rows", [0, 1], ids=["empty lists", "lists of one empty element"])
async def test_empty_requests_are_answered_or_close_their_connection(broker: Harness, rows: int) -> None:
    asked = {}
    for key, version, request in served_requests():
        message = emptied(request, rows)
        if key == PRODUCE:
            message.acks = -1  # 0 is not answered
        asked[key, version, APIS[key].encode_request(message, version)] = None
    assert {key for key, _, _ in asked} >= set(HANDLERS)
    for key, version, body in asked:
        wire = await Wire.connect(broker.port)
        wire.send_bytes(frame(key, version, body))
        async with asyncio.timeout(10):
            answer = await wire.reader.read(4)  # b"": closed
        assert len(answer) in (0, 4)
        await wire.close()
    assert broker.log.of("request_failed") == []
    wire = await broker.wire()
    assert (await wire.call(ApiVersionsRequest())).error_code == 0
