"""Reads logs, groups and transactional ids from a broker over a raw connection that does not use the proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from broker.wire import Wire, fetch_request
from semel_protocol.batch import BatchHeader, crc_ok, iterate
from semel_protocol.control import ControlType, read_marker
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import FetchResponsePartition
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel_protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponseTransaction,
)
from semel_protocol.records import decode_batch
from sim.events import Place
from sim.final import LogBatch, PartitionEnd, ReadRecord

READ_COMMITTED = 1
STABLE_OFFSETS_VERSION = 7


class NotReadable(Exception):  # noqa: N818 (it is often temporary: the caller tries again)
    """The broker answers with an error, or with a batch whose CRC is wrong."""


class Observer:
    """`async with Observer(port) as see`: one connection. Raises ConnectionError while the broker is down."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Observer:
        self._wire = await Wire.connect(self._port)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._wire.close()

    async def leader_of(self, place: Place) -> Wire:
        """The connection to the leader of a partition."""
        return self._wire

    async def coordinator_of(self, group: str) -> Wire:
        """The connection to the coordinator of a group."""
        return self._wire

    async def partition(self, place: Place) -> PartitionEnd:
        """One partition, read from its start to its end with both isolation levels."""
        end = PartitionEnd(batches=[])
        assert end.batches is not None
        async for row, header, batch in self._scan(place, isolation=0):
            end.start_offset = max(row.log_start_offset, 0)
            end.high_watermark = row.high_watermark
            if header is not None and batch is not None:
                end.batches.append(_facts(header, batch))
                if not header.is_control:
                    end.uncommitted += _rows(header, batch)
        aborted: dict[int, list[int]] = {}
        open_aborts: dict[int, None] = {}
        async for row, header, batch in self._scan(place, isolation=READ_COMMITTED):
            end.last_stable_offset = row.last_stable_offset
            for each in row.aborted_transactions or ():
                firsts = aborted.setdefault(each.producer_id, [])
                if each.first_offset not in firsts:
                    firsts.append(each.first_offset)
            if header is None or batch is None:
                continue
            if header.is_control:
                open_aborts.pop(header.producer_id, None)
                continue
            if any(header.base_offset <= first <= header.last_offset for first in aborted.get(header.producer_id, ())):
                open_aborts[header.producer_id] = None
            if not (header.is_transactional and header.producer_id in open_aborts):
                end.committed += _rows(header, batch)
        return end

    async def _scan(
        self, place: Place, *, isolation: int
    ) -> AsyncIterator[tuple[FetchResponsePartition, BatchHeader | None, memoryview | None]]:
        """Each batch with the row of its response. The last item is a row without a batch."""
        topic, partition = place
        offset = 0
        while True:
            request = fetch_request(
                topic, offset, partition=partition, isolation_level=isolation, max_wait_ms=0, min_bytes=0
            )
            wire = await self.leader_of(place)
            row: FetchResponsePartition = (await wire.call(request)).responses[0].partitions[0]
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < row.log_start_offset:
                offset = row.log_start_offset
                continue
            if row.error_code:
                raise NotReadable(f"{topic}-{partition} at {offset}: {ErrorCode(row.error_code).name}")
            found = list(iterate(row.records or b""))
            for header, batch in found:
                if not crc_ok(batch, header):
                    raise NotReadable(f"{topic}-{partition} at {header.base_offset}: the CRC of the batch is wrong")
                if header.last_offset >= offset:
                    yield row, header, batch
                    offset = header.next_offset
            if not found:
                yield row, None, None
                return

    async def offsets(self, group: str, places: Iterable[Place]) -> dict[Place, int | None]:
        """The committed offsets of a group; None: no offset. Raises NotReadable while an offset is pending."""
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=rows) for name, rows in topics.items()],
            require_stable=True,
        )
        response = await (await self.coordinator_of(group)).call(request, STABLE_OFFSETS_VERSION)
        found: dict[Place, int | None] = {}
        for topic in response.topics:
            for row in topic.partitions:
                code = response.error_code or row.error_code
                if code:
                    raise NotReadable(f"offset of {group}: {ErrorCode(code).name}")
                offset = row.committed_offset
                found[topic.name, row.partition_index] = offset if offset >= 0 else None
        return found

    async def transaction(self, transactional_id: str) -> DescribeTransactionsResponseTransaction:
        """The coordinator's description of a transactional id; `transaction_state` is empty for an unknown id."""
        response = await self._wire.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]))
        row: DescribeTransactionsResponseTransaction = response.transaction_states[0]
        return row


def _facts(header: BatchHeader, batch: memoryview) -> LogBatch:
    marker = read_marker(batch, header) if header.is_control else None
    return LogBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        is_transactional=header.is_transactional,
        marker="" if marker is None else "commit" if marker.control_type is ControlType.COMMIT else "abort",
        coordinator_epoch=-1 if marker is None else marker.coordinator_epoch,
    )


def _rows(header: BatchHeader, batch: memoryview) -> list[ReadRecord]:
    return [ReadRecord(each.offset, _text(each.key), _text(each.value)) for each in decode_batch(batch, header)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
