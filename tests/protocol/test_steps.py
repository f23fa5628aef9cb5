"""Messages are encoded and decoded in steps of a few elements, with the same bytes and values."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from protocol.test_messages import CASES, body
from semel_protocol.api import APIS
from semel_protocol.codegen import NUMBERS_STEP, STEP
from semel_protocol.errors import ProtocolError
from semel_protocol.headers import encode_request_frame, encode_response_frame, encode_response_frame_in_steps
from semel_protocol.messages.k01_fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from semel_protocol.messages.k16_list_groups import ListGroupsResponse, ListGroupsResponseGroup
from semel_protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from semel_protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from semel_protocol.primitives import Buffer

T = TypeVar("T")

NUMBERS = DescribeProducersRequestTopic(name="t", partition_indexes=list(range(20_000)))
GROUPS = [ListGroupsResponseGroup(group_id=f"g{n}", protocol_type="") for n in range(10_000)]
TOPICS = [
    FetchResponseTopic(topic=f"t{n}", partitions=[FetchResponsePartition(partition_index=n, records=bytes(n))])
    for n in range(2_000)
]
LONG: dict[str, tuple[int, str, int, Any]] = {
    "numbers": (61, "Q", 0, DescribeProducersRequest(topics=[NUMBERS])),
    "strings": (65, "Q", 0, DescribeTransactionsRequest(transactional_ids=[f"id-{n}" for n in range(10_000)])),
    "structs": (16, "R", 2, ListGroupsResponse(groups=GROUPS)),
    "structs of structs": (1, "R", 11, FetchResponse(responses=TOPICS)),
}


def run(steps: Generator[int, None, T]) -> tuple[T, list[int]]:
    """The result, and the number of elements of each step."""
    counts = []
    while True:
        try:
            counts.append(next(steps))
        except StopIteration as done:
            return done.value, counts


def test_kafkas_bytes_are_the_same_when_encoded_in_steps() -> None:
    for line in CASES.read_text().splitlines():
        if not line.startswith("#"):
            key, side, version, text = line.split()
            data = b"" if text == "-" else bytes.fromhex(text)
            codec = body(APIS[int(key)], side, int(version))
            message, _ = run(codec.decode_in_steps(data))
            assert message == codec.decode(data), line[:80]
            out: list[Buffer] = []
            run(codec.encode_in_steps(message, out))
            assert b"".join(out) == data, line[:80]


@pytest.mark.parametrize("name", LONG)
def test_a_long_message_takes_many_steps_of_a_few_elements(name: str) -> None:
    key, side, version, message = LONG[name]
    codec = body(APIS[key], side, version)
    out: list[Buffer] = []
    _, encoded = run(codec.encode_in_steps(message, out))
    data = b"".join(out)
    assert data == codec.encode_bytes(message)
    same, decoded = run(codec.decode_in_steps(data))
    assert same == codec.decode(data)
    for counts in (encoded, decoded):
        assert max(counts) <= (NUMBERS_STEP if name == "numbers" else STEP)
        assert sum(counts) >= 0.9 * 2_000


def test_a_truncated_message_is_malformed_in_steps_too() -> None:
    key, side, version, message = LONG["structs"]
    codec = body(APIS[key], side, version)
    data = codec.encode_bytes(message)
    steps: Generator[int, None, Any] = codec.decode_in_steps(data[:-3])
    next(steps)
    with pytest.raises(ProtocolError, match="ListGroupsResponse v2"):
        run(steps)


@pytest.mark.parametrize("name", [name for name in LONG if LONG[name][1] == "R"])
def test_a_frame_of_very_many_fields_has_few_chunks_and_copies_no_large_ones(name: str) -> None:
    key, _, version, message = LONG[name]
    plain = encode_response_frame(APIS[key], version, 7, message)
    chunks, _ = run(encode_response_frame_in_steps(APIS[key], version, 7, message))
    assert b"".join(chunks) == b"".join(plain)
    assert len(plain) > 10_000
    assert len(chunks) < 100


def test_large_chunks_are_not_copied() -> None:
    records = bytes(1 << 20)
    rows = [FetchResponsePartition(records=records) for _ in range(3)]
    message = FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=rows)])
    chunks, _ = run(encode_response_frame_in_steps(APIS[1], 11, 7, message))
    assert sum(chunk is records for chunk in chunks) == 3


def test_no_frame_ends_with_an_empty_chunk() -> None:
    """An empty chunk behind the last byte keeps asyncio's sockets of Python 3.12 to 3.14 busy until they are reset."""
    empty_ends = 0
    for line in CASES.read_text().splitlines():
        if not line.startswith("#"):
            key, side, number, text = line.split()
            api, version = APIS[int(key)], int(number)
            codec = body(api, side, version)
            message = codec.decode(b"" if text == "-" else bytes.fromhex(text))
            out: list[Buffer] = []
            codec.encode(message, out)
            empty_ends += bool(out) and not out[-1]
            if side == "Q":
                frames = [encode_request_frame(api, version, 7, "me", message)]
            else:
                in_steps, _ = run(encode_response_frame_in_steps(api, version, 7, message))
                frames = [encode_response_frame(api, version, 7, message), in_steps]
            for frame in frames:
                assert frame[-1], line[:80]
                assert bytes(frame[0][:4]) == (sum(map(len, frame)) - 4).to_bytes(4, "big"), line[:80]
    assert empty_ends > 10
