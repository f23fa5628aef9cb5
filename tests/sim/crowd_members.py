"""The kinds of members of a crowd: each overloads the broker in one way, with valid or invalid requests.

A member opens a connection, does its act, closes the connection, and starts again until the crowd leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import msgspec
from broker.wire import Wire, batch, fetch_request, produce_request
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel_protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from semel_protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from semel_protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from semel_protocol.schema import Message

TOPIC, EMPTY_TOPIC = "t", "empty"
KIB, MIB = 1 << 10, 1 << 20
LARGE_FRAME_BYTES = 2 * MIB
SMALL_FRAME_BYTES = 500 * KIB
ELEMENTS_MAX = 3_000
"""The limit of elements in one request (`request_elements_max`)."""
TOPIC_RESOURCE = 2

Act = Callable[[Wire, Random], Awaitable[None]]


class CrowdMember(msgspec.Struct, frozen=True):
    """One connection at a time, from `host`. `kind`: a key of `KINDS`."""

    host: str
    kind: str


class CrowdMemberKind(msgspec.Struct, frozen=True):
    """One kind of member. `holds_memory`: it holds memory for small frames, so that other connections wait for memory.
    `is_work`: it keeps the processor of the broker busy.
    """

    act: Act
    holds_memory: bool = False
    is_work: bool = False


def announced(size: int, sent: int) -> bytes:
    """The first `sent` bytes of a Produce of `size` bytes."""
    return size.to_bytes(4, "big") + b"\0\0\0\7" + bytes(sent - 4)


async def pipelines(wire: Wire, rng: Random) -> None:
    """Send hundreds to thousands of small requests at once, then read the answers."""
    request: Message = rng.choice(
        (
            MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
            HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
            ApiVersionsRequest(),
        )
    )
    count = rng.choice((500, 2_000, 4_000))
    for _ in range(count):
        wire.send(request, 0)
    for _ in range(count):
        await wire.receive_frame()


async def announces(wire: Wire, rng: Random) -> None:
    """Send the first bytes of a large frame, and nothing more."""
    wire.send_bytes(announced(LARGE_FRAME_BYTES, 10))
    await wire.reader.read()


async def stops_amid_large(wire: Wire, rng: Random) -> None:
    """Send a part of a large frame, then wait."""
    wire.send_bytes(announced(LARGE_FRAME_BYTES, rng.randrange(MIB // 2, LARGE_FRAME_BYTES - KIB)))
    await wire.reader.read()


async def stops_amid_small(wire: Wire, rng: Random) -> None:
    """Send a frame of medium size except its last KiB, then wait."""
    wire.send_bytes(announced(SMALL_FRAME_BYTES, SMALL_FRAME_BYTES - KIB))
    await wire.reader.read()


def _queue_fetches(wire: Wire, count: int) -> None:
    for _ in range(count):
        wire.send(fetch_request(TOPIC, 0, partition_max_bytes=8 * MIB))


async def leaves_unread(wire: Wire, rng: Random) -> None:
    """Ask for large answers and do not read them."""
    _queue_fetches(wire, rng.choice((3, 20, 100)))
    await asyncio.sleep(rng.uniform(1, 5))


async def goes_away(wire: Wire, rng: Random) -> None:
    """Ask for large answers and close the connection."""
    _queue_fetches(wire, rng.choice((20, 100)))
    await asyncio.sleep(rng.uniform(0.01, 0.5))


async def half_closes(wire: Wire, rng: Random) -> None:
    """Ask for large answers, close its sending side, and read a part of the answers."""
    _queue_fetches(wire, rng.choice((20, 100)))
    await asyncio.sleep(rng.uniform(0.0, 0.2))
    wire.writer.write_eof()
    await asyncio.sleep(rng.uniform(0.1, 1.0))
    await wire.reader.read(rng.choice((1, 100_000, 1_000_000)))


async def asks_for_much(wire: Wire, rng: Random) -> None:
    """Send two requests with very many elements; some have more than the limit."""
    request = _of_many_elements(rng, rng.choice((1_000, ELEMENTS_MAX - 10, ELEMENTS_MAX + 10)))
    for _ in range(2):
        wire.send(request)
    for _ in range(2):
        await wire.receive_frame()


def _of_many_elements(rng: Random, count: int) -> Message:
    names = [f"topic-{number}" for number in range(count)]
    match rng.randrange(7):
        case 0:
            return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        case 1:
            rows = [ListOffsetsRequestPartition(partition_index=number, timestamp=-1) for number in range(count)]
            return ListOffsetsRequest(
                replica_id=-1, isolation_level=0, topics=[ListOffsetsRequestTopic(name=TOPIC, partitions=rows)]
            )
        case 2:
            indexes = list(range(count))
            return OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=indexes)]
            )
        case 3:
            return DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequestResource(
                        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
                    )
                    for name in names
                ]
            )
        case 4:
            bad = [
                CreateTopicsRequestTopic(
                    name=f"{name}!", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
                for name in names
            ]
            return CreateTopicsRequest(topics=bad, timeout_ms=1_000, validate_only=False)
        case 5:
            ends = [DeleteRecordsRequestPartition(partition_index=number, offset=0) for number in range(1, count)]
            return DeleteRecordsRequest(
                topics=[DeleteRecordsRequestTopic(name=TOPIC, partitions=ends)], timeout_ms=1_000
            )
        case _:
            return DescribeProducersRequest(
                topics=[DescribeProducersRequestTopic(name=TOPIC, partition_indexes=list(range(count)))]
            )


async def queues_behind_what_waits(wire: Wire, rng: Random) -> None:
    """Send Produce requests that have to wait until a long poll or a JoinGroup on the same connection is answered."""
    if rng.random() < 0.5:
        wire.send(fetch_request(EMPTY_TOPIC, 0, max_wait_ms=20_000))
    else:
        group = f"group-{rng.randrange(1_000)}"
        wire.send(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=2_000,
                rebalance_timeout_ms=2_000,
                member_id="",
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            3,
        )
    for _ in range(15):
        wire.send(produce_request(TOPIC, batch(bytes(100_000))))
    await asyncio.sleep(rng.uniform(1, 5))


async def talks_nonsense(wire: Wire, rng: Random) -> None:
    """Send random bytes, sometimes after a valid start of a frame header."""
    body = rng.randbytes(rng.randrange(1, 20_000))
    head = len(body).to_bytes(4, "big") + rng.choice((0, 1, 3, 18, 19)).to_bytes(2, "big") + b"\0\0"
    wire.send_bytes(rng.choice((b"", head)) + body)
    async with asyncio.timeout(1):
        await wire.reader.read()


KINDS: Mapping[str, CrowdMemberKind] = {
    "pipelines": CrowdMemberKind(pipelines, holds_memory=True, is_work=True),
    "announces": CrowdMemberKind(announces),
    "stops amid large": CrowdMemberKind(stops_amid_large),
    "stops amid small": CrowdMemberKind(stops_amid_small, holds_memory=True),
    "leaves unread": CrowdMemberKind(leaves_unread, is_work=True),
    "goes away": CrowdMemberKind(goes_away, is_work=True),
    "half closes": CrowdMemberKind(half_closes, is_work=True),
    "asks for much": CrowdMemberKind(asks_for_much, is_work=True),
    "queues behind what waits": CrowdMemberKind(queues_behind_what_waits, holds_memory=True, is_work=True),
    "talks nonsense": CrowdMemberKind(talks_nonsense),
}


async def keep_doing(member: CrowdMember, rng: Random, is_over: Callable[[], bool], address: tuple[str, int]) -> None:
    """Repeat the act of the member until `is_over()`, or until the task is cancelled."""
    while not is_over():
        try:
            wire = Wire(*await asyncio.open_connection(*address))
        except OSError:
            await asyncio.sleep(0.1)
            continue
        try:
            await KINDS[member.kind].act(wire, rng)
        except (OSError, EOFError, TimeoutError):
            pass  # the broker has closed the connection
        finally:
            _drop(wire)
        await asyncio.sleep(rng.uniform(0.0, 0.1))


def _drop(wire: Wire) -> None:
    transport: Any = wire.writer.transport
    transport.abort()
