"""Reads committed records through raw fetches, with a filter of aborted transactions of its own (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from semel_protocol.batch import iterate
from semel_protocol.control import ControlType, read_marker
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from semel_protocol.records import Record, decode_batch

from sim.events import Place
from sim.workloads.wires import Address, NoAnswerError, Wires

FETCH_VERSION = 11
READ_COMMITTED = 1
MAX_WAIT_MS = 20


class Fetched:
    """The answer for one partition: visible records at or above the offset asked for, and the offset behind them."""

    def __init__(self, offset: int, row: FetchResponsePartition) -> None:
        self.last_stable_offset = row.last_stable_offset
        self.records, self.next_offset = visible(offset, row)


class CommittedFetcher:
    """Fetches from the leaders of partitions."""

    def __init__(self, wires: Wires, partition_max_bytes: int) -> None:
        self._wires, self._max_bytes = wires, partition_max_bytes
        self._leaders: dict[Place, Address] = {}
        self.ids: dict[bytes, str] = {}
        """Topic id -> name, of all topics that were seen."""
        self.counts: dict[str, int] = {}
        """The number of partitions of each topic, as last seen."""

    async def look(self) -> None:
        """Look at all topics. Raises NoAnswerError."""
        found = await self._wires.metadata()
        addresses = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
        self._leaders.clear()
        self.counts.clear()
        for topic in found.topics:
            if topic.error_code or topic.name is None or topic.is_internal:
                continue
            self.ids[topic.topic_id] = topic.name
            self.counts[topic.name] = len(topic.partitions)
            for row in topic.partitions:
                if not row.error_code and row.leader_id in addresses:
                    self._leaders[topic.name, row.partition_index] = addresses[row.leader_id]

    async def fetch(self, positions: Mapping[Place, int]) -> dict[Place, Fetched]:
        """The partitions that were answered without an error."""
        found: dict[Place, Fetched] = {}
        is_stale = any(place not in self._leaders for place in positions)
        for address in dict.fromkeys(self._leaders[place] for place in positions if place in self._leaders):
            here = {place: at for place, at in positions.items() if self._leaders.get(place) == address}
            try:
                answer = await self._wires.call(address, self._request(here), FETCH_VERSION)
            except NoAnswerError:
                is_stale = True
                continue
            for topic in answer.responses:
                for row in topic.partitions:
                    place = (topic.topic, row.partition_index)
                    if row.error_code:
                        is_stale = True
                        assert row.error_code != ErrorCode.OFFSET_OUT_OF_RANGE or here[place] > 0, "no record at 0"
                    else:
                        found[place] = Fetched(here[place], row)
        if is_stale:
            await self.look()
        return found

    def _request(self, positions: Mapping[Place, int]) -> FetchRequest:
        rows: dict[str, list[FetchRequestPartition]] = {}
        for (topic, index), offset in positions.items():
            row = FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=self._max_bytes)
            rows.setdefault(topic, []).append(row)
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[FetchRequestTopic(topic=topic, partitions=found) for topic, found in rows.items()],
        )


def visible(offset: int, row: FetchResponsePartition) -> tuple[list[Record], int]:
    """The records of committed transactions and those without a transaction, from `offset` on; and the offset after
    all batches.
    """
    aborted = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
    dropping: set[int] = set()
    found: list[Record] = []
    next_offset = offset
    for header, batch in iterate(row.records or b""):
        while aborted and aborted[0][0] <= header.last_offset:
            dropping.add(aborted.pop(0)[1])
        next_offset = max(next_offset, header.next_offset)
        if header.is_control:
            marker = read_marker(batch, header)
            if marker is not None and marker.control_type is ControlType.ABORT:
                dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            found += _from(offset, decode_batch(batch, header))
    return found, next_offset


def _from(offset: int, records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.offset >= offset]
