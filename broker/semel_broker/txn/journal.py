"""The memory of transactions on disk: records of `__transaction_state`.

The records of one transactional id lie in one partition, and a journal is that of one partition. One id has at most one
record under way, so each takes effect by itself as soon as it is durable; the order among ids does not matter. What is
decided of a transaction group and of its members is one batch, which the next leader finds whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import Record, build_batch
from semel_protocol.single_records import build_single, read_rows

from semel_broker.coordination.coordinator_topic import as_seen_by_clients, replay
from semel_broker.partitions.partition import Partition
from semel_broker.txn.model.group_metadata import TransactionGroup
from semel_broker.txn.model.group_records import group_row
from semel_broker.txn.model.metadata import TransactionMetadata
from semel_broker.txn.model.records import Row, row_of
from semel_broker.world import World


class Stored(msgspec.Struct, frozen=True):
    """Something appended: durable once everything below `end_offset` is."""

    partition: Partition
    end_offset: int

    @property
    def is_durable(self) -> bool:
        return self.partition.high_watermark >= self.end_offset

    async def durable(self) -> None:
        """Return once it is. Raises KafkaError 15 or 16 if it will not be while this broker leads the partition."""
        try:
            await self.partition.committed(self.end_offset)
        except KafkaError as error:
            raise as_seen_by_clients(error) from error


class Journal:
    """One partition of `__transaction_state`, which this broker leads."""

    def __init__(self, world: World, partition: Partition) -> None:
        self._world = world
        self._partition = partition

    def append(
        self,
        transactions: Sequence[TransactionMetadata],
        *,
        group: TransactionGroup | None = None,
        lazily: bool = False,
    ) -> Stored:
        """Append the records of `transactions`, and that of `group`, in one batch: all of them are stored, or none is.
        `lazily`: nobody waits for it.

        Raises KafkaError 15, 16, 18 (more than a segment may hold) or -1: then nothing was appended.
        """
        rows = [row_of(txn) for txn in transactions]
        if group is not None:
            rows.insert(0, group_row(group))
        batch = _batch_of(rows, self._world.now_ms())
        try:
            result = self._partition.append(batch, header=read_header(batch), lazily=lazily)
        except KafkaError as error:
            raise as_seen_by_clients(error, ErrorCode.RECORD_LIST_TOO_LARGE) from error
        return Stored(self._partition, result.last_offset + 1)

    async def replay(self, feed: Callable[[Sequence[bytes | None], Sequence[bytes | None]], None]) -> None:
        """Hand over all records: keys, and a value for each. Raises as `coordinator_topic.replay`."""

        def take(data: bytes) -> int:
            rows = read_rows(data)
            feed(rows.keys, rows.values)
            return rows.next_offset

        await replay(self._partition, take)


def _batch_of(rows: Sequence[Row], now_ms: int) -> bytes:
    if len(rows) == 1:
        return build_single(*rows[0], now_ms)
    return build_batch([Record(at, now_ms, key, value) for at, (key, value) in enumerate(rows)])
