"""The fetch sessions of followers, on the leader: which partitions each follower fetches, and what is new for it.

A follower names a partition once, and again when its state has changed: a new offset, below which it has all records,
or a new leader epoch (KIP-227, incremental fetches). Its session waits at each partition and is woken by every append.
So the cost of a fetch depends on the changes, not on the number of partitions: idle partitions cost nothing.

There is one session per follower. A follower that lost its connection, or whose leader restarted, begins a new one.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponseDivergingEpoch,
    FetchResponseLeader,
    FetchResponsePartition,
    FetchResponseSnapshotId,
)
from semel_storage.segments.segment import CorruptLog

from semel_broker.partitions.partition import LOG_END, Partition
from semel_broker.replication.throttle import LeaderThrottle
from semel_broker.scheduling.waiters import FetchWaiter
from semel_broker.world import World

Place = tuple[bytes, int]
"""(topic id as on the wire, partition index)."""
Find = Callable[[Place], Partition]
OnFetch = Callable[[Partition, int], None]

NO_LEADER, NO_DIVERGENCE, NO_SNAPSHOT = FetchResponseLeader(), FetchResponseDivergingEpoch(), FetchResponseSnapshotId()
UNKNOWN: Final = -1
START_SESSION_EPOCH: Final = 0
SESSION_EPOCH_MAX: Final = 0x7FFFFFFF
STARTS_PER_ANSWER: Final = 16
"""Partitions that each response checks for a moved log start, which wakes no session."""
IDLE_S: Final = 120.0
"""An idle session is closed after this time."""


class Watched(FetchWaiter):
    """A partition that a follower fetches: a waiter that stays registered. `offset`, `leader_epoch` and `last_epoch`
    are as the follower named them; `is_claimed`: it was checked that the follower has all records below the offset."""

    __slots__ = (
        "bytes_max",
        "high_watermark_sent",
        "is_claimed",
        "last_epoch",
        "leader_epoch",
        "mark",
        "offset",
        "partition",
        "place",
        "start_sent",
    )

    def __init__(self, place: Place, mark: Callable[[Watched], None]) -> None:
        self.place = place
        self.mark = mark
        self.partition: Partition | None = None
        self.offset = self.leader_epoch = self.last_epoch = UNKNOWN
        self.bytes_max = 0
        self.is_claimed = False
        self.high_watermark_sent = self.start_sent = UNKNOWN

    def name(self, wanted: FetchRequestPartition) -> None:
        """The follower names the partition in a request."""
        if (self.offset, self.leader_epoch) == (wanted.fetch_offset, wanted.current_leader_epoch):
            self.high_watermark_sent = self.start_sent = UNKNOWN
        self.offset, self.last_epoch = wanted.fetch_offset, wanted.last_fetched_epoch
        self.leader_epoch, self.bytes_max = wanted.current_leader_epoch, wanted.partition_max_bytes
        self.is_claimed = False

    def wake(self, bytes_more: int) -> None:
        self.mark(self)

    def release(self) -> None:
        self.mark(self)

    def watch(self, partition: Partition) -> Partition:
        if partition is not self.partition:
            self.forget()
            self.partition = partition
            partition.add_fetch_waiter(self, LOG_END)
        return partition

    def forget(self) -> None:
        if self.partition is not None:
            self.partition.view.remove_waiter(self)
            self.partition = None


class FetchSession:
    """The session of one follower. A request is applied by `take`; `news` and `rest` make the response."""

    def __init__(
        self,
        number: int,
        replica: int,
        world: World,
        find: Find,
        on_fetch: OnFetch,
        throttle: LeaderThrottle,
    ) -> None:
        self.number = number
        self.replica = replica
        self.broker_epoch = UNKNOWN
        self.next_epoch = START_SESSION_EPOCH
        self.fetched_s = 0.0
        self.is_closed = False
        self._world = world
        self._find = find
        self._on_fetch = on_fetch
        self._throttle = throttle
        self._rows: dict[Place, Watched] = {}
        self._news: dict[Watched, None] = {}
        self._unsettled: dict[Watched, None] = {}
        self._to_check: deque[Watched] = deque()
        self._waiting: Future[None] | None = None
        self.is_wait_ended = False
        """Whether the waiting fetch, or the next one, is answered at once, also without records."""

    # --- what the follower wants -----------------------------------------------------------------------------

    def take(self, request: FetchRequest) -> None:
        """Apply the next request of this session."""
        self.broker_epoch = request.replica_state.replica_epoch
        self.fetched_s = self._world.monotonic()
        self.next_epoch = 1 if request.session_epoch >= SESSION_EPOCH_MAX else request.session_epoch + 1
        for topic in request.topics:
            for wanted in topic.partitions:
                place = topic.topic_id, wanted.partition
                row = self._rows.get(place)
                if row is None:
                    row = self._rows[place] = Watched(place, self._mark)
                row.name(wanted)
                self._news[row] = None
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                self._drop((gone.topic_id, index))

    def _drop(self, place: Place) -> None:
        row = self._rows.pop(place, None)
        if row is not None:
            row.forget()
            self._news.pop(row, None)
            self._unsettled.pop(row, None)

    def _mark(self, row: Watched) -> None:
        self._news[row] = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # --- waiting ---------------------------------------------------------------------------------------------

    def wait(self, future: Future[None]) -> Future[None]:
        """Complete `future` as soon as a partition has news, or `end_wait` is called."""
        self._waiting = future
        if self._news or self.is_wait_ended:
            future.set_result(None)
        return future

    def end_wait(self) -> None:
        """Answer the waiting fetch, or the next one, at once: the follower has another request to send."""
        self.is_wait_ended = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # --- answering -------------------------------------------------------------------------------------------

    def news(self, bytes_max: int) -> list[tuple[Place, FetchResponsePartition]]:
        """Rows with records, or with an error or an epoch that diverges. Rows that exceed `bytes_max` come first the
        next time; rows that got records go to the end of the queue."""
        found: list[tuple[Place, FetchResponsePartition]] = []
        room, due, self._news = bytes_max, self._news, {}
        turn = iter(due)
        for row in turn:
            answer = self._serve(row, room, at_least_one=not found)
            if answer is not None:
                found.append((row.place, answer))
                room -= len(answer.records or b"") + len(answer.producer_snapshot)
                if room <= 0:
                    break
        self._news = {row: None for row in (*turn, *self._news) if self._rows.get(row.place) is row}
        return found

    def rest(self) -> Iterator[tuple[Place, FetchResponsePartition]]:
        """Rows with a high watermark or log start that is new to the follower, for a response that is sent anyway."""
        self._waiting, self.is_wait_ended = None, False
        for row in list(self._unsettled):
            if (answer := self._news_of(row)) is not None:
                yield row.place, answer
        if not self._to_check:
            self._to_check.extend(self._rows.values())
        for _ in range(min(STARTS_PER_ANSWER, len(self._to_check))):
            row = self._to_check.popleft()
            partition = row.partition
            has_moved = partition is not None and partition.log_start_offset != row.start_sent
            if has_moved and (answer := self._news_of(row)) is not None:
                yield row.place, answer

    def _serve(self, row: Watched, room: int, *, at_least_one: bool) -> FetchResponsePartition | None:
        try:
            if row.partition is None or row.partition.is_retired:
                row.watch(self._find(row.place))
            partition = row.partition
            assert partition is not None
            partition.check_leading()
            partition.check_leader_epoch(row.leader_epoch)
            if row.offset < partition.log_start_offset or _is_unknown_below_start(row, partition):
                return self._send_to_start(row, partition)
            if not row.is_claimed and (divergence := self._claim(row, partition)) is not None:
                return _row(row, partition, diverging_epoch=divergence)
            is_held = self._throttle.holds(row, partition, self.replica)
            bytes_max = 0 if is_held else min(row.bytes_max, room)
            records = partition.read_replica(row.offset, bytes_max=bytes_max, at_least_one=at_least_one and not is_held)
        except CorruptLog as error:
            self._world.log.error("log_unreadable", replica=self.replica, reason=str(error))
            return self._refuse(row, ErrorCode.KAFKA_STORAGE_ERROR)
        except KafkaError as error:
            return self._refuse(row, error.code)
        if records:
            self._throttle.note(partition, self.replica, len(records))
            return self._note_sent(row, partition, records)
        if row.offset < partition.end_offset and not is_held:
            self._news[row] = None  # its first batch did not fit
        elif row.high_watermark_sent != partition.high_watermark:
            self._unsettled[row] = None
        return None

    def _claim(self, row: Watched, partition: Partition) -> FetchResponseDivergingEpoch | None:
        """Check that the leader's log has the follower's offset and epoch; if so, the offset counts."""
        row.is_claimed = False
        if row.offset > 0 and row.last_epoch >= 0:
            epoch, end = partition.log.epochs.end_offset_for(row.last_epoch, partition.end_offset)
            if end < 0:
                raise _out_of_range(row, partition)  # a leader knows its own epoch at least
            if epoch < row.last_epoch or end < row.offset:
                return FetchResponseDivergingEpoch(epoch=epoch, end_offset=end)
        if row.offset > partition.end_offset:
            raise _out_of_range(row, partition)
        row.is_claimed = True
        self._note_replica(row, partition, self._world.monotonic())
        return None

    def _note_replica(self, row: Watched, partition: Partition, now_s: float) -> None:
        partition.note_replica(self.replica, self.broker_epoch, row.offset, int(now_s * 1000))
        self._on_fetch(partition, self.replica)

    def _refuse(self, row: Watched, code: int) -> FetchResponsePartition:
        """A row with an error; the follower names the partition again later."""
        row.is_claimed = False
        self._unsettled.pop(row, None)
        partition = row.partition
        is_leading = partition is not None and partition.is_leading and not partition.is_retired
        return FetchResponsePartition(
            partition_index=row.place[1],
            error_code=code,
            high_watermark=partition.high_watermark if partition is not None and is_leading else UNKNOWN,
            log_start_offset=partition.log_start_offset if partition is not None and is_leading else UNKNOWN,
            records=b"",
        )

    def _send_to_start(self, row: Watched, partition: Partition) -> FetchResponsePartition:
        """The follower has to begin anew at the log start, with the producers there."""
        answer = self._refuse(row, ErrorCode.OFFSET_OUT_OF_RANGE)
        answer.producer_snapshot = partition.producer_snapshot()
        return answer

    def _news_of(self, row: Watched) -> FetchResponsePartition | None:
        """A row without records, if the high watermark or the log start is new to the follower."""
        partition = row.partition
        if partition is None or not row.is_claimed or partition.leader_epoch != row.leader_epoch:
            self._unsettled.pop(row, None)
            return None
        sent = row.high_watermark_sent, row.start_sent
        if sent == (partition.high_watermark, partition.log_start_offset):
            if partition.high_watermark >= partition.end_offset:
                self._unsettled.pop(row, None)
            return None
        return self._note_sent(row, partition, b"")

    def _note_sent(self, row: Watched, partition: Partition, records: bytes) -> FetchResponsePartition:
        row.high_watermark_sent, row.start_sent = partition.high_watermark, partition.log_start_offset
        if row.high_watermark_sent < partition.end_offset:
            self._unsettled[row] = None
        else:
            self._unsettled.pop(row, None)
        return _row(row, partition, records=records)

    # --- keeping ---------------------------------------------------------------------------------------------

    def note_again(self) -> None:
        """Count the last fetch for all partitions of the session: those that it did not name are unchanged."""
        for row in list(self._rows.values()):
            partition = row.partition
            if partition is None or not row.is_claimed or partition.leader_epoch != row.leader_epoch:
                continue
            try:
                self._note_replica(row, partition, self.fetched_s)
            except KafkaError:  # another broker leads it; the next response says so
                self._mark(row)

    def close(self) -> None:
        """Leave all partitions, and end the waiting fetch."""
        self.is_closed = True
        for row in self._rows.values():
            row.forget()
        self._rows.clear()
        self._news.clear()
        self._unsettled.clear()
        self._to_check.clear()
        self.end_wait()


class Sessions:
    """The sessions of all followers. `find` returns a partition or raises KafkaError; `on_fetch` is called after each
    fetch of a follower, for each partition."""

    def __init__(self, world: World, find: Find, on_fetch: OnFetch, throttle: LeaderThrottle) -> None:
        self._world = world
        self._given = find, on_fetch, throttle
        self._by_replica: dict[int, FetchSession] = {}

    def take(self, request: FetchRequest) -> FetchSession:
        """The session of a follower's fetch, with the request applied; a new session if the request asks for one.

        Raises KafkaError: INVALID_REQUEST for a consumer, FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, and
        STALE_BROKER_EPOCH for a broker that has registered again since.
        """
        replica = request.replica_state.replica_id
        if replica < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "this listener is for brokers: consumers fetch from a client listener"
            )
        session = self._by_replica.get(replica)
        if request.session_epoch == START_SESSION_EPOCH:
            if session is not None:
                if request.replica_state.replica_epoch < session.broker_epoch:
                    raise KafkaError(
                        ErrorCode.STALE_BROKER_EPOCH,
                        f"broker {replica} has registered again since: fetch with its new broker epoch",
                    )
                session.close()
            number = self._world.rng.randint(1, 0x7FFFFFFF)
            session = self._by_replica[replica] = FetchSession(number, replica, self._world, *self._given)
        elif session is None or session.number != request.session_id:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id} is open: begin a new one"
            )
        elif session.next_epoch != request.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.number} expects epoch {session.next_epoch}, not {request.session_epoch}: "
                "begin a new one",
            )
        session.take(request)
        return session

    def end_wait(self, replica: int) -> None:
        """See `FetchSession.end_wait`."""
        if (session := self._by_replica.get(replica)) is not None:
            session.end_wait()

    def note_again(self) -> None:
        """See `FetchSession.note_again`. Idle sessions are closed."""
        now = self._world.monotonic()
        for replica, session in sorted(self._by_replica.items()):
            if now - session.fetched_s > IDLE_S:
                session.close()
                del self._by_replica[replica]
            else:
                session.note_again()

    def close(self) -> None:
        for _, session in sorted(self._by_replica.items()):
            session.close()
        self._by_replica.clear()


def _row(
    row: Watched,
    partition: Partition,
    *,
    records: bytes = b"",
    diverging_epoch: FetchResponseDivergingEpoch = NO_DIVERGENCE,
) -> FetchResponsePartition:
    return FetchResponsePartition(
        partition_index=row.place[1],
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        records=records,
        current_leader=NO_LEADER,
        diverging_epoch=diverging_epoch,
        snapshot_id=NO_SNAPSHOT,
    )


def _is_unknown_below_start(row: Watched, partition: Partition) -> bool:
    """Whether all records of the follower are deleted here, and of epochs that this log does not know any more.

    They may be others than those that were here. They do not matter, but the follower's producers follow from them.
    """
    if row.is_claimed or not 0 < row.offset == partition.log_start_offset:
        return False
    return 0 <= row.last_epoch < partition.log.epochs.earliest


def _out_of_range(row: Watched, partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {row.offset} is outside [{partition.log_start_offset}, {partition.end_offset}]",
    )
