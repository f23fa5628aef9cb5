"""The book of committed offsets: entries are written, take effect once durable, wait for their transaction, are struck.

A commit takes effect when it is durable, one that is part of a transaction when its marker is. Both in the order of the
log, so that a replay of the log, and one of what compaction has left of it, find the same.
"""

from __future__ import annotations

from asyncio import Future, gather
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from semel_protocol.errors import KafkaError
from semel_storage.internal_topics import Row

from semel_broker.coordination.journal import Journal, Producer
from semel_broker.groups.expiry import expired_offsets
from semel_broker.groups.group import Group, GroupState
from semel_broker.groups.offsets import CommittedOffset, OffsetRecord
from semel_broker.groups.pending import Pending
from semel_broker.groups.records import group_tombstone, offset_rows
from semel_broker.world import Logger

Key = tuple[str, str, int]
"""(group id, topic, partition)."""
Counts = Callable[[str, CommittedOffset], bool]
"""(topic, committed) -> whether it was committed for the topic that has the name now."""


class OffsetBook:
    """What the groups of one partition have committed, and what transactions are about to commit for them.

    `groups` is the shard's table, where groups come into being with their first offset; `bury` takes one out.
    `counts(topic, committed)`: whether the topic that it was committed for is (still) the one of that name.
    """

    def __init__(
        self,
        log: Logger,
        journal: Journal,
        groups: dict[str, Group],
        bury: Callable[[Group], None],
        counts: Counts,
    ) -> None:
        self._log = log
        self._journal = journal
        self._groups = groups
        self._bury = bury
        self._counts = counts
        self._pending: Pending[Key, CommittedOffset] = Pending()
        self._is_loaded = False
        self._ended_early: list[tuple[int, bool]] = []

    # --- entries ---

    async def commit(self, group_id: str, records: Sequence[OffsetRecord]) -> None:
        """Return once `records` are durable and seen. Raises KafkaError 15, 16."""
        await self._store(offset_rows(group_id, records), partial(self.apply, group_id, records))

    def apply(self, group_id: str, records: Iterable[OffsetRecord], position: int) -> None:
        """Durable records that stand at `position` take effect."""
        for record in records:
            if record.committed is not None or group_id in self._groups:
                self._group(group_id).offsets.apply(record)
            if self._pending:
                self._pending.supersede((group_id, record.topic, record.partition), position)

    # --- transactions ---

    async def hold(self, group_id: str, records: Sequence[OffsetRecord], producer: Producer) -> None:
        """Commit as part of `producer`'s transaction: return once durable; seen once the transaction is committed.

        From this call on the offsets are unstable. Raises KafkaError 15, 16, 47.
        """
        await self._write_pending(group_id, records, producer)

    def load(self, pending: Pending[Key, CommittedOffset]) -> None:
        """Take what a replay has found undecided."""
        self._pending = pending
        self._is_loaded = True
        for ended in self._ended_early:
            self.transaction_ended(*ended)
        self._ended_early.clear()

    def transaction_ended(self, producer_id: int, commit: bool) -> None:
        """The marker of the producer's transaction is durable in the partition: its offsets count, or are gone."""
        if not self._is_loaded:
            self._ended_early.append((producer_id, commit))  # the replay may or may not come past the marker
            return
        self._journal.settle()  # what lies before the marker comes first
        decided = self._pending.end((self._journal.index, producer_id), commit)
        for (group_id, topic, partition), committed in decided:
            self._group(group_id).offsets.apply(OffsetRecord(topic, partition, committed))

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change this offset."""
        return (group_id, topic, partition) in self._pending

    def unstable(self, group_id: str) -> list[tuple[str, int]]:
        """All (topic, partition) of the group that open transactions may yet change."""
        return [(topic, partition) for group, topic, partition in self._pending.undecided() if group == group_id]

    def _write_pending(self, group_id: str, records: Sequence[OffsetRecord], producer: Producer) -> Future[None]:
        rows = offset_rows(group_id, records)
        writer = self._journal.index, producer.producer_id
        position = self._journal.end_offset
        done = self._journal.store(rows, _nothing, producer)
        if not (done.done() and done.exception()):
            for record in records:
                assert record.committed is not None, "transactions commit offsets, and strike none"
                self._pending.hold(writer, (group_id, record.topic, record.partition), position, record.committed)
        return done

    # --- strikes ---

    async def strike(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget these offsets, but for what open transactions are about to commit. Raises KafkaError 15, 16."""
        doomed = [OffsetRecord(topic, partition, None) for topic, partition in partitions]
        if doomed:
            await self._strike(group_id, doomed, *self._offsets_strike(group_id, doomed))

    async def strike_group(self, group: Group) -> None:
        """Forget an empty group and its offsets, but for what open transactions are about to commit."""
        doomed = group.offsets.tombstones(lambda *_: True)
        await self._strike(group.group_id, doomed, *self._group_strike(group, doomed))

    def has_outlived(self, only_topic: str | None = None) -> bool:
        """Whether something was committed for topics that are not known (any more)."""
        return bool(self._outlived(only_topic))

    async def strike_outlived(self, only_topic: str | None = None) -> None:
        """Forget what groups have committed for topics that are no more, also in open transactions.

        Of all topics, or of one name. The topics known here have to be as new as the log, or one that is not known yet
        would lose its offsets.
        """
        written = []
        for group_id, partitions in self._outlived(only_topic).items():  # in one turn: nobody writes in between
            doomed = self._not_being_written(group_id, [OffsetRecord(*each, None) for each in partitions])
            if doomed:
                written.append(self._store(*self._offsets_strike(group_id, doomed)))
        for refused in await gather(*written, return_exceptions=True):
            if isinstance(refused, KafkaError):
                self._log.warning("outlived_offsets_kept", error=str(refused))  # they do not count anyway
            elif refused is not None:
                raise refused

    def _outlived(self, only_topic: str | None) -> dict[str, dict[tuple[str, int], None]]:
        """Group id -> (topic, partition) with nothing that counts."""
        found: dict[str, dict[tuple[str, int], None]] = {}
        for group in self._groups.values():
            for topic, partition, committed in group.offsets:
                if only_topic in (topic, None) and not self._counts(topic, committed):
                    found.setdefault(group.group_id, {})[topic, partition] = None
        for (group_id, topic, partition), _, _, committed in self._pending:
            if only_topic in (topic, None) and not self._counts(topic, committed):
                present = self._groups[group_id].offsets.get(topic, partition) if group_id in self._groups else None
                if present is None or not self._counts(topic, present):
                    found.setdefault(group_id, {})[topic, partition] = None
        return found

    def _not_being_written(self, group_id: str, doomed: Sequence[OffsetRecord]) -> list[OffsetRecord]:
        """Those of which nothing newer is on its way: a tombstone would come to lie behind it, and forget that."""
        written = self._journal.unsettled_keys()
        rows = offset_rows(group_id, doomed)
        return [record for record, (key, _) in zip(doomed, rows, strict=True) if key not in written]

    def expire(self, now_ms: int, retention_ms: int) -> None:
        """Forget offsets that have been of no use for `retention_ms` or are for topics that are no more, and groups
        with nothing left."""
        for group in list(self._groups.values()):
            expired = [
                record
                for record in (
                    *expired_offsets(group, now_ms, retention_ms),
                    *group.offsets.tombstones(lambda topic, _, committed: not self._counts(topic, committed)),
                )
                if not self.is_unstable(group.group_id, record.topic, record.partition)
            ]
            doomed = self._not_being_written(group.group_id, list(dict.fromkeys(expired))) if expired else []
            empty = group.state is GroupState.EMPTY and not group.pending and len(doomed) == len(group.offsets)
            if not doomed and not empty:
                continue
            self._log.info("offsets_expired", group=group.group_id, offsets=len(doomed), group_forgotten=empty)
            rows, apply = self._group_strike(group, doomed) if empty else self._offsets_strike(group.group_id, doomed)
            position = self._journal.end_offset
            self._journal.write(rows, partial(apply, position), partial(self._not_struck, group))

    async def _strike(
        self, group_id: str, doomed: Sequence[OffsetRecord], rows: Sequence[Row], apply: Callable[[int], None]
    ) -> None:
        """Write tombstones, and behind them again what open transactions hold: a tombstone would beat it."""
        held = [
            (producer, OffsetRecord(record.topic, record.partition, committed))
            for record in doomed
            for (_, producer_id), committed in self._pending.of((group_id, record.topic, record.partition))
            if (producer := self._journal.open_producer(producer_id)) is not None
        ]
        written = [self._store(rows, apply)]
        written += [self._write_pending(group_id, [record], producer) for producer, record in held]
        await gather(*written)

    def _offsets_strike(self, group_id: str, doomed: Sequence[OffsetRecord]) -> tuple[list[Row], Callable[[int], None]]:
        return offset_rows(group_id, doomed), partial(self.apply, group_id, doomed)

    def _group_strike(self, group: Group, doomed: Sequence[OffsetRecord]) -> tuple[list[Row], Callable[[int], None]]:
        rows = [*offset_rows(group.group_id, doomed), group_tombstone(group.group_id)]
        return rows, partial(self._struck_group, group.group_id, doomed, group.generation_id)

    def _struck_group(self, group_id: str, doomed: Iterable[OffsetRecord], generation_id: int, position: int) -> None:
        """The tombstones of a group, written at `generation_id`, are durable. What was committed meanwhile is a new
        group's, without a generation; a group that somebody has joined meanwhile lives on, without the offsets."""
        self.apply(group_id, doomed, position)
        group = self._groups.get(group_id)
        if group is not None and group.state is GroupState.EMPTY and group.generation_id == generation_id:
            self._bury(group)
            if group.offsets:
                self._groups[group_id] = Group(group_id=group_id, offsets=group.offsets)

    def _not_struck(self, group: Group, error: Exception) -> None:
        tell = self._log.warning if isinstance(error, KafkaError) else self._log.error  # the next look tries again
        tell("offsets_not_expired", group=group.group_id, error=str(error))

    # --- inside ---

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id=group_id)
        return group

    def _store(self, rows: Sequence[Row], apply: Callable[[int], None]) -> Future[None]:
        return self._journal.store(rows, partial(apply, self._journal.end_offset))


def _nothing() -> None:
    """Nothing takes effect before the transaction's marker."""
