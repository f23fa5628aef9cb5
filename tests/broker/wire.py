"""A raw connection to a broker: typed requests and responses, and raw bytes for tests of invalid input."""

from __future__ import annotations

import asyncio
from typing import Any

from semel_broker.world import SilentLogger
from semel_protocol.api import API_OF, Api
from semel_protocol.batch import BatchHeader, iterate
from semel_protocol.headers import encode_request_frame, read_correlation_id, response_body_at
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from semel_protocol.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.records import Record, build_batch, decode_batch
from semel_protocol.schema import Message

WAIT_S = 10
LAST_PLAIN = {0: 12, 1: 12, 8: 9, 9: 7, 10: 3, 20: 5}
"""API key -> the last version that names topics, or asks for one thing. Tests of later versions give the version."""


class EventLog(SilentLogger):
    """A logger that keeps (event, fields), so that a test can check the log lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def _add(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    debug = info = warning = error = exception = _add

    def of(self, event: str) -> list[dict[str, object]]:
        """The fields of every line with this event name."""
        return [fields for name, fields in self.lines if name == event]


DELETE_BY_NAME = 5
"""The last version of DeleteTopics whose requests have names alone."""


class Wire:
    """One raw connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._correlation_id = 0
        self._expected: list[tuple[int, Api, int]] = []

    @classmethod
    async def connect(cls, port: int) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, request: Message, version: int | None = None, client_id: str | None = "wire") -> int:
        """Send without waiting; returns the correlation id.

        The default version is the highest advertised one up to LAST_PLAIN.
        """
        api = API_OF[type(request)]
        if version is None:
            assert api.advertised is not None
            version = min(api.advertised[1], LAST_PLAIN.get(api.key, api.high))
        self._correlation_id += 1
        self.writer.writelines(encode_request_frame(api, version, self._correlation_id, client_id, request))
        self._expected.append((self._correlation_id, api, version))
        return self._correlation_id

    def forget(self, correlation_id: int) -> None:
        """Expect no answer to this request (acks=0)."""
        self._expected = [row for row in self._expected if row[0] != correlation_id]

    async def receive(self) -> Any:
        """The next response; asserts that it answers the oldest unanswered request."""
        frame = await self.receive_frame()
        correlation_id, api, version = self._expected.pop(0)
        assert read_correlation_id(frame) == correlation_id
        return api.decode_response(frame, version, response_body_at(api, version, frame))

    async def receive_frame(self) -> bytes:
        """The next frame without its size prefix."""
        async with asyncio.timeout(WAIT_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send one request and wait for its response."""
        self.send(request, version)
        return await self.receive()

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def closed_by_peer(self) -> bool:
        """Whether the broker closes this connection (without a further byte) within the time allowed."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass  # the broker was faster

    # --- the requests that most tests need ---

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; config names with `_` for `.`. Asserts success."""
        rows = [CreateTopicsRequestConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreateTopicsRequestTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=rows
        )
        response = await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False))
        assert response.topics[0].error_code == 0, response

    async def new_producer(self) -> int:
        """A producer id of an idempotent producer."""
        response = await self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1))
        assert response.error_code == 0
        return int(response.producer_id)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Asserts success."""
        response = await self.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), DELETE_BY_NAME)
        assert response.responses[0].error_code == 0, response

    async def produce(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, version: int | None = None
    ) -> ProduceResponsePartition:
        """Produce `records` to one partition and return its row of the response."""
        response: ProduceResponse = await self.call(
            produce_request(topic, records, partition=partition, acks=acks), version
        )
        return response.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, *, partition: int = 0, **settings: Any) -> FetchResponsePartition:
        """Fetch one partition and return its row of the response."""
        response: FetchResponse = await self.call(fetch_request(topic, offset, partition=partition, **settings))
        return response.responses[0].partitions[0]

    async def values(self, topic: str, *, partition: int = 0, offset: int = 0) -> list[bytes | None]:
        """Every value from `offset` to the current end, by as many fetches as needed."""
        values: list[bytes | None] = []
        while True:
            row = await self.fetch(topic, offset, partition=partition, max_wait_ms=0)
            assert row.error_code == 0, row
            records = records_of(row.records, offset)
            if not records:
                return values
            values += [record.value for record in records]
            offset = records[-1].offset + 1


def batch(*values: bytes, codec: int = 0, **fields: Any) -> bytes:
    """One record batch with these values; `fields` as of `build_batch` (producer_id, base_sequence, ...)."""
    timestamp = fields.pop("timestamp", 1_700_000_000_000)
    records = [Record(offset=i, timestamp=timestamp, key=None, value=v, headers=()) for i, v in enumerate(values)]
    return build_batch(records, codec=codec, **fields)


def produce_request(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    row = ProduceRequestPartition(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[ProduceRequestTopic(name=topic, partition_data=[row])]
    )


def send_record(wire: Wire, *, acks: int = -1, timeout_ms: int = 30_000) -> asyncio.Task[ProduceResponsePartition]:
    """Send a record to `t`-0 at once. The task returns the answer of its partition."""
    request = produce_request("t", batch(b"x"), acks=acks)
    request.timeout_ms = timeout_ms
    wire.send(request)

    async def answer() -> ProduceResponsePartition:
        row: ProduceResponsePartition = (await wire.receive()).responses[0].partition_responses[0]
        return row

    return asyncio.create_task(answer())


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    **fields: Any,
) -> FetchRequest:
    row = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[FetchRequestTopic(topic=topic, partitions=[row])],
        **fields,
    )


def headers_of(records: bytes | bytearray | memoryview | None) -> list[BatchHeader]:
    return [header for header, _ in iterate(records or b"")]


def records_of(records: bytes | bytearray | memoryview | None, from_offset: int = 0) -> list[Record]:
    """The records of fetched batches at or above `from_offset`."""
    found = [record for header, view in iterate(records or b"") for record in decode_batch(view, header)]
    return [record for record in found if record.offset >= from_offset]
