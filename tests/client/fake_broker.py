"""A scripted broker: one node, real TCP, requests decoded by semel_protocol, Kafka's sequence rules, and scripted
faults.

Each Produce request takes the next of `faults`. When the list is empty, requests succeed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from semel_protocol.api import APIS
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode
from semel_protocol.headers import encode_response_frame, read_request_header
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from semel_protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorResponse
from semel_protocol.messages.k18_api_versions import ApiVersionsResponse, ApiVersionsResponseApiKey
from semel_protocol.messages.k22_init_producer_id import InitProducerIdResponse
from semel_protocol.records import decode_batch

WINDOW = 5
NO_LEADER = -1
QUICK: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 4,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 4,
}
"""Settings of clients whose trials follow one another at once."""


class SequencedLog:
    """One partition: the stored values in order, under Kafka's idempotence checks.

    An unknown producer may begin with any sequence, because its state may have expired. A known one has to continue
    with the next sequence.
    """

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.producers: dict[int, tuple[int, int, deque[tuple[int, int, int]]]] = {}
        self._is_strict = False

    def forget_producers(self) -> None:
        """Lose all producer state, and refuse batches with UNKNOWN_PRODUCER_ID where it is needed."""
        self.producers.clear()
        self._is_strict = True

    def append(self, batch: bytes | memoryview) -> tuple[int, int]:
        """(error code, base offset)."""
        header = read_header(batch)
        records = decode_batch(batch)
        first, last = header.base_sequence, header.last_sequence
        base = len(self.values)
        if header.producer_id >= 0:
            known = self.producers.get(header.producer_id)
            if known is None:
                if first and self._is_strict:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                window: deque[tuple[int, int, int]] = deque(maxlen=WINDOW)
            else:
                epoch, last_sequence, window = known
                if header.producer_epoch == epoch:
                    for old_first, old_last, offset in window:
                        if (old_first, old_last) == (first, last):
                            return ErrorCode.NONE, offset
                if header.producer_epoch < epoch:
                    return ErrorCode.INVALID_PRODUCER_EPOCH, -1
                expected = (last_sequence + 1) & 0x7FFFFFFF if header.producer_epoch == epoch else 0
                if first != expected:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                if header.producer_epoch > epoch:
                    window = deque(maxlen=WINDOW)
            window.append((first, last, base))
            self.producers[header.producer_id] = (header.producer_epoch, last, window)
        self.values += [record.value for record in records]
        return ErrorCode.NONE, base


# Faults of one Produce request
WORKS = "works"
LOST = "lost on the way in, connection closed"
ANSWER_LOST = "stored, answer lost, connection closed"
LATE = "connection closed, the request is stored only some requests later"
SILENT = "stored, never answered"
DEPOSED = "stored, answered as by a leader that is replaced before its followers have it"


class FakeBroker:
    """`async with FakeBroker(...)`; clients connect to `address`."""

    def __init__(
        self, topics: dict[str, int] | None = None, versions: dict[int, tuple[int, int]] | None = None
    ) -> None:
        self.topics = {"t": 1} if topics is None else topics
        self.versions = versions or {key: api.advertised for key, api in APIS.items() if api.advertised}
        self.logs: dict[tuple[str, int], SequencedLog] = {}
        self.faults: deque[str | int] = deque()
        self.late: list[tuple[int, ProduceRequest]] = []
        self.requests: list[tuple[int, int, Any]] = []
        self.max_batch_bytes = 1 << 30
        self.answers: dict[int, Callable[[Any], Awaitable[Any]]] = {
            3: self.metadata,
            10: self.find_coordinator,
            22: self.init_producer_id,
        }
        self.leader = self.node_id = 0
        self.peers: list[FakeBroker] = [self]
        self.next_producer_id = 1000
        self.connections: dict[asyncio.StreamWriter, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._server: asyncio.Server | None = None
        self.port = 0
        self.tls: ssl.SSLContext | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeBroker:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def listen(self) -> None:
        """Start, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def log(self, topic: str = "t", partition: int = 0) -> SequencedLog:
        return self.logs.setdefault((topic, partition), SequencedLog())

    def seen(self, api_key: int) -> list[Any]:
        """The requests of one API so far."""
        return [request for key, _, request in self.requests if key == api_key]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections[writer] = None
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if not await self._handle(frame, writer):
                    return
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has closed the connection
        finally:
            self.connections.pop(writer, None)
            writer.transport.abort()

    async def _handle(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        header = read_request_header(frame)
        api, version = APIS[header.api_key], header.api_version
        offered = self.versions.get(api.key)
        if api.key == 18:
            highest = offered[1] if offered else -1
            response = self.api_versions()
            if version > highest:
                response.error_code, version = ErrorCode.UNSUPPORTED_VERSION, 0
            writer.writelines(encode_response_frame(api, version, header.correlation_id, response))
            return True
        assert offered is not None, f"{api.name} was not offered"
        assert version <= offered[1], f"{api.name} v{version} was not offered"
        request = api.decode_request(frame, version, header.body_at(api, frame))
        self.requests.append((api.key, version, request))
        if api.key == 0:
            answer = self.produce(request)
            if answer is None:
                return False
            if answer == SILENT or request.acks == 0:
                return True
        else:
            answer = await self.answers[api.key](request)
            if answer is None:
                return False
        writer.writelines(encode_response_frame(api, version, header.correlation_id, answer))
        return True

    def api_versions(self) -> ApiVersionsResponse:
        rows = [
            ApiVersionsResponseApiKey(api_key=key, min_version=a, max_version=b)
            for key, (a, b) in self.versions.items()
        ]
        return ApiVersionsResponse(api_keys=rows)

    async def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names: Iterable[str] = self.topics if request.topics is None else [row.name or "" for row in request.topics]
        rows = []
        for name in names:
            if name not in self.topics:
                rows.append(MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            partitions = [
                MetadataResponsePartition(partition_index=index, leader_id=self.leader)
                for index in range(self.topics[name])
            ]
            rows.append(MetadataResponseTopic(name=name, partitions=partitions))
        brokers = [
            MetadataResponseBroker(node_id=peer.node_id, host="127.0.0.1", port=peer.port) for peer in self.peers
        ]
        return MetadataResponse(brokers=brokers, cluster_id="fake", controller_id=0, topics=rows)

    async def find_coordinator(self, _: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=self.port)

    async def init_producer_id(self, _: Any) -> InitProducerIdResponse:
        self.next_producer_id += 1
        return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)

    def produce(self, request: ProduceRequest) -> Any:
        """The answer; SILENT for none, None to close the connection."""
        self.late = [(waits - 1, late) for waits, late in self.late]
        for waits, late in self.late:
            if waits <= 0:
                self._store(late)
        self.late = [entry for entry in self.late if entry[0] > 0]
        fault = self.faults.popleft() if self.faults else WORKS
        if self.leader not in (self.node_id, NO_LEADER):
            fault = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if isinstance(fault, int):
            return self._answer(request, lambda *_: (fault, -1))
        if fault == LOST:
            return None
        if fault == LATE:
            self.late.append((3, request))
            return None
        response = self._store(request)
        if fault == ANSWER_LOST:
            return None
        if fault == DEPOSED:
            return self._answer(request, lambda *_: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))
        return SILENT if fault == SILENT else response

    def _store(self, request: ProduceRequest) -> ProduceResponse:
        def store(topic: str, partition: int, records: memoryview) -> tuple[int, int]:
            if len(records) > self.max_batch_bytes:
                return ErrorCode.MESSAGE_TOO_LARGE, -1
            return self.log(topic, partition).append(records)

        return self._answer(request, store)

    def _answer(self, request: ProduceRequest, store: Callable[..., tuple[int, int]]) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            rows = []
            for row in topic.partition_data:
                code, offset = store(topic.name, row.index, row.records)
                rows.append(
                    ProduceResponsePartition(index=row.index, error_code=code, base_offset=offset, log_start_offset=0)
                )
            topics.append(ProduceResponseTopic(name=topic.name, partition_responses=rows))
        return ProduceResponse(responses=topics)
