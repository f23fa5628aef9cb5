"""One replica of a partition on this broker: its role, its log, appends, reads, and when an append is committed."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from semel_protocol.control import MARKER_BYTES
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.disk import FilesUsedUp

from semel_broker.partitions.durability import Durability
from semel_broker.partitions.flusher import Flusher
from semel_broker.partitions.read_view import LOG_END, READ_COMMITTED, READ_UNCOMMITTED, ReadView
from semel_broker.partitions.storage_errors import answering_used_up, used_up
from semel_broker.scheduling.waiters import OffsetWaiters

if TYPE_CHECKING:
    from semel_protocol.batch import BatchHeader
    from semel_storage.log.log import AppendResult, Log
    from semel_storage.producers.transactions import AbortedTransaction

    from semel_broker.partitions.replicas import Replicas
    from semel_broker.scheduling.waiters import FetchWaiter
    from semel_broker.world import World

__all__ = ["LATEST", "LOG_END", "READ_COMMITTED", "READ_UNCOMMITTED", "Lease", "Partition", "Role"]

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

Buffer = bytes | bytearray | memoryview

NOBODY = -1
NOWHERE = -1


class Role(Enum):
    """What this broker is to a partition of which it has a replica. NONE: not told yet, or its session is over."""

    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"


LEADER: Final = Role.LEADER
"""For checks of each batch: `Role.LEADER` takes ten times as long as a global on Python 3.11."""


class Lease(Protocol):
    """What a leader's word rests on: the session of its broker."""

    def is_valid(self) -> bool:
        """Whether nobody else can have been made leader because this broker was not heard of."""
        ...


class Partition:
    """A log, its role and its high watermark. The log is opened (and its directory created) at the first append, or by
    `open`. Without a word about roles it is led, by the only replica there is.

    `fsync`: only what is synced counts for the high watermark, so that consumers never see what a power cut could take
    back; every append schedules a sync, and all appends of one turn of the loop share it. Otherwise an append counts at
    once, as in Kafka. With followers (`replicas`) it is also theirs to have it.
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
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.role = role
        self.leader = NOBODY
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
        self._log: Log | None = None
        self._is_retired = False
        self._epoch_start_offset = 0
        self._committing = OffsetWaiters()
        self._storing = OffsetWaiters()

    # --- log -------------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        """The log, opened now if it is not yet. Raises UNKNOWN_TOPIC_OR_PARTITION once the partition is retired."""
        return self._log or self.open()

    def open(self) -> Log:
        """Open (create or recover) the log. Of the only replica everything found in it is committed as far as it is
        durable; of others it turns out later how far.

        The leader epoch goes on from that of the log, which another broker may have written.
        """
        if self._is_retired:
            raise self._gone()
        if self._log is None:
            self._log = log = self._open_log()
            self.durability = Durability(
                log,
                self._flusher,
                fsync=self._fsync,
                on_progress=self._update_high_watermark,
                on_failure=self._fail_waiting,
            )
            self.view.attach(log)
            self._begin_epoch(log)
            self.durability.sync_recovered()
        return self._log

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def is_retired(self) -> bool:
        """Whether the topic was deleted, or its replica here: the log is about to be closed, or is."""
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
        """Below it every replica has everything, as far as this broker can know; NOWHERE while one is not in sync. A
        leader knows by what its followers fetch, a follower by what is committed."""
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
        """Lead from now on, in this leader epoch. Without `replicas` there is no other one."""
        assert epoch >= self.leader_epoch, (self.topic, self.index, epoch, self.leader_epoch)
        self._give_up_waiting()
        self.role = LEADER
        self.leader, self.leader_epoch, self.replicas = NOBODY if replicas is None else replicas.me, epoch, replicas
        if self._log is not None:
            self.view.begin_counting()
            self._begin_epoch(self._log)

    def become_follower(self, leader: int, epoch: int) -> None:
        """Another broker leads in this epoch (NOBODY: none does). Who waits here hears that it is not here any more."""
        self.role = Role.FOLLOWER
        self.leader, self.leader_epoch, self.replicas = leader, max(epoch, self.leader_epoch), None
        self._give_up_waiting()

    def resign(self) -> None:
        """Neither lead nor follow until told otherwise: this broker's session is over."""
        self.role, self.is_whole = Role.NONE, False
        self.leader, self.replicas = NOBODY, None
        self._give_up_waiting()

    def update_isr(self, isr: list[int]) -> None:
        """These are in sync now, as the store has it."""
        if self.replicas is not None:
            self.replicas.settled(isr)
            self._update_high_watermark()

    def check_leading(self) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER unless this broker leads the partition for sure, 3 once it is retired."""
        if self._is_retired:
            raise self._gone()
        if self.role is not LEADER or (self._lease is not None and not self._lease.is_valid()):
            raise self._not_leader()

    def check_leader_epoch(self, epoch: int) -> None:
        """The epoch a client believes in (KIP-320), -1 for none. Raises FENCED_ or UNKNOWN_LEADER_EPOCH."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over, now is {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here yet")

    def _begin_epoch(self, log: Log) -> None:
        """Of a leader: its epoch begins at the end of the log."""
        if self.replicas is None:
            if self.is_leading:
                self.leader_epoch = max(self.leader_epoch, log.epochs.latest)
        else:
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
        self, batch: Buffer, *, header: BatchHeader, lazily: bool = False, acks_all: bool = True
    ) -> AppendResult:
        """Append one whole batch; runs to completion. With acks=all await `committed(result.last_offset + 1)`, with
        acks=1 what `storing` gives.

        `lazily`: nobody waits for it to be committed. Raises KafkaError: 10 and 18 (size), 45, 46 and 47 (producer
        state), 6 where another broker leads, 19 while too few replicas are in sync (`acks_all`), 3 once the partition
        is retired, 56 where no more files can be opened. A duplicate is no error: its result has the first offsets.
        """
        self.check_leading()
        log = self._log or self.open()
        if acks_all:
            self.check_in_sync(log)
        try:
            result = log.append(batch, header=header, leader_epoch=self.leader_epoch, now_ms=self._world.now_ms())
        except FilesUsedUp as error:
            raise used_up(error) from None
        if not result.duplicate:
            if header.is_transactional and self.open_transaction(header.producer_id) == result.base_offset:
                self.view.note_transaction(result.base_offset)
            self.view.note_append(log.end_offset, header.size)
            assert self.durability is not None
            self.durability.note_append(lazily)
        return result

    def append_marker(
        self, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int
    ) -> AppendResult:
        """Append the marker that ends the producer's transaction here; runs to completion.

        Await `committed(result.last_offset + 1)` before the transaction counts as ended. To do so again is harmless:
        a retry is answered with the first one's place. Raises KafkaError: 47 for an epoch that a newer one has
        fenced, 52 for a coordinator whose successor has written here, 6 and 19 as `append`, 3 once the partition is
        retired.
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

    def check_in_sync(self, log: Log) -> None:
        """Raises NOT_ENOUGH_REPLICAS while fewer than min.insync.replicas are in sync, or than there are (KIP-966)."""
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
        """The first offset of the producer's transaction that is open in this partition; None: none is."""
        state = self._log.producer(producer_id) if self._log is not None else None
        return state.txn_first_offset if state is not None and state.txn_first_offset >= 0 else None

    async def committed(self, offset: int) -> None:
        """Return once everything below `offset` is committed. Raises NOT_LEADER_OR_FOLLOWER if that is not for this
        broker to say any more."""
        if self.high_watermark < offset:
            self._flusher.hurry()
        if (future := self.committing(offset)) is not None:
            await future

    def committing(self, offset: int) -> Future[None] | None:
        """Done once everything below `offset` is committed; None: it is. Whoever has it may end it sooner.

        To be asked for in the turn of the append: only then the end of this leadership ends it. Raises as `committed`.
        """
        return None if self.view.high_watermark >= offset else self._waiting(self._committing, offset)

    def storing(self, offset: int) -> Future[None] | None:
        """As `committing`, once everything below `offset` is durable on this broker, whatever followers have."""
        self._update_high_watermark()  # a checkpoint's sync has covered it, perhaps, and told nobody
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

        Raises OFFSET_OUT_OF_RANGE beyond the high watermark, 6 where another broker leads.
        """
        self.check_leading()
        if before == LATEST:
            before = self.high_watermark
        if before < 0 or before > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete records before {before}: the high watermark is {self.high_watermark}",
            )
        if before > self.log_start_offset:
            self.log.delete_records_before(before)
        return self.log_start_offset

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, offset: int, *, bytes_max: int, isolation: int = 0, at_least_one: bool = True) -> bytes:
        """Whole stored batches from the one that holds `offset`; b"" at the end. The first may start below `offset`.

        Raises OFFSET_OUT_OF_RANGE below the log start or above the end.
        """
        up_to = self._readable_end(offset, isolation)
        if not up_to:
            return b""
        assert self._log is not None
        with answering_used_up():
            return self._log.read(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def read_committed(self, offset: int, *, bytes_max: int, at_least_one: bool = True) -> tuple[bytes, list[bytes]]:
        """`read` below the last stable offset, and the aborted transactions among it (`Log.read_committed`)."""
        up_to = self._readable_end(offset, READ_COMMITTED)
        if not up_to:
            return b"", []
        assert self._log is not None
        with answering_used_up():
            return self._log.read_committed(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def read_replica(self, offset: int, *, bytes_max: int, at_least_one: bool = True) -> bytes:
        """`read` for a follower: up to the end of the log."""
        self._check_range(offset)
        if offset == self.end_offset:
            return b""
        assert self._log is not None
        with answering_used_up():
            return self._log.read(offset, up_to=self.end_offset, bytes_max=bytes_max, at_least_one=at_least_one)

    def _readable_end(self, offset: int, isolation: int) -> int:
        """Where a reader at `offset` has to stop; 0 when there is nothing for it yet."""
        self._check_range(offset)
        up_to = self.view.visible_end(isolation)
        return up_to if offset < up_to else 0

    def _check_range(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{self.log_start_offset}, {self.end_offset}]",
            )

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions that end at or after `start` and begin below `end`, in the order of their markers."""
        return self._log.aborted_transactions(start, end) if self._log is not None else []

    def offset_for(self, timestamp: int, isolation: int = READ_UNCOMMITTED) -> tuple[int, int]:
        """ListOffsets of one timestamp (ms, or one of the special values): (offset, timestamp), -1 for none.

        Raises OFFSET_NOT_AVAILABLE as long as a new leader does not know up to where its log is committed (KIP-207).
        """
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return self.log_start_offset, -1
        if self.high_watermark < self._epoch_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"leader epoch {self.leader_epoch} has just begun: up to where the log is committed is not known yet",
            )
        up_to = self.view.visible_end(isolation)
        if timestamp == LATEST:
            return up_to, -1
        if timestamp == LATEST_TIERED or self._log is None:
            return -1, -1
        if timestamp == MAX_TIMESTAMP:
            return self._log.max_timestamp(up_to=up_to) or (-1, -1)
        if timestamp < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{timestamp} is no timestamp and no special value")
        return self._log.offset_for_timestamp(timestamp, up_to=up_to) or (-1, -1)

    def add_fetch_waiter(self, waiter: FetchWaiter, isolation: int = READ_UNCOMMITTED) -> None:
        """Wake `waiter` for all bytes that become readable at this isolation level, until `view.remove_waiter`.

        It is released at once if this broker does not lead the partition.
        """
        self.view.add_waiter(waiter, isolation)
        if self._is_retired or self.role is not LEADER:
            waiter.release()

    # --- followers -------------------------------------------------------------------------------------------

    def note_replica(self, replica: int, broker_epoch: int, offset: int, now_ms: int) -> None:
        """A follower has everything below `offset`. Raises NOT_LEADER_OR_FOLLOWER, 9 for who has no replica."""
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
        """Where a follower goes on, which says that it has everything below."""
        return self.durable_end

    def append_replicated(
        self, data: Buffer, *, leader_epoch: int, high_watermark: int, log_start_offset: int = -1
    ) -> None:
        """Of a follower: whole batches as the leader of this epoch has them. `synced` says when they are durable."""
        assert self.role is Role.FOLLOWER, (self.topic, self.index, self.role)
        assert leader_epoch == self.leader_epoch, (self.topic, self.index, leader_epoch, self.leader_epoch)
        log = self.log
        log.append_replicated(data, now_ms=self._world.now_ms())
        self.view.note_replicated(len(data))
        assert self.durability is not None
        self.durability.note_append()
        self.note_leader(high_watermark, log_start_offset)

    def note_leader(self, high_watermark: int, log_start_offset: int = -1) -> None:
        """Of a follower: how far the leader says that the log is committed, and where it begins."""
        self.view.follow(max(self.high_watermark, min(high_watermark, self.end_offset)))
        log = self._log
        if log is None:
            return
        if log.start_offset < log_start_offset <= self.end_offset:
            log.delete_records_before(log_start_offset)
        log.first_unstable_offset(self.high_watermark)  # what is decided below it need not be kept in mind

    def truncate_to(self, offset: int) -> None:
        """Of a follower: what lies at `offset` and above is not what the leader has."""
        assert self.role is Role.FOLLOWER, (self.topic, self.index, self.role)
        if offset < self.high_watermark:
            self._world.log.error(
                "committed_records_truncated",
                topic=self.topic,
                partition=self.index,
                high_watermark=self.high_watermark,
                offset=offset,
            )
            self.view.follow(offset)
        self.log.truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        """Of a follower: nothing of what is here is left in the leader's log, which starts at `offset`."""
        assert self.role is Role.FOLLOWER, (self.topic, self.index, self.role)
        self.log.restart_at(offset)
        self.view.follow(offset)

    # --- life ------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """The topic is deleted, or this replica: whoever waits or comes later gets UNKNOWN_TOPIC_OR_PARTITION."""
        self._is_retired = True
        self._fail_waiting(self._gone())
        if self.durability is not None:
            self.durability.retire()
            self.durability.fail(self._gone())
        self.view.release_waiters()

    async def close(self) -> None:
        """For good: nothing is appended any more, and all that was is durable. The data directory closes the log."""
        durability = self.durability
        if durability is not None:
            await durability.idle()
        was_retired, self._is_retired = self._is_retired, True
        if durability is not None and not was_retired:
            await durability.close()
            self._update_high_watermark()
        self._fail_waiting(self._not_leader())
        if durability is not None:
            durability.fail(self._gone())
        self.view.release_waiters()

    # --- inside ----------------------------------------------------------------------------------------------

    def _update_high_watermark(self) -> None:
        """Something that it follows from has changed: what is durable here, or at followers, or who is in sync."""
        log, durability = self._log, self.durability
        if log is None or durability is None:
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
                return
            end = replicas.high_watermark(end, high_watermark, isr_min=self._in_sync_min(log, replicas))
        if end > high_watermark:
            self.view.advance(end)
            if self._committing:
                self._committing.reached(end)

    def _gone(self) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic}-{self.index} is deleted or closed")

    def _not_leader(self) -> KafkaError:
        who = (
            f"broker {self.leader} leads"
            if self.leader != NOBODY and not self.is_leading
            else "nobody is known to lead"
        )
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{who} {self.topic}-{self.index}: refresh the metadata")
