"""The committed offsets of the groups of one partition: stores them, resolves transactional ones, deletes them.

A commit takes effect when it is durable. A commit that is part of a transaction takes effect when the transaction's
marker is durable. Both take effect in the order of the log, so that a replay finds the same offsets, also after
compaction.
"""

from __future__ import annotations

from asyncio import Future, gather, sleep
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING

from semel_protocol.errors import KafkaError
from semel_storage.internal_topics import Row

from semel_broker.coordination.journal import RecordProducer
from semel_broker.groups.group import Group
from semel_broker.groups.offsets.expiry import expired_offsets
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_broker.groups.offsets.pending import PendingOffsets
from semel_broker.groups.offsets.records import offset_rows

if TYPE_CHECKING:
    from semel_broker.groups.host import GroupHost

DELETED_AT_ONCE = 500
"""Offsets that are deleted in one turn of the event loop, where a request may be for very many."""

Key = tuple[str, str, int]
"""(group id, topic, partition)."""


def group_of(key: Key) -> str:
    """The group that the key of an offset belongs to."""
    return key[0]


class OffsetStore:
    """The offsets that the groups of `host` have committed, and those of their open transactions. The first offset of a
    group adds the group to the table of the host."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self._log = host.context.world.log
        self._journal = host.journal
        self._groups = host.groups
        self._pending: PendingOffsets[Key, CommittedOffset] = PendingOffsets(group_of)
        self._committed_count = 0
        self._is_loaded = False
        self._ended_early: list[tuple[int, bool]] = []

    @property
    def count(self) -> int:
        """The committed offsets, and those of open transactions."""
        return self._committed_count + len(self._pending)

    def new_count(self, group_id: str, records: Iterable[OffsetRecord]) -> int:
        """How many of these records are of partitions for which the group has no offset yet."""
        group = self._groups.get(group_id)
        if group is None:
            return sum(1 for _ in records)
        return sum(
            group.offsets.get(record.topic, record.partition) is None
            and not self.is_unstable(group_id, record.topic, record.partition)
            for record in records
        )

    # --- commits ---

    async def commit(self, group_id: str, records: Sequence[OffsetRecord]) -> None:
        """Return once `records` are durable and in effect. Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
        await self._store(offset_rows(group_id, records), partial(self.apply, group_id, records))

    def apply(self, group_id: str, records: Iterable[OffsetRecord], position: int) -> None:
        """Put durable records, which stand at offset `position` of the log, into effect."""
        assert position < self._journal.end_offset, (group_id, position)
        for record in records:
            if record.committed is not None or group_id in self._groups:
                self._put(group_id, record)
            if self._pending:
                self._pending.supersede((group_id, record.topic, record.partition), position)

    # --- transactions ---

    async def hold(self, group_id: str, records: Sequence[OffsetRecord], producer: RecordProducer) -> None:
        """Commit as part of `producer`'s transaction: return once durable. The commit takes effect with the
        transaction.

        From this call on the offsets are unstable (KIP-447), and the group exists, as in Kafka. Raises
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_PRODUCER_EPOCH.
        """
        writer = self._journal.index, producer.producer_id
        position = self._journal.end_offset
        done = self._journal.store(offset_rows(group_id, records), _nothing, producer)
        if not (done.done() and done.exception()):
            self._host.group_or_new(group_id)
            for record in records:
                assert record.committed is not None, "a transaction commits offsets and deletes none"
                self._pending.hold(writer, (group_id, record.topic, record.partition), position, record.committed)
        await done

    def load(self, pending: PendingOffsets[Key, CommittedOffset]) -> None:
        """Take the offsets of open transactions that a replay has found."""
        assert not self._is_loaded, self._journal.index
        self._pending = pending
        self._committed_count = sum(len(group.offsets) for group in self._groups.values())
        for group_id in pending.groups():
            self._host.group_or_new(group_id)
        self._is_loaded = True
        for ended in self._ended_early:
            self.transaction_ended(*ended)
        self._ended_early.clear()

    def transaction_ended(self, producer_id: int, commit: bool) -> None:
        """The marker of the producer's transaction is durable: put its offsets into effect, or drop them."""
        if not self._is_loaded:
            self._ended_early.append((producer_id, commit))  # the replay may or may not include the marker
            return
        self._journal.settle()  # rows before the marker take effect first
        decided = self._pending.end((self._journal.index, producer_id), commit)
        assert commit or not decided, producer_id
        for group_id, found in groupby(decided, lambda each: each[0][0]):
            offsets = self._host.group_or_new(group_id).offsets
            self._committed_count -= len(offsets)
            for (_, topic, partition), committed in found:
                offsets.commit(topic, partition, committed)
            self._committed_count += len(offsets)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        return (group_id, topic, partition) in self._pending

    def has_unstable(self, group_id: str) -> bool:
        """Whether open transactions have written offsets of the group."""
        return bool(self._pending.of_group(group_id))

    def unstable(self, group_id: str) -> list[tuple[str, int]]:
        """All (topic, partition) of the group that open transactions may still change."""
        return [(topic, partition) for _, topic, partition in self._pending.of_group(group_id)]

    # --- deletions ---

    async def delete(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Delete these offsets, also those that open transactions have written: they do not take effect later.

        Partitions without an offset are skipped. Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        offsets = self._host.group_or_new(group_id).offsets
        doomed = [
            OffsetRecord(topic, partition, None)
            for topic, partition in partitions
            if offsets.get(topic, partition) is not None or self.is_unstable(group_id, topic, partition)
        ]
        if doomed:
            await self._store(*self._offset_tombstones(group_id, doomed))

    async def delete_group(self, group: Group) -> None:
        """Delete an empty group and its offsets, also those that open transactions have written."""
        assert group.membership.is_empty, group.group_id
        assert group.lock.is_taken, group.group_id
        doomed = [OffsetRecord(topic, partition, None) for topic, partition in self.partitions(group)]
        await self._store(*self._group_tombstones(group, doomed))

    def partitions(self, group: Group, count_max: int | None = None) -> list[tuple[str, int]]:
        """(topic, partition) of the offsets of the group, also of open transactions; at most `count_max` of them."""
        committed = ((topic, partition) for topic, partition, _ in group.offsets)
        return list(islice(dict.fromkeys(chain(committed, self.unstable(group.group_id))), count_max))

    def has_outlived(self, only_topic: str | None = None) -> bool:
        """Whether there are offsets of topics that do not exist here (any more)."""
        return bool(self._outlived(only_topic))

    async def delete_outlived(self, only_topic: str | None = None) -> None:
        """Delete the offsets of topics that no longer exist, also those in open transactions.

        Of all topics, or of one name. This broker's image of the topics has to be as new as the log: a topic that it
        does not know yet would lose its offsets.
        """
        written: list[Future[None]] = []
        rows = 0
        for group_id, partitions in self._outlived(only_topic).items():
            found = list(partitions)
            for start in range(0, len(found), DELETED_AT_ONCE):
                # No await from here to the write: no commit comes in between.
                portion = found[start : start + DELETED_AT_ONCE]
                doomed = [OffsetRecord(*each, None) for each in portion if self._is_outlived(group_id, *each)]
                if doomed := self._without_newer(group_id, doomed):
                    written.append(self._store(*self._offset_tombstones(group_id, doomed)))
                    rows += len(doomed)
                if rows >= DELETED_AT_ONCE:
                    await self._deleted(written)
                    written, rows = [], 0
                    await sleep(0)
        await self._deleted(written)

    async def _deleted(self, written: Iterable[Future[None]]) -> None:
        """Return once these tombstones are durable, or are refused."""
        for refused in await gather(*written, return_exceptions=True):
            if isinstance(refused, KafkaError):
                self._log.warning("outlived_offsets_kept", error=str(refused))  # no client sees them anyway
            elif refused is not None:
                raise refused

    def _outlived(self, only_topic: str | None) -> dict[str, dict[tuple[str, int], None]]:
        """Group id -> (topic, partition) whose offsets are all of deleted topics."""
        found: dict[str, dict[tuple[str, int], None]] = {}
        for group_id, group in self._groups.items():
            for topic in group.offsets.topics() if only_topic is None else [only_topic]:
                for partition, committed in group.offsets.of_topic(topic).items():
                    if not self._host.context.is_of_current_topic(topic, committed):
                        found.setdefault(group_id, {})[topic, partition] = None
        for (group_id, topic, partition), *_ in self._pending:
            if only_topic in (topic, None) and self._is_outlived(group_id, topic, partition):
                found.setdefault(group_id, {})[topic, partition] = None
        return found

    def _is_outlived(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset of this partition, also in an open transaction, and none of the current topic."""
        group = self._groups.get(group_id)
        present = group.offsets.get(topic, partition) if group is not None else None
        if present is not None:
            return not self._host.context.is_of_current_topic(topic, present)
        held = self._pending.of((group_id, topic, partition))
        return any(not self._host.context.is_of_current_topic(topic, committed) for committed in held)

    def _without_newer(self, group_id: str, doomed: Sequence[OffsetRecord]) -> list[OffsetRecord]:
        """The records without a newer value under way: a tombstone behind that value would delete it."""
        written = self._journal.unsettled_keys()
        rows = offset_rows(group_id, doomed)
        return [record for record, (key, _) in zip(doomed, rows, strict=True) if key not in written]

    def expire(self, now_ms: int, retention_ms: int) -> None:
        """Delete offsets unused for `retention_ms`, those of deleted topics, and groups that become empty."""
        for group in list(self._groups.values()):
            expired = [
                record
                for record in (
                    *expired_offsets(group, now_ms, retention_ms),
                    *group.offsets.tombstones(
                        lambda topic, _, committed: not self._host.context.is_of_current_topic(topic, committed)
                    ),
                )
                if not self.is_unstable(group.group_id, record.topic, record.partition)
            ]
            doomed = self._without_newer(group.group_id, list(dict.fromkeys(expired))) if expired else []
            empty = group.membership.is_unused and len(doomed) == len(group.offsets)
            empty = empty and not self.has_unstable(group.group_id)
            empty = empty and group.lock.take()  # no member joins until the group is deleted
            if not doomed and not empty:
                continue
            self._log.info("offsets_expired", group=group.group_id, offsets=len(doomed), group_forgotten=empty)
            rows, apply = (
                self._group_tombstones(group, doomed) if empty else self._offset_tombstones(group.group_id, doomed)
            )
            position = self._journal.end_offset
            self._journal.write(
                rows,
                partial(self._expired, group if empty else None, partial(apply, position)),
                partial(self._not_expired, group, empty),
            )

    def _offset_tombstones(
        self, group_id: str, doomed: Sequence[OffsetRecord]
    ) -> tuple[list[Row], Callable[[int], None]]:
        return offset_rows(group_id, doomed), partial(self.apply, group_id, doomed)

    def _group_tombstones(
        self, group: Group, doomed: Sequence[OffsetRecord]
    ) -> tuple[list[Row], Callable[[int], None]]:
        rows = [*offset_rows(group.group_id, doomed), *self._host.kind_of(group).tombstones(group)]
        return rows, partial(self._group_deleted, group.group_id, doomed, group.membership.generation_id)

    def _group_deleted(self, group_id: str, doomed: Iterable[OffsetRecord], generation_id: int, position: int) -> None:
        """The tombstones of a group, written at `generation_id` or under the group's lock, are durable: remove it.

        Offsets committed meanwhile belong to a new group without a generation. A group that a member has joined
        meanwhile remains, without the deleted offsets.
        """
        self.apply(group_id, doomed, position)
        group = self._groups.get(group_id)
        if group is None or group.membership.generation_id != generation_id:
            return
        if group.membership.is_empty:
            self._host.remove(group)
            if group.offsets or self.has_unstable(group_id):
                self._groups[group_id] = Group(group_id, offsets=group.offsets)

    def _expired(self, locked: Group | None, apply: Callable[[], None]) -> None:
        apply()
        if locked is not None:
            locked.lock.give()

    def _not_expired(self, group: Group, is_locked: bool, error: Exception) -> None:
        if is_locked:
            group.lock.give()
        tell = self._log.warning if isinstance(error, KafkaError) else self._log.error  # the next sweep tries again
        tell("offsets_not_expired", group=group.group_id, error=str(error))

    # --- inside ---

    def _put(self, group_id: str, record: OffsetRecord) -> None:
        offsets = self._host.group_or_new(group_id).offsets
        self._committed_count -= len(offsets)
        offsets.apply(record)
        self._committed_count += len(offsets)

    def _store(self, rows: Sequence[Row], apply: Callable[[int], None]) -> Future[None]:
        return self._journal.store(rows, partial(apply, self._journal.end_offset))


def _nothing() -> None:
    """The offsets take effect with the transaction's marker."""
