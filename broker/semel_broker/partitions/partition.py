"""One replica of a partition on this broker: its role, its log, appends, reads, and when an append is committed."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task, get_running_loop
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from semel_protocol.control import MARKER_BYTES
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.checkpoints import CorruptCheckpoint
from semel_storage.disk.disk import FilesUsedUp, MissingFile
from semel_storage.log_directory import WrongDirectory

from semel_broker.partitions.durability import Durability
from semel_broker.partitions.flusher import Flusher
from semel_broker.partitions.read_view import LOG_END, READ_COMMITTED, READ_UNCOMMITTED, ReadView
from semel_broker.partitions.storage_errors import answering_used_up, reading, used_up
from semel_broker.scheduling.waiters import OffsetWaiters

if TYPE_CHECKING:
    from semel_protocol.batch import BatchHeader
    from semel_storage.log.durability import Steps
    from semel_storage.log.log import AppendResult, Log
    from semel_storage.producers.producers import ProducerState

    from semel_broker.partitions.disk_space import DiskSpace
    from semel_broker.partitions.replicas import Replicas
    from semel_broker.scheduling.waiters import FetchWaiter
    from semel_broker.world import World

__all__ = ["LATEST", "LOG_END", "READ_COMMITTED", "READ_UNCOMMITTED", "Lease", "Partition", "Role"]

# The special timestamps of ListOffsets: KIP-79, KIP-734, and three of tiered storage (KIP-405, KIP-1005, KIP-1023).
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

Buffer = bytes | bytearray | memoryview

NO_LEADER_NODE = -1
NOWHERE = -1
NO_EPOCH = -1


class Role(Enum):
    """The role of a replica. NONE: the cluster has not assigned one yet, or the session of this broker is over."""

    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"


LEADER: Final = Role.LEADER
"""For checks of each batch: `Role.LEADER` takes ten times as long as a global on Python 3.11."""


class Lease(Protocol):
    """The session of a broker, without which it leads nothing."""

    def is_valid(self) -> bool:
        """Whether the session lives: as long as it does, no other leader can be elected."""
        ...


class Partition:
    """A replica: a log with a role, a leader epoch, a `ReadView` and, once the log is open, a `Durability`.

    The log is opened, and its directory created, at the first append or by `open`. The default role is leader, of the
    only replica.

    `fsync`: only synced records count for the high watermark, so that consumers never read records that a power cut
    could remove. Otherwise an append counts at once, as in Kafka. With followers (`replicas`) the high watermark also
    waits for the followers that are in sync.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        *,
        open_log: Callable[[], Log],
        world: World,
        fsync: bool,
        flusher: Flusher | None = None,
        topic_id: str = "",
        role: Role = LEADER,
        lease: Lease | None = None,
        space: DiskSpace | None = None,
        on_offline: Callable[[], None] | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.role = role
        self.leader = NO_LEADER_NODE
        self.leader_epoch = 0
        self.replicas: Replicas | None = None
        """Of a leader with followers: how far each follower is, and which are in sync."""
        self.is_whole = role is LEADER
        """Whether all replicas are in sync, as far as this broker has heard."""
        self.view = ReadView()
        self.durability: Durability | None = None
        """None until the log is opened."""
        self._world = world
        self._open_log = open_log
        self._fsync = fsync
        self._flusher = flusher or Flusher(world.disk)
        self._lease = lease
        self._space = space
        self._on_offline = on_offline
        self._log: Log | None = None
        self._change: Task[None] | None = None
        self._deletion: Task[None] | None = None
        self._is_retired = False
        self._offline: KafkaError | None = None
        self.offline_reason = ""
        """Why the files of this replica cannot be used; empty: they can."""
        self._epoch_start_offset = 0
        self._committing = OffsetWaiters()
        self._storing = OffsetWaiters()

    # --- log -------------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        """The log, opened now if it is not yet. Raises as `open`."""
        return self._log or self.open()

    def open(self) -> Log:
        """Open (create or recover) the log; no effect if it is open.

        Raises UNKNOWN_TOPIC_OR_PARTITION once retired, and KAFKA_STORAGE_ERROR if no more files can be opened, or if
        the files of this partition cannot be used: then the partition is offline from now on.

        Of an only replica, all durable records in the log are committed. With followers, their fetches decide it later.
        The leader epoch of an only replica continues from that of the log: another broker may have written it.
        """
        if self._is_retired:
            raise self._gone()
        if self._offline is not None:
            raise self._offline.with_traceback(None)  # else it keeps the frames of all requests
        if self._log is None:
            self._log = log = self._opened()
            self.durability = Durability(
                log,
                self._flusher,
                fsync=self._fsync,
                on_progress=self._update_high_watermark,
                on_failure=self._fail_waiting,
            )
            self.view.attach(log)
            if not log.is_settled:
                self._change = get_running_loop().create_task(self._carry_out(log.settling()))
            self._begin_epoch(log)
            self.durability.sync_recovered()
        return self._log

    def _opened(self) -> Log:
        try:
            return self._open_log()
        except FilesUsedUp as error:
            raise used_up(error) from None
        except (KafkaError, CorruptCheckpoint, WrongDirectory, MissingFile, OSError) as error:
            raise self.take_offline(str(error)) from error

    def take_offline(self, reason: str) -> KafkaError:
        """The files of this replica cannot be used: from now on requests get KAFKA_STORAGE_ERROR, which is returned.

        Other partitions are not concerned. In a cluster another replica that is in sync leads: the broker tells the
        controller (`Registration.offline_changed`).
        """
        self.offline_reason = reason
        self._offline = offline = KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the files of {self.topic}-{self.index} on this broker cannot be used: its log has partition_offline with "
            "the reason",
        )
        self._world.log.error(
            "partition_offline",
            topic=self.topic,
            partition=self.index,
            reason=reason,
            do="repair its files, restore them from a copy, or move them away, then restart the broker",
        )
        if self._on_offline is not None:
            self._on_offline()
        return offline

    @property
    def is_offline(self) -> bool:
        """Whether the files of this replica cannot be used."""
        return self._offline is not None

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def is_retired(self) -> bool:
        """Whether the topic or this replica was deleted, or `close` was called: the log is closed or will be."""
        return self._is_retired

    # --- offsets ---------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log.start_offset if self._log is not None else 0

    @property
    def last_stable_offset(self) -> int:
        """Read-committed consumers read below this: see `ReadView.last_stable_offset`."""
        return self.view.last_stable_offset

    @property
    def high_watermark(self) -> int:
        """All records below it are committed: all replicas in sync have them."""
        return self.view.high_watermark

    @property
    def durable_end(self) -> int:
        """All records below it are durable on this broker, as far as its setting `durability` asks for it."""
        return self.durability.end_offset if self.durability is not None else 0

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.end_offset if self._log is not None else 0

    @property
    def held_by_all(self) -> int:
        """All replicas have all records below it, as far as this broker knows; NOWHERE while one is not in sync.

        A leader knows it from the fetches of its followers, a follower from the high watermark.
        """
        if not self.is_whole:
            return NOWHERE
        fetched = [] if self.replicas is None else self.replicas.offsets.values()
        return min([self.high_watermark, *fetched])

    # --- roles -----------------------------------------------------------------------------------------------

    @property
    def is_leading(self) -> bool:
        """Whether the role is LEADER. `check_leading` also checks the lease."""
        return self.role is LEADER

    def become_leader(self, epoch: int, replicas: Replicas | None = None) -> None:
        """Lead the partition in this leader epoch. `replicas` None: this is the only replica."""
        assert epoch >= self.leader_epoch, (self.topic, self.index, epoch, self.leader_epoch)
        self._give_up_waiting()  # of an older leadership: its records may have been truncated in between
        self.role = LEADER
        self.leader, self.leader_epoch, self.replicas = (
            NO_LEADER_NODE if replicas is None else replicas.me,
            epoch,
            replicas,
        )
        if self._log is not None and not self.is_changing:
            self.view.begin_counting()
            self._begin_epoch(self._log)

    def become_follower(self, leader: int, epoch: int) -> None:
        """Follow `leader` (or NO_LEADER_NODE) in this epoch. Waiting requests get NOT_LEADER_OR_FOLLOWER."""
        self.role = Role.FOLLOWER
        self.leader, self.leader_epoch, self.replicas = leader, max(epoch, self.leader_epoch), None
        self.view.forget_counts()
        self._give_up_waiting()

    def resign(self) -> None:
        """Neither lead nor follow until the next role: the session of this broker is over."""
        self.role, self.is_whole = Role.NONE, False
        self.leader, self.replicas = NO_LEADER_NODE, None
        self._give_up_waiting()

    def update_isr(self, isr: list[int]) -> None:
        """The store has this ISR."""
        if self.replicas is not None:
            self.replicas.settled(isr)
            self._update_high_watermark()

    def check_leading(self) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER without the role or a valid lease, UNKNOWN_TOPIC_OR_PARTITION once retired,
        KAFKA_STORAGE_ERROR while offline."""
        if self._is_retired:
            raise self._gone()
        if self._offline is not None:
            raise self._offline.with_traceback(None)  # else it keeps the frames of all requests
        if self.role is not LEADER or self.is_changing or (self._lease is not None and not self._lease.is_valid()):
            raise self._not_leader()

    def check_readable(self) -> None:
        """As `check_leading`, but a follower will do, whose session is valid (KIP-392)."""
        is_available = not self.is_changing and not self._is_retired and self._offline is None
        is_following = self.role is Role.FOLLOWER and is_available
        if not is_following or (self._lease is not None and not self._lease.is_valid()):
            self.check_leading()

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH for an older epoch of a client, UNKNOWN_LEADER_EPOCH for a newer one (KIP-320).

        -1: the client knows none. Anything below it is older than each epoch, as in Kafka.
        """
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {epoch} is over: the current one is {self.leader_epoch}; refresh the metadata",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {epoch} is not known here yet, {self.leader_epoch} is: try again",
        )

    def _begin_epoch(self, log: Log) -> None:
        """Of a leader: begin its epoch at the end of the log."""
        if self.replicas is None:
            if self.is_leading:
                self.leader_epoch = max(self.leader_epoch, log.epochs.latest)
        else:
            assert self.is_leading, "only a leader writes records of a new epoch"
            log.epochs.assign(self.leader_epoch, log.end_offset)
            self.replicas.epoch_start_offset = self._epoch_start_offset = log.end_offset
        self._update_high_watermark()

    def _give_up_waiting(self) -> None:
        self._fail_waiting(self._not_leader())
        self.view.release_waiters()

    def _fail_waiting(self, error: Exception) -> None:
        self._committing.fail(error)
        self._storing.fail(error)

    # --- writing ---------------------------------------------------------------------------------------------

    def append(
        self,
        batch: Buffer,
        *,
        header: BatchHeader,
        lazily: bool = False,
        acks_all: bool = True,
        transactional_id: str = "",
    ) -> AppendResult:
        """Append one whole batch; runs to completion. With acks=all await `committed(result.last_offset + 1)`, with
        acks=1 the future of `storing`.

        `lazily`: no caller waits for the commit. `transactional_id`: for the metrics. A duplicate is no error: its
        result has the first offsets. Raises KafkaError: what `Log.append` raises (size, producer state),
        NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (with `acks_all`), UNKNOWN_TOPIC_OR_PARTITION once the partition is
        retired, and KAFKA_STORAGE_ERROR if no more files can be opened.
        """
        self.check_leading()
        log = self._log or self.open()
        if acks_all:
            self.check_in_sync(log)
        now_ms = self._world.now_ms()
        try:
            result = log.append(batch, header=header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except FilesUsedUp as error:
            raise used_up(error) from None
        if not result.duplicate:
            if header.is_transactional and self.open_transaction(header.producer_id) == result.base_offset:
                self.view.note_transaction(result.base_offset, now_ms, transactional_id)
            self.view.note_append(log.end_offset, header.size)
            assert self.durability is not None
            self.durability.note_append(lazily)
        return result

    def append_marker(
        self, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int
    ) -> AppendResult:
        """Append the marker that ends the producer's transaction in this partition; runs to completion.

        Await `committed(result.last_offset + 1)` before the transaction counts as ended. A retry is harmless: its
        result has the offset of the first marker. Raises KafkaError: INVALID_PRODUCER_EPOCH for a fenced producer
        epoch, TRANSACTION_COORDINATOR_FENCED for a coordinator epoch older than one that has written here, and
        NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, UNKNOWN_TOPIC_OR_PARTITION and KAFKA_STORAGE_ERROR as `append`.
        """
        self.check_leading()
        log = self._log or self.open()
        self.check_in_sync(log)
        now_ms = self._world.now_ms()
        with answering_used_up():
            result = log.append_marker(
                producer_id, producer_epoch, commit, coordinator_epoch, leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        if not result.duplicate:
            self.view.note_append(log.end_offset, MARKER_BYTES)
            assert self.durability is not None
            self.durability.note_append()
        return result

    def check_room(self) -> None:
        """Raise KAFKA_STORAGE_ERROR while the disk has no room even for small records (`DiskSpace.check_small`)."""
        if self._space is not None:
            self._space.check_small()

    def check_in_sync(self, log: Log) -> None:
        """Raise NOT_ENOUGH_REPLICAS while fewer are in sync than min.insync.replicas, or than all (KIP-966)."""
        replicas = self.replicas
        if replicas is not None and len(replicas.isr) < self._in_sync_min(log, replicas):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index}: in sync are brokers {list(replicas.isr)}, "
                f"min.insync.replicas is {log.config.min_insync_replicas}",
            )

    def _in_sync_min(self, log: Log, replicas: Replicas) -> int:
        return min(log.config.min_insync_replicas, 1 + len(replicas.followers))

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction in this partition; None if it has none."""
        state = self._log.producers.get(producer_id) if self._log is not None else None
        return state.txn_first_offset if state is not None and state.txn_first_offset >= 0 else None

    async def committed(self, offset: int) -> None:
        """Return once all records below `offset` are committed.

        Raises NOT_LEADER_OR_FOLLOWER if this broker stops leading before, UNKNOWN_TOPIC_OR_PARTITION once retired.
        """
        if self.high_watermark < offset:
            self._flusher.hurry()
        if (future := self.committing(offset)) is not None:
            await future

    def committing(self, offset: int) -> Future[None] | None:
        """A future that is done once all records below `offset` are committed; None if they are. It may be cancelled.

        Call it in the same turn of the loop as the append: only then the end of this leadership fails the future.
        Raises as `committed`.
        """
        return None if self.view.high_watermark >= offset else self._waiting(self._committing, offset)

    def storing(self, offset: int) -> Future[None] | None:
        """As `committing`, once all records below `offset` are durable on this broker, with or without followers."""
        self._update_high_watermark()  # the sync of a checkpoint may have covered it without a notice
        return None if self.durable_end >= offset else self._waiting(self._storing, offset)

    def _waiting(self, waiters: OffsetWaiters, offset: int) -> Future[None]:
        if self._is_retired:
            raise self._gone()
        if self.role is not LEADER:
            raise self._not_leader()
        return waiters.wait_for(offset, get_running_loop())

    async def synced(self) -> None:
        """Return once all records that were appended so far are durable on this broker."""
        if self.durability is not None:
            await self.durability.synced()

    def hurry(self) -> None:
        """Sync now all appends that wait for it, here and in other partitions, if the disk is quick."""
        self._flusher.hurry()

    def delete_records(self, before: int) -> int:
        """Move the log start to `before` (-1: the high watermark); returns the new low watermark.

        It counts after `log_start_saved`. Raises OFFSET_OUT_OF_RANGE beyond the high watermark, NOT_LEADER_OR_FOLLOWER,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        self.check_leading()
        if before == LATEST:
            before = self.high_watermark
        if before < 0 or before > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete records before {before}: the high watermark is {self.high_watermark}; ask for less",
            )
        if before > self.log_start_offset:
            self._raise_start(self.log, before)
        return self.log_start_offset

    async def log_start_saved(self) -> None:
        """Return once the log start is durable as of now."""
        if self._log is not None:
            await self._log.durability.checkpoint_files.saved()

    def _raise_start(self, log: Log, offset: int) -> None:
        """Also begin to remove the segments below it. A removal that runs may leave some for the next sweep."""
        log.raise_start_offset(offset)
        log.durability.checkpoint_files.note()
        if self._deletion is None and log.has_unreadable_segments:
            self._deletion = get_running_loop().create_task(self._delete(log))

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, offset: int, *, bytes_max: int, isolation: int = 0, at_least_one: bool = True) -> bytes:
        """Whole stored batches from the batch with `offset` on; b"" at the end. The first may start below `offset`.

        Raises OFFSET_OUT_OF_RANGE below the log start or above the log end, KAFKA_STORAGE_ERROR if no more files can
        be opened, or if the disk hangs and the records are not in memory.
        """
        up_to = self._readable_end(offset, isolation)
        if not up_to:
            return b""
        assert self._log is not None
        with self._reading():
            return self._log.read(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def read_committed(self, offset: int, *, bytes_max: int, at_least_one: bool = True) -> tuple[bytes, list[bytes]]:
        """As `read`, below the last stable offset, and the aborted transactions in it (`Log.read_committed`)."""
        up_to = self._readable_end(offset, READ_COMMITTED)
        if not up_to:
            return b"", []
        assert self._log is not None
        with self._reading():
            return self._log.read_committed(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def read_replica(self, offset: int, *, bytes_max: int, at_least_one: bool = True) -> bytes:
        """As `read`, for a follower: up to the end of the log."""
        self._check_range(offset)
        if offset == self.end_offset:
            return b""
        assert self._log is not None
        with self._reading():
            return self._log.read(offset, up_to=self.end_offset, bytes_max=bytes_max, at_least_one=at_least_one)

    def producer_snapshot(self) -> bytes:
        """For a follower that is below the log start: `Log.producer_snapshot`.

        Raises CorruptLog, KAFKA_STORAGE_ERROR if no more files can be opened.
        """
        with self._reading():
            return self.log.producer_snapshot()

    def _readable_end(self, offset: int, isolation: int) -> int:
        """The offset at which a read from `offset` ends; 0 if nothing is readable there yet."""
        self._check_range(offset)
        up_to = self.view.visible_end(isolation)
        return up_to if offset < up_to else 0

    def _check_range(self, offset: int) -> None:
        if self.is_changing:
            raise self._not_leader()
        if not self.log_start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{self.log_start_offset}, {self.end_offset}]",
            )

    def offset_for(self, timestamp: int, isolation: int = READ_UNCOMMITTED) -> tuple[int, int]:
        """ListOffsets of one timestamp (ms, or a special value): (offset, timestamp), -1 for none.

        Raises OFFSET_NOT_AVAILABLE while the high watermark of a new leader is below the start of its epoch (KIP-207),
        INVALID_REQUEST for an unknown special value, KAFKA_STORAGE_ERROR as `read`.
        """
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return self.log_start_offset, -1
        if self.high_watermark < self._epoch_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"leader epoch {self.leader_epoch} has just begun: its high watermark is not known yet; try again",
            )
        up_to = self.view.visible_end(isolation)
        if timestamp == LATEST:
            return up_to, -1
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD) or self._log is None:
            return -1, -1
        if timestamp == MAX_TIMESTAMP:
            with self._reading():
                return self._log.max_timestamp(up_to=up_to) or (-1, -1)
        if timestamp < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{timestamp} is neither a timestamp nor a special value: ask for 0 or above, or for -1 to -6",
            )
        with self._reading():
            return self._log.offset_for_timestamp(timestamp, up_to=up_to) or (-1, -1)

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self._world.disk, hangs=self._space is not None and self._space.hangs.is_hanging)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; the current one at the end, -1 for a negative offset."""
        if offset < 0:
            return NO_EPOCH
        return self.leader_epoch if offset >= self.end_offset else self.log.epochs.epoch_of(offset)

    def add_fetch_waiter(self, waiter: FetchWaiter, isolation: int = READ_UNCOMMITTED) -> None:
        """Wake `waiter` for all bytes that become readable at this isolation level, until `view.remove_waiter`.

        It is released at once if nothing can become readable here. On a follower only consumers wait (KIP-392).
        """
        self.view.add_waiter(waiter, isolation)
        is_follower = self.role is Role.FOLLOWER and isolation != LOG_END
        if self._is_retired or not (self.role is LEADER or is_follower):
            waiter.release()

    # --- followers -------------------------------------------------------------------------------------------

    def note_replica(self, replica: int, broker_epoch: int, offset: int, now_ms: int) -> None:
        """A follower has all records below `offset`. Raises NOT_LEADER_OR_FOLLOWER, REPLICA_NOT_AVAILABLE."""
        self.check_leading()
        replicas = self.replicas
        if replicas is None or not replicas.note_fetch(
            replica, broker_epoch, offset, now_ms=now_ms, end_offset=self.end_offset
        ):
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {replica} has no replica of {self.topic}-{self.index}"
            )
        self._update_high_watermark()

    # --- following -------------------------------------------------------------------------------------------

    @property
    def fetch_offset(self) -> int:
        """The offset of a follower's next fetch: it tells the leader that all records below are durable here."""
        return self.durable_end

    def append_replicated(
        self, data: Buffer, *, leader_epoch: int, high_watermark: int, log_start_offset: int = -1
    ) -> None:
        """Of a follower: append whole batches of the leader of this epoch. Await `synced` until they are durable.

        If the leader's log start is inside of the first batch, the log restarts before that: await `changed`.
        """
        assert self.role is Role.FOLLOWER, (self.topic, self.index, self.role)
        assert leader_epoch == self.leader_epoch, (self.topic, self.index, leader_epoch, self.leader_epoch)
        assert not self.is_changing, "the records would be removed with those before them"
        log = self.log
        begins_at = log.begins_inside(data)
        if begins_at is None:
            self._append_replicated(log, data, high_watermark, log_start_offset)
            return

        def append() -> None:
            if self.role is Role.FOLLOWER and self.leader_epoch == leader_epoch and not self._is_retired:
                self._append_replicated(log, data, high_watermark, log_start_offset)

        steps = log.restart(begins_at, log.producers.all())
        self._begin_change(steps, restarts_at=begins_at, then=append)

    def _append_replicated(self, log: Log, data: Buffer, high_watermark: int, log_start_offset: int) -> None:
        log.append_replicated(data, now_ms=self._world.now_ms())
        self.view.note_replicated(log.end_offset, len(data))
        assert self.durability is not None
        self.durability.note_append()
        self.note_leader(high_watermark, log_start_offset)

    def note_leader(self, high_watermark: int, log_start_offset: int = -1) -> None:
        """Of a follower: take over the leader's high watermark and log start."""
        self.view.follow(max(self.high_watermark, min(high_watermark, self.end_offset)))
        log = self._log
        if log is None:
            return
        if log.start_offset < log_start_offset <= self.end_offset:
            self._raise_start(log, log_start_offset)
            log.durability.checkpoint_files.save_soon()
        log.producers.transactions.first_unstable_offset(
            self.high_watermark
        )  # forgets the transactions that are decided below it

    @property
    def is_changing(self) -> bool:
        """Whether records are being removed from the end (`truncate_to`, `restart_at`, or by recovery when the log was
        opened). Then nothing is read or appended: requests get NOT_LEADER_OR_FOLLOWER.
        """
        return self._change is not None

    def truncate_to(self, offset: int) -> None:
        """Of a follower: begin to remove the records at `offset` and above, which the leader's log does not have.

        Await `changed`.
        """
        assert self.role is Role.FOLLOWER, "followers count on each record of their leader"
        if offset < self.high_watermark:
            self._world.log.error(
                "committed_records_truncated",
                topic=self.topic,
                partition=self.index,
                high_watermark=self.high_watermark,
                offset=offset,
            )
            self.view.follow(offset)
        if offset >= self.end_offset:
            self.log.truncate_to(offset)  # nothing but epochs
        else:
            self._begin_change(self.log.truncation(offset))

    def restart_at(self, offset: int, producers: Collection[ProducerState]) -> None:
        """Of a follower: begin to remove all records. The leader's log starts at `offset`, the end of this one or above
        it. Await `changed`.

        `producers`: as the leader has them at that offset.
        """
        self._begin_change(self.log.restart(offset, producers), restarts_at=offset)

    def _begin_change(
        self, steps: Steps[None], restarts_at: int | None = None, then: Callable[[], None] | None = None
    ) -> None:
        assert self.role is Role.FOLLOWER, (self.topic, self.index, self.role)
        assert self._change is None, (self.topic, self.index)
        self._change = get_running_loop().create_task(self._carry_out(steps, restarts_at, then))

    async def _carry_out(
        self, steps: Steps[None], restarts_at: int | None = None, then: Callable[[], None] | None = None
    ) -> None:
        log = self.log
        try:
            await log.carry_out(steps)
        finally:
            self._change = None
        self.view.forget_counts()
        if restarts_at is not None:
            self.view.follow(restarts_at)
        if self.is_leading:  # it was elected meanwhile
            self.view.begin_counting()
            self._begin_epoch(log)
        if then is not None:
            then()

    async def _delete(self, log: Log) -> None:
        """Remove what is below the log start."""
        try:
            await log.carry_out(log.deletion_of_records())
        finally:
            self._deletion = None

    async def changed(self) -> None:
        """Return once the change that was begun is done, or at once. Raises what made it fail."""
        if self._change is not None:
            await asyncio.wait((change := self._change,))
            change.result()

    # --- life ------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """The topic or this replica is deleted: waiting and later requests get UNKNOWN_TOPIC_OR_PARTITION."""
        self._is_retired = True
        gone = self._gone()
        self._fail_waiting(gone)
        if self.durability is not None:
            self.durability.retire()
            self.durability.fail(gone)
        self.view.release_waiters()

    async def close(self) -> None:
        """Sync all records and accept no append any more. The data directory closes the log itself."""
        durability = self.durability
        if running := [task for task in (self._change, self._deletion) if task is not None]:
            await asyncio.wait(running)
        if durability is not None:
            await durability.idle()
        was_retired, self._is_retired = self._is_retired, True
        if durability is not None and not was_retired:
            await durability.close()
            self._update_high_watermark()
        self._fail_waiting(self._not_leader())
        if durability is not None:
            durability.end(self._gone())
        self.view.release_waiters()

    # --- inside ----------------------------------------------------------------------------------------------

    def _update_high_watermark(self) -> None:
        """To be called when the durable end, the offset of a follower or the ISR has changed."""
        log, durability = self._log, self.durability
        if log is None or durability is None or self.is_changing:
            return
        end = durability.settled_end()
        if self.role is not LEADER:
            return
        if self._storing:
            self._storing.reached(end)
        replicas = self.replicas
        high_watermark = self.view.high_watermark
        if replicas is not None:
            if self._lease is not None and not self._lease.is_valid():
                return  # another broker may lead already, without the records above its own high watermark
            end = replicas.high_watermark(end, high_watermark, isr_min=self._in_sync_min(log, replicas))
        if end > high_watermark:
            assert end <= log.end_offset, "a record cannot be committed before it is written"
            self.view.advance(end)
            if self._committing:
                self._committing.reached(end)

    def _gone(self) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic}-{self.index} is deleted or closed")

    def _not_leader(self) -> KafkaError:
        place = f"{self.topic}-{self.index}"
        if self.leader != NO_LEADER_NODE and not self.is_leading:
            reason = f"broker {self.leader} leads {place}"
        else:
            reason = f"no leader of {place} is known"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{reason}: refresh the metadata")
