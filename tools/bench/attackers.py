"""The clients of the section `attacks`, each a process: attackers over raw sockets, and a bystander that sends single
requests.

python -m tools.bench.attackers attack '{"address": "127.0.0.1:9092", "name": "40 announce 100 MiB"}'
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from semel_protocol.api import API_OF
from semel_protocol.headers import encode_request_frame, response_body_at
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from semel_protocol.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from semel_protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnRequestTopic
from semel_protocol.messages.k26_end_txn import EndTxnRequest
from semel_protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from semel_protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from semel_protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest
from semel_protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel_protocol.records import Record, build_batch
from semel_protocol.schema import Message

TOPIC, KEYED = "t", "keyed"
MIB = 1 << 20
STORED_MIB = 54
ELEMENTS = 100_000
"""The elements of one request (`request_elements_max`), including its other arrays."""
ATTACK_S = 20.0
"""The longest time that attackers keep their connections open."""
ANSWER_S = 300.0
LARGE_BYTES = 300_000
INFLATED_BYTES = 30 * MIB


class RawConnection:
    """A raw connection to a broker."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked: list[tuple[Message, int]] = []

    def send(self, request: Message, version: int | None = None) -> None:
        """Send one request."""
        version = _version(request, version)
        self._asked.append((request, version))
        self.socket.sendall(frame(request, version))

    def receive(self) -> Any:
        """Return the response to the oldest open request. Raises ConnectionError, TimeoutError."""
        request, version = self._asked.pop(0)
        api = API_OF[type(request)]
        answer = self.receive_frame()
        return api.decode_response(answer, version, response_body_at(api, version, answer))

    def receive_frame(self) -> bytes:
        """Return the next response frame, without its size prefix."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            if not (more := self.socket.recv(min(count - len(data), MIB))):
                raise ConnectionError("the broker closed the connection")
            data += more
        return bytes(data)

    def is_closed(self) -> bool:
        """Whether the broker has closed the connection."""
        with suppress(BlockingIOError):
            self.socket.setblocking(False)
            try:
                return self.socket.recv(1, socket.MSG_PEEK) == b""
            except ConnectionError:
                return True
        return False

    def close(self) -> None:
        """Close the connection at once."""
        self.socket.close()


def _version(request: Message, version: int | None) -> int:
    if version is not None:
        return version
    advertised = API_OF[type(request)].advertised
    assert advertised is not None
    return advertised[1]


def frame(request: Message, version: int | None = None) -> bytes:
    """Return the request frame with its size prefix."""
    return b"".join(encode_request_frame(API_OF[type(request)], _version(request, version), 1, "attacker", request))


def produce(topic: str, records: bytes) -> ProduceRequest:
    """A Produce request for partition 0."""
    row = ProduceRequestPartition(index=0, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceRequestTopic(name=topic, partition_data=[row])]
    )


def fetch(offset: int, size: int) -> FetchRequest:
    """A Fetch request for partition 0, of at most `size` bytes."""
    row = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=size,
        isolation_level=0,
        topics=[FetchRequestTopic(topic=TOPIC, partitions=[row])],
    )


def plain(value: bytes) -> bytes:
    """Return a batch of one record."""
    return build_batch([Record(0, 1_700_000_000_000, None, value)])


# --- attacks -------------------------------------------------------------------------------------------------


def unread_fetches(address: str, connections: int) -> None:
    """Each connection queues 100 Fetches of 54 MB, reads nothing, and closes after a while."""
    queued = frame(fetch(0, STORED_MIB * MIB)) * 100
    lines = [RawConnection(address) for _ in range(connections)]
    for line in lines:
        with suppress(OSError):
            line.socket.sendall(queued)
    time.sleep(ATTACK_S / 2)
    for line in lines:
        line.close()
    time.sleep(ATTACK_S / 2)


def announced(size: int, sent: int) -> bytes:
    """Return the first `sent` bytes of a Produce request of `size` bytes."""
    return struct.pack(">ihh", size, 0, 7) + bytes(sent - 4)


def partial_frames(address: str, connections: int, sent: int) -> None:
    """Each connection announces a Produce of 100 MiB, and stops before its end."""
    beginning = announced(100 * MIB, sent)
    lines = []
    ends_at = time.monotonic() + ATTACK_S
    for _ in range(connections):
        line = RawConnection(address)
        line.socket.setblocking(False)
        lines.append((line, memoryview(beginning)))
    while time.monotonic() < ends_at:
        waiting = {line.socket: (line, rest) for line, rest in lines if len(rest)}
        _, writable, _ = select.select([], list(waiting), [], 0.5)
        lines = [(line, _sent_on(line, rest) if line.socket in writable else rest) for line, rest in lines]
        for place, (line, rest) in enumerate(lines):
            if not len(rest) and line.is_closed():  # reconnect and send again
                line.close()
                again = RawConnection(address)
                again.socket.setblocking(False)
                lines[place] = again, memoryview(beginning)
    for line, _ in lines:
        line.close()


def _sent_on(line: RawConnection, rest: memoryview) -> memoryview:
    try:
        return rest[line.socket.send(rest[:MIB]) :]
    except BlockingIOError:
        return rest
    except OSError:  # the broker closed the connection
        return rest[len(rest) :]


def large_requests(address: str, make: Callable[[], Message]) -> None:
    """Send two large requests at once, one per connection."""
    request = make()
    lines = [RawConnection(address) for _ in range(2)]
    for line in lines:
        line.send(request, 4 if isinstance(request, CreateTopicsRequest) else None)
    for line in lines:
        line.receive_frame()
        line.close()


def pipelined(address: str) -> None:
    """Pipelines 20,000 Metadata requests on one connection and reads the responses."""
    line = RawConnection(address)
    data = memoryview(frame(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 7) * 20_000)
    answers = 0
    line.socket.setblocking(False)
    received = bytearray()
    while answers < 20_000:
        readable, writable, _ = select.select([line.socket], [line.socket] if len(data) else [], [], ANSWER_S)
        if writable:
            data = data[line.socket.send(data) :]
        if readable:
            received += line.socket.recv(MIB)
        while len(received) >= 4 and len(received) >= 4 + (size := struct.unpack_from(">i", received)[0]):
            del received[: 4 + size]
            answers += 1
    line.close()


def inflated(address: str) -> None:
    """Send 200 batches that inflate to 30 MiB each, to a compacted topic."""
    batch = build_batch([Record(0, 1_700_000_000_000, b"k", bytes(INFLATED_BYTES))], codec=ZSTD)
    assert len(batch) < 10_000, len(batch)
    line = RawConnection(address)
    data = frame(produce(KEYED, batch)) * 20
    for _ in range(10):
        line.socket.sendall(data)
        for _ in range(20):
            line.receive_frame()
    line.close()


def wide(address: str) -> None:
    """Create a topic of 3,000 partitions, end a transaction that includes all of them, and delete the topic."""
    line = RawConnection(address)

    def call(request: Message, version: int) -> Any:
        line.send(request, version)
        return line.receive()

    topic = CreateTopicsRequestTopic(name=WIDE, num_partitions=WIDTH, replication_factor=1, assignments=[], configs=[])
    assert not call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 4).topics[0].error_code
    begun = call(InitProducerIdRequest(transactional_id="wide", transaction_timeout_ms=600_000), 1)
    mine = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="wide",
        v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name=WIDE, partitions=list(range(WIDTH)))],
        **{f"v3_and_below_{name}": value for name, value in mine.items()},
    )
    assert not call(add, 0).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert not call(EndTxnRequest(transactional_id="wide", committed=True, **mine), 1).error_code
    assert not call(DeleteTopicsRequest(topic_names=[WIDE], timeout_ms=30_000), 3).responses[0].error_code
    line.close()


def patterns(address: str) -> None:
    """Lists 3,100 transactional ids, 100 of them long, by heavy patterns, and joins groups by heavy patterns over 200
    long names of topics."""
    line = RawConnection(address)

    def call(request: Message, version: int | None = None) -> Any:
        line.send(request, version)
        return line.receive()

    ids = [f"{number:04}{'ab' * 2_046}" for number in range(100)] + [f"worker-{number}" for number in range(3_000)]
    for name in ids:
        call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000), 1)
    topics = [
        CreateTopicsRequestTopic(
            name=f"{'ab' * 122}{number:03}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for number in range(200)
    ]
    call(CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=False), 4)
    for pattern in HEAVY:
        call(ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern), 2)
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id=f"by {pattern}",
            member_id="attacker",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[],
            subscribed_topic_regex=pattern,
            topic_partitions=[],
        )
        call(heartbeat, 1)
    line.close()


HEAVY = (
    "[0-9]*[ab]*a[ab]{100}[ab]{100}",
    "[ab]*a[ab]{1000}[ab]{1000}",
    "(?:[ab]?){1000}c",
    "(?:.?){500}c",
    "(?:(?:a?b?)*){100}c",
)
ZSTD = 4
WIDE, WIDTH = "wide", 3_000
NAMES = [f"topic-{number}" for number in range(ELEMENTS)]
FEW = ELEMENTS - 10


def _large() -> Mapping[str, Callable[[], Message]]:
    numbers = range(FEW)
    bad = partial(CreateTopicsRequestTopic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return {
        "DescribeConfigs": lambda: DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequestResource(resource_type=2, resource_name=name, configuration_keys=None)
                for name in [TOPIC] * (FEW // 2) + NAMES[: FEW // 2]
            ]
        ),
        "CreateTopics, validate_only": lambda: CreateTopicsRequest(
            topics=[bad(name=name) for name in NAMES[:FEW]], timeout_ms=1_000, validate_only=True
        ),
        "CreateTopics, bad names": lambda: CreateTopicsRequest(
            topics=[bad(name=f"?{name}") for name in NAMES[:FEW]], timeout_ms=1_000, validate_only=False
        ),
        "DescribeTransactions": lambda: DescribeTransactionsRequest(transactional_ids=NAMES[:FEW]),
        "DescribeProducers": lambda: DescribeProducersRequest(
            topics=[DescribeProducersRequestTopic(name=TOPIC, partition_indexes=list(numbers))]
        ),
        "OffsetCommit": lambda: OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
                        for number in numbers
                    ],
                )
            ],
        ),
        "Fetch": lambda: FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=0,
            topics=[
                FetchRequestTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchRequestPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
                        for number in numbers
                    ],
                )
            ],
        ),
        "ListOffsets": lambda: ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsRequestTopic(
                    name=TOPIC,
                    partitions=[
                        ListOffsetsRequestPartition(partition_index=number, timestamp=-1) for number in numbers
                    ],
                )
            ],
        ),
        "OffsetForLeaderEpoch": lambda: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequestTopic(
                    topic=TOPIC,
                    partitions=[
                        OffsetForLeaderEpochRequestPartition(partition=number, leader_epoch=0) for number in numbers
                    ],
                )
            ]
        ),
        "DeleteRecords": lambda: DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequestTopic(
                    name=TOPIC,
                    partitions=[
                        DeleteRecordsRequestPartition(partition_index=number, offset=0) for number in range(1, FEW)
                    ],
                )
            ],
            timeout_ms=1_000,
        ),
    }


ATTACKS: dict[str, Callable[[str], None]] = {
    "none": lambda address: time.sleep(ATTACK_S / 2),
    "12 queue 100 Fetches of 54 MB each": partial(unread_fetches, connections=12),
    "200 queue 100 Fetches of 54 MB each": partial(unread_fetches, connections=200),
    "40 announce 100 MiB": partial(partial_frames, connections=40, sent=10),
    "6 announce 100 MiB": partial(partial_frames, connections=6, sent=10),
    "12 stop amid 100 MiB": partial(partial_frames, connections=12, sent=50 * MIB),
    **{f"{name} of {ELEMENTS:,}": partial(large_requests, make=make) for name, make in _large().items()},
    "20,000 Metadata pipelined": pipelined,
    "200 batches that inflate to 30 MiB": inflated,
    "a transaction of 3,000 partitions": wide,
    "heavy patterns": patterns,
}


# --- the others ----------------------------------------------------------------------------------------------


def prepare(address: str) -> None:
    """Create the topics, and fill one with 54 MB."""
    line = RawConnection(address)
    compact = [CreateTopicsRequestConfig(name="cleanup.policy", value="compact")]
    topics = [
        CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
        for name, configs in ((TOPIC, []), (KEYED, compact))
    ]
    line.send(CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=False))
    assert not any(row.error_code for row in line.receive().topics)
    batch = plain(bytes(1_000_000))
    for _ in range(STORED_MIB):
        line.send(produce(TOPIC, batch))
        assert line.receive().responses[0].partition_responses[0].error_code == 0
    line.close()


def bystander(address: str) -> dict[str, float]:
    """Send one request at a time until a line arrives on standard input. Returns the longest response time."""
    asks: list[Message] = [
        MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
        produce(TOPIC, plain(b"small")),
        produce(TOPIC, plain(bytes(LARGE_BYTES))),
        fetch(0, 1),
    ]
    line = RawConnection(address)
    longest_s, count = 0.0, 0
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        request = asks[count % len(asks)]
        began = time.perf_counter()
        line.send(request)
        line.receive()
        longest_s = max(longest_s, time.perf_counter() - began)
        count += 1
    return {"longest_s": longest_s, "count": count}


def main() -> None:
    """Run an attack or the bystander, as the module describes."""
    what, arguments = sys.argv[1], json.loads(sys.argv[2])
    match what:
        case "prepare":
            prepare(**arguments)
            print(json.dumps({}))
        case "attack":
            ATTACKS[arguments["name"]](arguments["address"])
        case "bystander":
            print(json.dumps(bystander(**arguments)))


if __name__ == "__main__":
    main()
