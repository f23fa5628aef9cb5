"""The Consumer: reads records of topics, alone or as a member of a consumer group.

    async with Consumer("flights", bootstrap_servers="localhost:9092", group_id="count") as consumer:
        async for record in consumer:
            ...

Names are those of aiokafka. Differences from it:

- A record counts as consumed when the application asks for the next one (getone, getmany or iteration). Auto-commit
commits consumed records only. `stop()` and the end of `async with` count as asking, unless the task that got the
records was cancelled, has raised or still works on them: those records will be read again.
- A rebalance waits while the application processes records of a revoked partition, for at most about
rebalance_timeout_ms. After the revocation no record of the partition is handed out.
- fetch_buffer_bytes bounds the fetched bytes over all partitions. They are held compressed, as the broker sent them.
- An exception of a rebalance listener is raised by the next call for records.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, SupportsIndex, Unpack

from semel_protocol.visible import shown

from semel._arrow import ArrowSchema, require_arrow
from semel._config.arguments import INT64, argument, check_times, checked, text, whole
from semel._config.client import describe_settings
from semel._config.consumer import ConsumerConfig, refuse_settings_of_the_broker
from semel._config.settings import made
from semel._consume.commits import Commits, Committable, committable
from semel._consume.fetcher import Fetcher
from semel._consume.metrics import consumer_metrics
from semel._consume.positions import Positions
from semel._consume.records import Records
from semel._consume.topic_watch import TopicWatch
from semel._group.consumer_group import AnyGroup, ConsumerGroup
from semel._group.group import ClassicGroup
from semel._group.heartbeat import PollCalls
from semel._group.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Membership, Offsets
from semel._net.background import Background
from semel._net.cluster import Cluster
from semel._net.lifecycle import Lifecycle
from semel._subscription.listener import ConsumerRebalanceListener, checked_listener
from semel._subscription.subscription import AssignedPartition, Reset, Subscription
from semel._type_variables import UNCHANGED, K_co, K_out, V_co, V_out
from semel.errors import ConsumerStoppedError, IllegalOperation, IllegalStateError
from semel.structs import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table

    from semel._arrow.columns import RecordColumns
    from semel._config.consumer import ConsumerKeywords
else:  # `checked` reads annotations
    RecordBatch = Table = RecordColumns = Any

ARROW_ROWS = 10_000
"""The largest batch that `arrow_batches` makes."""
ARROW_WAIT_MS = 200
"""After a wait without records it looks whether the ends are reached."""


class Consumer(Generic[K_co, V_co]):
    """Reads records of the topics given, or of those that `subscribe` or `assign` name. `Consumer[K, V]` gives records
    with keys K and values V.

    async with Consumer("flights", bootstrap_servers="localhost:9092", group_id="delays") as consumer:
        async for record in consumer:
            print(record.topic, record.partition, record.offset, record.value)

    `help(Consumer.__init__)` lists the settings, and docs/client-settings.md.

    A stopped consumer raises ConsumerStoppedError from every call but `stop` and `metrics`.
    It must not be used from several threads. One task at a time should ask for records, because the next call marks the
    earlier records as consumed.
    """

    def __init__(
        self: Consumer[K_out, V_out],
        *topics: str,
        key_deserializer: Callable[[bytes | None], K_out] | None = UNCHANGED,  # type: ignore[assignment]
        value_deserializer: Callable[[bytes | None], V_out] | None = UNCHANGED,  # type: ignore[assignment]
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        """Raise KafkaConfigurationError for wrong or contradicting settings, TypeError for unknown ones."""
        given = {**settings, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer}
        refuse_settings_of_the_broker(settings)
        config = self._config = made(ConsumerConfig, given)
        cluster = self._cluster = Cluster(config, auto_create_topics=config.allow_auto_create_topics)
        self._timeout_ms = config.default_api_timeout_ms
        self._subscription = Subscription(exclude_internal_topics=config.exclude_internal_topics)
        self._offsets = Offsets(cluster, config, self._fetching_membership, self._topic_id)
        self._fetcher = Fetcher(cluster, config, self._subscription, lambda: self._positions.wake())
        self._positions = Positions(
            cluster, config, self._subscription, self._offsets, found=self._fetcher.wake, fail=self._fetcher.fail
        )
        self._calls = PollCalls()
        self._life = Lifecycle(self, "consumer", config.client_id, parts=self, stopped=ConsumerStoppedError)
        self._group: AnyGroup | None = None
        self._commits: Commits | None = None
        if config.group_id is not None:
            kind = ConsumerGroup if config.is_consumer_protocol else ClassicGroup
            self._group = kind(
                cluster, config, self._subscription, self._calls,
                before_revocation=self._before_revocation, changed=self._changed,
                calling_back=self._life.calling_back,
            )  # fmt: skip
            self._commits = Commits(cluster.edge, config, self._subscription, self._offsets, self._group)
        self._topic_watch = TopicWatch(cluster, self._subscription, self._group, self._changed)
        self._records = Records(
            cluster.edge, config, self._subscription, self._fetcher,
            check=self._check, group=self._group, calls=self._calls,
        )  # fmt: skip
        self._background = Background(config.client_id, self._changed)
        if topics:
            self.subscribe(topics)

    describe_settings(__init__, ConsumerConfig, inspect.Parameter("topics", inspect.Parameter.VAR_POSITIONAL))

    @property
    def group_id(self) -> str | None:
        return self._config.group_id

    # Life

    async def start(self) -> None:
        """Connect to the cluster. With subscribed topics, waits for the first assignment.

        If a member of the group was killed, the assignment waits until its session ends (its `session_timeout_ms`). So
        start a transactional producer before: its start aborts the transaction that was left open.

        Raises KafkaConnectionError when no bootstrap server answers, and the exceptions of the group's coordinator.
        """
        await self._life.start()

    async def _open(self) -> None:
        await self._cluster.start()
        await self._topic_watch.start()
        await self._before_assignment()
        self._background.start("positions", self._positions.run())
        if self._group is not None and self._commits is not None:
            self._background.start("group", self._group.run())
            self._background.start("auto-commit", self._commits.run())
            await self._first_assignment(self._group)

    async def _first_assignment(self, group: AnyGroup) -> None:
        """The wait counts as a call for records, so that a slow join does not exceed max_poll_interval_ms."""
        self._calls.open += 1
        try:
            while self._subscription.is_automatic and not group.assignments:
                self._check()
                await group.settled.wait()
        finally:
            self._calls.open -= 1
        self._check()

    async def _before_assignment(self) -> None:
        """For the consumer under aiokafka's name, which waits here for topics that are being created."""

    async def stop(self) -> None:
        """Commit the consumed offsets (with auto-commit), leave the group and close. Another call waits for the
        first.

        The rebalance listener gets on_partitions_revoked, as in Kafka's own client. The records handed out last are
        consumed, unless the task that got them was cancelled, has raised or still works on them.

        If this call is cancelled, heartbeats end at once. The rest continues without the caller for at most about a
        second, so that the group is left if its coordinator answers. A call from a rebalance listener returns without
        waiting.
        """
        await self._stop(has_failed=False)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(has_failed=error is not None)

    async def _stop(self, *, has_failed: bool) -> None:
        if not self._life.is_stopped:
            self._records.stop(has_failed=has_failed)
            self._life.begin_to_stop()
            self._fetcher.arrived.notify()
        await self._life.stop()

    async def _close(self) -> None:
        await self._background.stop()
        await self._fetcher.stop()
        if self._group is not None and self._commits is not None:
            if not self._subscription.is_automatic:
                await self._commits.commit_consumed()
            await self._group.stop()

    async def _last_words(self) -> None:
        if self._group is not None:
            await self._group.leave()

    def _hurry(self) -> None:
        if self._group is not None:
            self._group.heartbeats.cut()

    def _cut(self) -> list[asyncio.Task[Any]]:
        self._subscription.drop(list(self._subscription.states))
        self._topic_watch.stop()
        heartbeats = [] if self._group is None else self._group.heartbeats.cut()
        return [*heartbeats, *self._background.cut(), *self._fetcher.cut(), *self._cluster.cut()]

    def _losses(self) -> str:
        if self._group is None:
            return ""
        return "its offsets since the last commit are not committed, and its group waits for it until its session ends"

    # Records

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K_co, V_co]:
        """The next record of these partitions, or of any assigned partition. Waits for it, without a limit.

        partitions: assigned ones; the others keep their positions.

        Raises ConsumerStoppedError, OffsetOutOfRangeError, NoOffsetForPartitionError, CorruptRecordException,
        TopicAuthorizationFailedError, RecordDeserializationError (its docstring says how to continue), the exception
        of a rebalance listener, and the reason why the consumer cannot join its group.
        """
        if not partitions and (record := self._next()) is not None:
            return record
        return await self._records.one(argument("partitions", partitions, tuple[TopicPartition, ...]))

    @checked
    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K_co, V_co]]]:
        """Buffered records by partition. Without any, waits for the first for at most `timeout_ms`. Raises as `getone`.

        partitions: assigned ones to take records of; none given: all. timeout_ms: milliseconds; 0 does not wait.
        max_records: at most this many in total; None takes `max_poll_records` from the settings.
        """
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records={max_records}: ask for at least one")
        return await self._records.many(partitions, timeout_ms, max_records or self._config.max_poll_records)

    @checked
    async def to_arrow(self, *partitions: TopicPartition, value_schema: ArrowSchema | None = None) -> Table:
        """The records from the positions to the ends as one `pyarrow.Table`, as `arrow_batches` reads them.

        If the value_deserializer names no type, the column `value` has all fields that were found. Needs memory for the
        whole table.
        """
        columns = self._arrow_columns("to_arrow", value_schema, fixed=False)
        return columns.table([batch async for batch in self._arrow(columns, partitions)])

    @checked
    def arrow_batches(
        self, *partitions: TopicPartition, value_schema: ArrowSchema | None = None
    ) -> AsyncIterator[RecordBatch]:
        """The records from the positions to the ends, as a `pyarrow.RecordBatch` for each call of `getmany`.

        Columns, `value_schema` and errors are those of `BatchReader.arrow_batches`, which is several times as fast and
        needs no group; a deserializer of this consumer makes the column `key` or `value`. Ends at the ends that the
        partitions have when it begins, also if more records have come. Paused partitions are left out, and those that a
        rebalance takes away. The records of a batch count as consumed when the next one is asked for, or by any
        other call for records.

        partitions: assigned ones; none given: all. Raises as `getmany` and `end_offsets`.
        """
        return self._arrow(self._arrow_columns("arrow_batches", value_schema, fixed=True), partitions)

    def _arrow_columns(self, call: str, value_schema: ArrowSchema | None, *, fixed: bool) -> RecordColumns:
        self._check_connected()
        require_arrow(f"Consumer.{call}")
        from semel._arrow.columns import RecordColumns

        config = self._config
        return RecordColumns(config.key_deserializer, config.value_deserializer, value_schema, fixed=fixed)

    async def _arrow(
        self, columns: RecordColumns, partitions: tuple[TopicPartition, ...]
    ) -> AsyncIterator[RecordBatch]:
        ends = await self.end_offsets([state.topic_partition for state in self._states(partitions)])
        while left := await self._before(ends):
            found = await self.getmany(*left, timeout_ms=ARROW_WAIT_MS, max_records=ARROW_ROWS)
            kept = [row for partition, rows in found.items() for row in rows if row.offset < ends[partition]]
            for partition, rows in found.items():
                if rows[-1].offset >= ends[partition]:
                    self._give_back(partition, ends[partition])
            if not kept:
                continue
            try:
                batch = columns.of_records(kept)
            except (TypeError, ValueError):
                for partition, rows in found.items():
                    self._give_back(partition, rows[0].offset)
                raise
            yield batch

    async def _before(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """The partitions to read on, to get to these offsets."""
        found = []
        for partition, end in ends.items():
            try:
                if partition not in self.paused() and await self.position(partition) < end:
                    found.append(partition)
            except IllegalStateError:
                if partition in self.assignment():
                    raise
        return found

    def _give_back(self, partition: TopicPartition, offset: int) -> None:
        """The records from `offset` on, which were handed out last, are handed out again later."""
        state = self._subscription.state(partition)
        state.hand_out(offset)
        state.buffer.restart(offset)
        self._changed()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K_co, V_co]]:
        """Raise ConsumerStoppedError for a stopped consumer."""
        self._life.check_not_stopped()
        return self

    async def __anext__(self) -> ConsumerRecord[K_co, V_co]:
        """As `getone`; the iteration ends when the consumer is stopped."""
        record = self._next()
        if record is not None:
            return record
        try:
            return await self._records.one(())
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def _next(self) -> ConsumerRecord[K_co, V_co] | None:
        """The next decoded record of the partition that the iteration reads now. A short path for the common case."""
        state = self._records.current
        if state is None or state.paused:
            return None
        buffer = state.buffer
        at = buffer.at
        if at >= len(buffer.records):
            return None
        record = buffer.records[at]
        buffer.at = at + 1
        state.consumed = state.position
        state.position = record.offset + 1
        self._calls.made += 1
        return record

    # Subscription

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics by name, or to all topics that match a pattern from the start of their names.

        New topics that match the pattern are added when metadata shows them. Replaces the previous subscription.
        With group_protocol="consumer" the broker evaluates the pattern, and finds new topics by its own times; the
        client does it when RE2 lacks the syntax, or when the pattern matches internal topics that are left out.

        topics: names. pattern: a regular expression, as a text or compiled. listener: is called when partitions are
        assigned or revoked.

        Raises IllegalStateError after `assign`, TypeError for neither or both and for a listener without its methods,
        ValueError for an invalid pattern.
        """
        self._life.check_not_stopped()
        checked_listener(listener)
        names: list[str] = argument("topics", [topics] if isinstance(topics, str) else topics, Iterable[Any])
        for each in names:
            if not isinstance(each, str):
                raise TypeError(f"topic {shown(each)} is {type(each).__name__}, not str: give names, as in 'a', 'b'")
        names = [text("topic", each) for each in names]
        if bool(names) == (pattern is not None):
            raise TypeError("subscribe() takes either topics or a pattern")
        if pattern is None:
            self._subscription.subscribe_topics(names, listener)
        else:
            try:
                compiled = re.compile(argument("pattern", pattern, str | re.Pattern[str]))
            except re.error as e:
                raise ValueError(f"pattern {pattern!r}: {e}") from e
            self._subscription.subscribe_pattern(compiled, listener)
        self._topic_watch.subscription_changed()

    def subscription(self) -> frozenset[str]:
        """The subscribed topics: the given names, or the topics that match the pattern now."""
        self._check_not_ended()
        return frozenset(self._subscription.wanted_topics(self._cluster.metadata))

    def unsubscribe(self) -> None:
        """Give up all topics or partitions and leave the group. Commits nothing: commit first."""
        self._life.check_not_stopped()
        self._subscription.unsubscribe()
        self._topic_watch.subscription_changed()

    @checked
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without group assignment. Partitions assigned before keep their positions.

        Raises IllegalStateError after `subscribe`.
        """
        self._life.check_not_stopped()
        self._subscription.assign_manually(partitions)
        self._topic_watch.subscription_changed()
        self._changed()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        self._check_not_ended()
        return frozenset(self._subscription.states)

    @checked
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partition numbers of a topic in the metadata known now; None for an unknown topic."""
        self._check_not_ended()
        found = self._cluster.metadata.topics.get(topic)
        return None if found is None else set(range(len(found.partitions)))

    @checked
    async def fetch_partitions(self, topic: str) -> set[int]:
        """The partition numbers of a topic, from a request if needed. Raises KafkaTimeoutError for a missing topic."""
        self._check_connected()
        return set(range(len((await self._cluster.wait_for_topic(topic)).partitions)))

    async def topics(self) -> set[str]:
        """The names of all topics that this client may read. Raises KafkaConnectionError, KafkaTimeoutError."""
        self._check_connected()
        return await self._topic_watch.all_topics()

    @checked
    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these partitions until `resume`. They stay assigned."""
        for state in self._states(partitions):
            state.paused = True

    @checked
    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again."""
        for state in self._states(partitions):
            state.paused = False
        self._changed()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused now."""
        self._check_not_ended()
        return frozenset(partition for partition, state in self._subscription.states.items() if state.paused)

    # Positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading from `offset`, the offset of the next record to hand out.

        Raises IllegalStateError when the partition is not assigned, ValueError for an offset that is not a whole
        number from 0 on.
        """
        if not isinstance(offset, SupportsIndex) or (offset := whole("offset", offset, *INT64)) < 0:
            raise ValueError(f"offset={shown(offset)}: offsets start at 0; see seek_to_beginning and seek_to_end")
        state = self._state(argument("partition", partition, TopicPartition))
        state.seek(offset)
        state.sought()
        self._changed()

    @checked
    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue from the first record of these partitions, or of all assigned ones. Raises as `position`."""
        self._check_connected()
        await self._positions.reset(self._states(partitions), Reset.EARLIEST)
        return True

    @checked
    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue after the last record of these partitions, or of all assigned ones. Raises as `position`."""
        self._check_connected()
        await self._positions.reset(self._states(partitions), Reset.LATEST)
        return True

    @checked
    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continue from the committed offsets, or from `auto_offset_reset` where there is none. Returns the committed
        offsets.

        Raises IllegalOperation without group_id, KafkaTimeoutError after default_api_timeout_ms.
        """
        self._require_group()
        self._check_connected()
        states = self._states(partitions)
        found = await self._offsets.committed([s.topic_partition for s in states], self._timeout_ms)
        for state in filter(self._subscription.in_charge, states):
            if (at := found[state.topic_partition]) is None:
                state.lose_position(Reset(self._config.auto_offset_reset))
            else:
                state.seek(at.offset)
            state.sought()
        self._changed()
        return {partition: None if at is None else at.offset for partition, at in found.items()}

    @checked
    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to hand out.

        Raises KafkaTimeoutError after default_api_timeout_ms, NoOffsetForPartitionError, IllegalStateError when the
        partition is revoked, and other reasons why there is no position.
        """
        self._check_connected()
        return await self._positions.position(self._state(partition))

    @checked
    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark in the last fetch response; None before the first."""
        return self._state(partition).high_watermark

    @checked
    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The last stable offset in the last fetch response; None before the first. Read_committed consumers read up to
        it.
        """
        return self._state(partition).last_stable_offset

    @checked
    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """The time of the last fetch response for this partition, in ms since the epoch; None before the first."""
        return self._state(partition).fetched_at_ms

    def metrics(self) -> dict[str, dict[str, float]]:
        """A snapshot of this consumer's counters: group -> name -> number. Names are those of Kafka's Java client.

        The groups are `consumer-metrics`, `consumer-fetch-manager-metrics`, the same with `.<topic>-<partition>` for
        each assigned partition, and with a group_id `consumer-coordinator-metrics`. Totals count from the creation of
        the consumer. A rate is the difference of two snapshots. docs/client-metrics.md lists all names. Works at any
        time, also before `start` and after `stop`.
        """
        return consumer_metrics(
            self._cluster, self._subscription, self._calls, self._group,
            buffered_bytes=self._fetcher.buffered_bytes, read_committed=self._config.read_committed,
        )  # fmt: skip

    @checked
    async def commit(self, offsets: Mapping[TopicPartition, Committable] | None = None) -> None:
        """Commit these offsets (of the *next* records to read), or the positions of all assigned partitions.

        offsets: for each partition an offset, or OffsetAndMetadata. None: the positions, which are behind the records
        handed out last, processed or not.

        Waits for a rebalance to end. Raises CommitFailedError when the rebalance has moved the partitions to other
        members, DeletedTopicCommitError when the topic was deleted, IllegalOperation without group_id,
        KafkaTimeoutError after default_api_timeout_ms.
        """
        commits = self._require_group()
        self._check_connected()
        if offsets is None:
            states = self._subscription.states.values()
            chosen = {s.topic_partition: OffsetAndMetadata(s.position) for s in states if s.position is not None}
        else:
            chosen = {TopicPartition(*partition): committable(at) for partition, at in offsets.items()}
            commits.check_topics(chosen)
        if chosen:
            await commits.commit(chosen, self._timeout_ms)

    @checked
    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset, requested from the coordinator; None without one.

        Raises IllegalOperation without group_id, KafkaTimeoutError after default_api_timeout_ms.
        """
        self._require_group()
        self._check_connected()
        partition = TopicPartition(*partition)
        found = (await self._offsets.committed([partition], self._timeout_ms))[partition]
        return None if found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's membership, for `Producer.send_offsets_to_transaction`. Raises IllegalOperation without
        group_id.
        """
        commits = self._require_group()
        self._check_not_ended()
        return commits.group_metadata()

    @checked
    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not. Raises as `end_offsets`."""
        self._check_connected()
        found = await self._offsets.list(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), self._timeout_ms)
        return {partition: offset for partition, (offset, _) in found.items()}

    @checked
    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; under read_committed the last stable offset.

        Raises KafkaTimeoutError after default_api_timeout_ms.
        """
        self._check_connected()
        found = await self._offsets.list(dict.fromkeys(partitions, LATEST_TIMESTAMP), self._timeout_ms)
        return {partition: offset for partition, (offset, _) in found.items()}

    @checked
    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after the given time (ms since the epoch); None without such a
        record.

        Raises ValueError for a negative time, KafkaTimeoutError after default_api_timeout_ms.
        """
        self._check_connected()
        check_times(timestamps)
        found = await self._offsets.list(timestamps, self._timeout_ms)
        return {p: OffsetAndTimestamp(*at) if at[0] >= 0 else None for p, at in found.items()}

    # Inside

    def _check(self) -> None:
        """Raise the error that the application must get before it gets records."""
        self._life.check_running()
        for failure in (self._background.failure, self._fetcher.failure):
            if failure is not None:
                raise failure
        if self._group is not None:
            if self._group.listener_errors:
                raise self._group.listener_errors.pop(0)
            if self._group.failure is not None:
                raise self._group.failure

    def _check_not_ended(self) -> None:
        """Raise ConsumerStoppedError for a stopped consumer. While it is being stopped and has its partitions yet, the
        rebalance listener, and tasks that complete their work, may use them and commit.
        """
        if not self._subscription.states:
            self._life.check_not_stopped()

    def _check_connected(self) -> None:
        """As `_check_not_ended`. Raises IllegalStateError before `start`."""
        self._check_not_ended()
        if not self._life.is_stopped:
            self._life.check_running()

    def _changed(self) -> None:
        """Wake all tasks that depend on the assignment, the positions and the pauses."""
        self._topic_watch.follow_topics()
        self._positions.wake()
        self._fetcher.wake()
        self._fetcher.arrived.notify()
        if self._group is not None:
            self._group.settled.notify()

    def _fetching_membership(self) -> Membership | None:
        return self._group.member.fetching_membership if isinstance(self._group, ConsumerGroup) else None

    def _topic_id(self, partition: TopicPartition) -> bytes:
        state = self._subscription.states.get(partition)
        return self._cluster.metadata.topic_id(partition.topic) if state is None else state.topic_id

    async def _before_revocation(self, partitions: Sequence[TopicPartition]) -> None:
        await self._require_group().commit_consumed(partitions)

    def _states(self, partitions: Sequence[TopicPartition]) -> list[AssignedPartition]:
        """The states of these partitions, or of all assigned ones. Raises IllegalStateError for one that is not
        assigned.
        """
        self._check_not_ended()
        return [self._subscription.state(partition) for partition in partitions or self._subscription.states]

    def _state(self, partition: TopicPartition) -> AssignedPartition:
        self._check_not_ended()
        return self._subscription.state(partition)

    def _require_group(self) -> Commits:
        if self._commits is None:
            raise IllegalOperation("this consumer has no group_id, and offsets belong to a group: set group_id")
        return self._commits
