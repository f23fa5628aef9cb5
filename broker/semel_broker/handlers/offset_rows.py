"""The rows of one OffsetCommit or TxnOffsetCommit: checked, stored in portions, answered one by one.

Errors of one row: UNKNOWN_TOPIC_OR_PARTITION for a missing partition, UNKNOWN_TOPIC_ID for an id that no topic has,
OFFSET_OUT_OF_RANGE for an offset that no client means, OFFSET_METADATA_TOO_LARGE for long metadata. An error of the
member or its generation fails all rows that are not stored yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k08_offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from semel_protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic

from semel_broker.context import RequestContext
from semel_broker.groups.offsets.model import NO_EXPIRY, CommittedOffset, OffsetRecord

EARLIEST = -2
"""The least offset that is stored. KafkaJS commits -1 and -2 for "start at the end" and "start at the beginning", also
when its position is out of range. Kafka's broker stores every number; other clients send none below 0."""
PORTION_ROWS = 500
"""Rows that are stored in one turn of the event loop."""

Row = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
Store = Callable[[list[OffsetRecord]], Awaitable[None]]
A = TypeVar("A", bound=OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic)
T = TypeVar("T")
P = TypeVar("P")


def _utf16_units(text: str) -> int:
    """The length of a text as Java counts it, which is what Kafka compares with offset.metadata.max.bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


class OffsetRows(Generic[A]):
    """The rows of one request. `id_of`: the id of a topic, if the request has ids instead of names.

    After `store` has raised, set `refusal`: the error of the rows that are not stored.
    """

    def __init__(self, topics: Sequence[A], ctx: RequestContext, *, id_of: Callable[[A], bytes] | None = None) -> None:
        if id_of is not None:
            for topic in topics:
                topic.name = ctx.broker.topics.name_of(id_of(topic)) or ""
        self._id_of = id_of
        self._topics = topics
        self._ctx = ctx
        self._slices = ctx.slices()
        self._codes: dict[tuple[str, int], ErrorCode] = {}
        self._records: dict[tuple[str, int], OffsetRecord] = {}  # the last one of each partition
        self._stored_count = 0
        self.refusal = ErrorCode.NONE

    async def check(self, expire_ms: int = NO_EXPIRY) -> None:
        """Check each row by itself. `expire_ms`: when its offset expires."""
        for topic in self._topics:
            for row in topic.partitions:
                key = topic.name, row.partition_index
                code = self._codes[key] = self._check_row(topic, row)
                if code is ErrorCode.NONE:
                    self._records[key] = OffsetRecord(*key, self._committed(topic.name, row, expire_ms))
                if self._slices.is_over():
                    await self._slices.next()

    async def store(self, store: Store) -> None:
        """Call `store` with the records of the valid rows, in portions; also once if there are none."""
        records = list(self._records.values())
        for start in range(0, len(records) or 1, PORTION_ROWS):
            if start:
                await self._slices.next()
            portion = records[start : start + PORTION_ROWS]
            await store(portion)
            self._stored_count += len(portion)

    async def answer(self, topic: Callable[[A, list[P]], T], row: Callable[[int, ErrorCode], P]) -> list[T]:
        """The answer's topics, made by `topic(asked, rows)` and `row(partition, error)`."""
        made = []
        stored = set(list(self._records)[: self._stored_count]) if self.refusal else set()
        for each in self._topics:
            rows: list[P] = []
            for asked in each.partitions:
                key = each.name, asked.partition_index
                code = self.refusal if self.refusal and key not in stored else self._codes[key]
                rows.append(row(asked.partition_index, code))
                if self._slices.is_over():
                    await self._slices.next()
            made.append(topic(each, rows))
        return made

    def _check_row(self, asked: A, row: Row) -> ErrorCode:
        topics = self._ctx.broker.topics
        if self._id_of is not None and topics.get_by_id(self._id_of(asked)) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        topic = topics.get(asked.name)
        if topic is None or not 0 <= row.partition_index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if row.committed_offset < EARLIEST:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if _utf16_units(row.committed_metadata or "") > self._ctx.broker.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _committed(self, name: str, row: Row, expire_ms: int) -> CommittedOffset:
        return CommittedOffset(
            row.committed_offset,
            row.committed_leader_epoch,
            row.committed_metadata or "",
            self._ctx.broker.world.now_ms(),
            expire_ms,
            self._ctx.broker.topics.required(name).topic_id,
        )
