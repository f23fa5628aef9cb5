"""Fetches records ahead of the application: one long-poll for each broker, within `fetch_buffer_bytes`.

A broker has a task only while there is something to fetch from it. A partition is fetched while less than
`max_partition_fetch_bytes` of it are buffered, so the next fetch is in flight while the application processes the last
one. The fetches from a broker are one session (KIP-227); the broker forgets it some time after the last one.

Topics are fetched by their ids (KIP-516), so that a topic that was created again is never read at a position of its
predecessor. Brokers below Fetch v13 know only names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from semel_protocol.acls import Operation
from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponseDivergingEpoch,
    FetchResponsePartition,
)
from semel_protocol.schema import ZERO_UUID

from semel._config.consumer import ConsumerConfig
from semel._consume import truncation
from semel._consume.fetch_session import BY_ID_FROM, FetchSession, Wanted
from semel._net.cluster import Cluster
from semel._net.connection import Connection
from semel._net.leader_watch import LeaderWatch
from semel._net.outage import Outage
from semel._net.pool import ConnectionPurpose
from semel._net.retry import LOGIN_REFUSED, Action, action_for
from semel._net.signal import Signal
from semel._subscription.fetch_buffer import ByteCount
from semel._subscription.subscription import AssignedPartition, NearReplica, Reset, Subscription, TopicIdPartition
from semel.errors import (
    CorruptRecordException,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    error_for,
)
from semel.structs import TopicPartition

log = logging.getLogger(__name__)

WAIT_WHILE_FULL_MS = 25
"""The long-poll time when partitions of the broker are left out because their buffers are full: they may need a
fetch at any moment.
"""
RETRY_LEADER_MS = 100
"""A partition without a leader is looked at again after this time."""

ROOM_SHARE = 4
"""A fetch is sent when at least one ROOM_SHARE-th of a broker's share of `fetch_buffer_bytes` is free."""

Asked = dict[TopicPartition, tuple[AssignedPartition, int]]
"""The partition states to fetch, and the requested offsets."""
Named = dict[TopicIdPartition, tuple[AssignedPartition, int]]
"""The same, as they are named to the broker."""


class Fetcher:
    """Fills the buffers of `subscription`. `arrived` is notified when there is data to hand out.

    ready: partitions with buffered data, in order of arrival; the consumer takes from the front.
    """

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, subscription: Subscription, lost: Callable[[], None]
    ) -> None:
        self._cluster, self._config, self._subscription = cluster, config, subscription
        self._position_lost = lost
        self._edge = cluster.edge
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._tallies: dict[int, ByteCount] = {}
        self._share_bytes = config.fetch_buffer_bytes
        self._out_of_room: dict[int, None] = {}
        self._unreachable: dict[int, None] = {}
        self._leader_watch = LeaderWatch(
            self._edge, config.retry_backoff_ms, lambda: bool(self._unreachable), cluster.request_refresh
        )
        self.arrived = Signal()
        self.ready: dict[TopicPartition, AssignedPartition] = {}
        self.failure: BaseException | None = None

    def wake(self) -> None:
        """Start the tasks that have something to fetch, after a change of assignment, position, room or leader."""
        if self._stopped:
            return
        if self._unreachable:
            self._leader_watch.leader_missing()
        leaderless = False
        for partition, state in self._subscription.states.items():
            if not self._is_wanted(state):
                continue
            pause_ms = (state.retry_at - self._edge.monotonic()) * 1000
            if pause_ms > 0:
                self._wake_later(pause_ms)  # the timer may have fired for another partition that was refused earlier
                continue
            source = self._source(state)
            if source < 0:
                self._cluster.want([partition.topic])
                self._wake_later(RETRY_LEADER_MS)
                leaderless = True
            else:
                self._ensure_task(source)
        if leaderless:
            self._cluster.request_refresh()

    def records_taken(self, state: AssignedPartition) -> None:
        """The application took records of this partition. As `wake`, at a cost that does not grow with the
        partitions.
        """
        source = self._source(state)
        if self._stopped:
            return
        if source < 0:
            self._wake_later(RETRY_LEADER_MS)  # while its buffer was full, the missing leader was not noticed
            return
        # A broker without room waits for more than a few bytes: one fetch covers all its partitions.
        if self._room(source) >= self._room_min if source in self._out_of_room else self._fetchable(state):
            self._ensure_task(source)

    def _source(self, state: AssignedPartition) -> int:
        """The broker to fetch this partition from: its leader, or the nearer replica that the leader has named
        (KIP-392). -1: no leader is known.
        """
        metadata, partition = self._cluster.metadata, state.topic_partition
        near = state.near
        if near is not None and metadata.describes(partition.topic, state.topic_id):
            epoch = metadata.leader_epoch(*partition)
            if near.until > self._edge.monotonic() and near.leader_epoch == epoch and near.node_id in metadata.brokers:
                return near.node_id
            state.near = None
        return metadata.leader(*partition, state.topic_id)

    def _ensure_task(self, node_id: int) -> None:
        if node_id not in self._tasks:
            task = asyncio.create_task(self._fetch_from(node_id), name=f"fetch from {node_id}")
            self._tasks[node_id] = task
            task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End all fetches, and wait until their tasks have ended."""
        if tasks := self.cut():
            await asyncio.wait(tasks)

    def cut(self) -> list[asyncio.Task[None]]:
        """End all fetches. Wakes the calls that wait for records. Returns the tasks, which end soon."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._leader_watch.close()
        self.arrived.notify()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug in this client: the application must get it instead of waiting for records for ever.
            self.failure = error
            self.arrived.notify()

    @property
    def buffered_bytes(self) -> int:
        """Fetched bytes held for the application, over all partitions."""
        return sum(tally.size_bytes for tally in self._tallies.values())

    def _room(self, node_id: int) -> int:
        """The bytes that may still be fetched from this broker. Each broker has an equal share of
        `fetch_buffer_bytes`.
        """
        return self._share_bytes - self._tallies[node_id].size_bytes

    @property
    def _room_min(self) -> int:
        return self._share_bytes // ROOM_SHARE

    def _fetchable(self, state: AssignedPartition) -> bool:
        return self._is_wanted(state) and state.retry_at <= self._edge.monotonic()

    def _is_wanted(self, state: AssignedPartition) -> bool:
        return (
            state.buffer.fetch_offset is not None
            and not state.paused
            and not state.held
            and state.error is None
            and state.buffer.size_bytes < self._config.max_partition_fetch_bytes
        )

    def _wake_later(self, delay_ms: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    async def _fetch_from(self, node_id: int) -> None:
        try:
            await self._keep_fetching(node_id)
        finally:
            # Here, not in a callback, which would run later: a call of `wake` in between would find the task alive.
            self._tasks.pop(node_id, None)
            self._unreachable.pop(node_id, None)

    async def _keep_fetching(self, node_id: int) -> None:
        """Fetch until there is nothing to request from this broker."""
        config = self._config
        backoff = Backoff(self._edge.rng, config.retry_backoff_ms, config.retry_backoff_max_ms)
        outage = Outage(self._edge)
        session = self._sessions.setdefault(node_id, FetchSession())
        while True:
            asked, left_out = self._wanted_from(node_id)
            room = self._room(node_id)
            if not asked or room < self._room_min:
                return
            try:
                connection = await self._cluster.connection(node_id, ConnectionPurpose.FETCH)
                if not await self._check_logs(connection, asked):
                    continue
                is_by_id = _is_by_id(connection, asked)
                named = _named(asked, is_by_id)
                request = self._request(room, left_out)
                session.fill(request, self._wanted_rows(named), connection, is_by_id=is_by_id)
                response: FetchResponse = await connection.request(
                    request, timeout_ms=config.request_timeout_ms, version_max=BY_ID_FROM if is_by_id else None
                )
            except KafkaError as error:
                if outage.is_due():
                    log.info("fetch from broker %d failed, trying again: %s", node_id, error)
                if isinstance(error, LOGIN_REFUSED):
                    for state, _ in asked.values():
                        self.fail(state, error)
                    continue
                for state, _ in asked.values():
                    state.leave_near(node_id)
                self._cluster.request_refresh()
                self._unreachable[node_id] = None
                self._leader_watch.leader_missing()
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            if node_id in self._unreachable:
                del self._unreachable[node_id]
                self._leader_watch.leader_reached()
            if response.error_code:
                if session.refused(response.error_code):
                    log.debug("broker %d does not have the fetch session: the next fetch is full", node_id)
                    continue
                if outage.is_due():
                    reason = error_for(response.error_code)
                    log.warning("broker %d refused the fetch, trying again: %s", node_id, reason)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            backoff.reset()
            outage.end()
            session.answered(response)
            self._accept(node_id, named, response)

    def _wanted_from(self, node_id: int) -> tuple[Asked, bool]:
        """The partitions to fetch from this broker now, and whether some were left out because their buffers are
        full.
        """
        tally = self._tallies.setdefault(node_id, ByteCount())
        asked: Asked = {}
        sources: dict[int, None] = {}
        left_out = False
        for partition, state in self._subscription.states.items():
            source = self._source(state)
            sources[source] = None
            if source != node_id:
                continue
            state.buffer.count_into(tally)
            if self._fetchable(state):
                assert state.buffer.fetch_offset is not None
                asked[partition] = (state, state.buffer.fetch_offset)
            else:
                full = state.buffer.size_bytes >= self._config.max_partition_fetch_bytes
                left_out = left_out or (full and not state.paused and not state.held)
        self._share_bytes = self._config.fetch_buffer_bytes // max(len(sources), 1)
        if asked and self._room(node_id) < self._room_min:
            self._out_of_room[node_id] = None
        else:
            self._out_of_room.pop(node_id, None)
        return asked, left_out

    async def _check_logs(self, connection: Connection, asked: Asked) -> bool:
        """Whether these partitions can be fetched from their current leader: its log contains the records that were
        read.

        Checked once for each leader epoch, and only with brokers where Fetch does not check it (KIP-320, below Fetch
        v12).
        """
        needed = truncation.is_needed(connection)
        read: dict[TopicPartition, truncation.Read] = {}
        for partition, (state, offset) in asked.items():
            epoch, last_epoch = self._cluster.metadata.leader_epoch(*partition), state.buffer.epochs.last
            if needed and last_epoch >= 0 and epoch not in (-1, state.leader_epoch):
                read[partition] = truncation.Read(offset, last_epoch, epoch)
            else:
                state.leader_epoch = epoch
        if not read:
            return True
        found = await truncation.check(connection, read, self._config.request_timeout_ms)
        for partition, one in read.items():
            state, offset = asked[partition]
            finding = found.get(partition)
            if not self._subscription.in_charge(state) or state.buffer.fetch_offset != offset:
                continue
            if finding is None or finding.code:
                self._refused(state, offset, ErrorCode.REQUEST_TIMED_OUT if finding is None else finding.code)
            elif finding.diverges:
                self._truncated(state, finding.leader)
            else:
                state.leader_epoch = one.leader_epoch
        return False

    def _wanted_rows(self, named: Named) -> Wanted:
        partition_max_bytes = self._config.max_partition_fetch_bytes
        return {
            partition: FetchRequestPartition(
                partition=partition.partition,
                current_leader_epoch=state.leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=state.buffer.epochs.last,
                partition_max_bytes=partition_max_bytes,
            )
            for partition, (state, offset) in named.items()
        }

    def _request(self, room: int, left_out: bool) -> FetchRequest:
        """One Fetch request, without partitions. Its first partition may bring one batch above any limit, so one such
        batch may be held per broker.
        """
        config = self._config
        return FetchRequest(
            max_wait_ms=min(config.fetch_max_wait_ms, WAIT_WHILE_FULL_MS) if left_out else config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=min(config.fetch_max_bytes, room),
            isolation_level=1 if config.read_committed else 0,
            topics=[],
            rack_id=config.client_rack,
        )

    def _accept(self, node_id: int, named: Named, response: FetchResponse) -> None:
        arrived = has_moved = False
        self._note_ends(node_id, named)
        for partition, row in self._sessions[node_id].rows(response):
            state, offset = named.get(partition, (None, -1))
            if state is None or not self._subscription.in_charge(state) or state.buffer.fetch_offset != offset:
                continue  # since the request was sent, the partition was revoked or its position changed
            if row.error_code and state.leave_near(node_id):
                log.info("%s; fetching from the leader", _refusal(row.error_code, state, offset, node_id))
                has_moved = True
                continue
            if row.error_code:
                leader = row.current_leader
                if self._cluster.metadata.describes(partition.topic, state.topic_id):
                    self._cluster.update_leader(
                        partition.topic, partition.partition, leader.leader_id, leader.leader_epoch
                    )
                arrived = self._refused(state, offset, row.error_code) or arrived
                continue
            if row.diverging_epoch.end_offset >= 0:
                arrived = self._truncated(state, row.diverging_epoch) or arrived
                continue
            if row.records and not state.held:
                arrived = self._buffer(state, row) or arrived
            if row.preferred_read_replica >= 0:
                has_moved = self._move(state, row.preferred_read_replica) or has_moved
        if has_moved:
            self.wake()
        if arrived:
            self.arrived.notify()

    def _note_ends(self, node_id: int, named: Named) -> None:
        """The offsets of all partitions that were fetched without an error. Those without a row have not changed."""
        session, now_ms = self._sessions[node_id], self._edge.now_ms()
        for partition, (state, _) in named.items():
            ends = session.ends(partition)
            if ends is not None and self._subscription.in_charge(state):
                state.high_watermark, state.last_stable_offset = ends.high_watermark, ends.last_stable_offset
                state.log_start_offset, state.fetched_at_ms = ends.log_start_offset, now_ms

    def _move(self, state: AssignedPartition, node_id: int) -> bool:
        """Fetch from this replica for a while, as the leader proposes. Whether metadata knows the broker."""
        metadata = self._cluster.metadata
        if node_id not in metadata.brokers:
            self._cluster.request_refresh()
            state.retry_at = self._edge.monotonic() + self._config.retry_backoff_ms / 1000
            self._wake_later(self._config.retry_backoff_ms)
            return False
        until = self._edge.monotonic() + self._config.metadata_max_age_ms / 1000
        state.near = NearReplica(node_id, metadata.leader_epoch(*state.topic_partition), until)
        return True

    def _buffer(self, state: AssignedPartition, row: FetchResponsePartition) -> bool:
        """Buffers the records of one partition. True when there is something to hand out, an error included."""
        assert row.records is not None
        aborted = None
        if self._config.read_committed:
            aborted = [(entry.first_offset, entry.producer_id) for entry in row.aborted_transactions or ()]
        try:
            # A copy: a view would keep the whole response in memory until its last partition is consumed.
            whole = state.buffer.add(bytes(row.records), aborted)
        except KafkaError as error:
            return self.fail(state, error)
        if not whole:
            message = (
                f"the batch of {_name(state)} at offset {state.buffer.fetch_offset} is larger than "
                f"max_partition_fetch_bytes={self._config.max_partition_fetch_bytes}"
            )
            return self.fail(state, RecordTooLargeError(message))
        self.ready[state.topic_partition] = state
        return True

    def fail(self, state: AssignedPartition, error: KafkaError) -> bool:
        """Stop fetching this partition until the application seeks. The application gets the error."""
        state.error = error
        self.ready[state.topic_partition] = state
        self.arrived.notify()
        return True

    def retry(self, state: AssignedPartition) -> None:
        """Fetch a partition again whose error the application has got, after a pause."""
        self.ready.pop(state.topic_partition, None)
        state.retry_at = self._edge.monotonic() + self._config.retry_backoff_max_ms / 1000
        self._wake_later(self._config.retry_backoff_max_ms)

    def _refused(self, state: AssignedPartition, offset: int, code: int) -> bool:
        """React to a partition's error. True when the application must get it."""
        right = self._cluster.right(Operation.READ, topic=state.topic_partition.topic)
        error = error_for(code, f"fetch from {_name(state)} at offset {offset}", right)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(state, offset)
        if code == ErrorCode.CORRUPT_MESSAGE:
            what = f"{_name(state)} at offset {offset}: its broker cannot read the stored batch"
            return self.fail(state, CorruptRecordException(f"{what}. seek() past it to continue without it"))
        action = action_for(code)
        if action is Action.FAIL:
            return self.fail(state, error)
        log.info("%s; trying again", error)
        if action is Action.REFRESH:
            self._cluster.request_refresh()
        state.retry_at = self._edge.monotonic() + self._config.retry_backoff_ms / 1000
        self._wake_later(self._config.retry_backoff_ms)
        return False

    def _out_of_range(self, state: AssignedPartition, offset: int) -> bool:
        if offset != state.position:
            # Earlier records are still buffered: hand them out first, then fetch again from their end.
            state.retry_at = self._edge.monotonic() + self._config.retry_backoff_ms / 1000
            self._wake_later(self._config.retry_backoff_ms)
            return False
        if self._config.auto_offset_reset == "none":
            return self.fail(state, OffsetOutOfRangeError(f"{_name(state)} has no offset {offset}"))
        state.lose_position(Reset.IN_RANGE)
        self._position_lost()
        return False

    def _truncated(self, state: AssignedPartition, leader: FetchResponseDivergingEpoch) -> bool:
        """The leader's log diverges from the log that was read (KIP-320). True when the application must get the
        error.

        Goes back to the point of divergence, or a little above it; then the next fetch reports the divergence again.
        """
        position = state.position
        assert position is not None
        to = state.buffer.epochs.divergence(leader.epoch, leader.end_offset)
        message = (
            f"{_name(state)} was truncated: the records from offset {to} on are gone, and were read up to {position}"
        )
        if to >= position:
            state.buffer.restart(position)  # the application has not got these records
        elif self._config.auto_offset_reset == "none":
            return self.fail(state, LogTruncatedError(message))
        else:
            log.warning("%s; continuing at offset %d", message, to)
            state.seek(to)
        return False


def _is_by_id(connection: Connection, asked: Asked) -> bool:
    """Whether the broker is asked by topic id. Without an id of each topic it is asked by name."""
    return connection.serves(FetchRequest, BY_ID_FROM) and all(
        state.topic_id != ZERO_UUID for state, _ in asked.values()
    )


def _named(asked: Asked, is_by_id: bool) -> Named:
    if is_by_id:
        return {row[0].topic_id_partition: row for row in asked.values()}
    return {TopicIdPartition(*partition): row for partition, row in asked.items()}


def _refusal(code: int, state: AssignedPartition, offset: int, node_id: int) -> KafkaError:
    return error_for(code, f"fetch from {_name(state)} at offset {offset}, replica on broker {node_id}")


def _name(state: AssignedPartition) -> str:
    return f"{state.topic_partition.topic}-{state.topic_partition.partition}"
