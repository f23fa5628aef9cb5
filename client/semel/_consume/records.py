"""Hands out buffered records to the application, one partition after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from semel._config.consumer import ConsumerConfig
from semel._consume.fetcher import Fetcher
from semel._edge import Edge
from semel._group.consumer_group import AnyGroup
from semel._group.heartbeat import PollCalls
from semel._net.lifecycle import is_interrupted
from semel._net.retry import Deadline
from semel._subscription.fetch_buffer import Decoding, Record
from semel._subscription.subscription import AssignedPartition, Subscription
from semel.serializers import NotReady
from semel.structs import TopicPartition

DECODE_AHEAD = 500
"""The least number of records to decode for getone and iteration. Batches are decoded as a whole."""


_reading: ContextVar[object] = ContextVar("semel_reading", default=None)
"""The mark of the task that asked for records last in this context. Tasks that it makes inherit it, such as that of
`wait_for`.
"""


class Records:
    """Takes records from the buffers for the application.

    check: raises the error that the application must get before more records.
    current: the partition that the iteration reads now.
    """

    def __init__(
        self,
        edge: Edge,
        config: ConsumerConfig,
        subscription: Subscription,
        fetcher: Fetcher,
        *,
        check: Callable[[], None],
        group: AnyGroup | None,
        calls: PollCalls,
    ) -> None:
        self._edge, self._config = edge, config
        self._subscription, self._fetcher = subscription, fetcher
        self._check, self._group, self._calls = check, group, calls
        self._decoding = Decoding(
            check_crcs=config.check_crcs,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
        )
        self.current: AssignedPartition | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._mark: object = None
        self._is_abandoned = False

    async def one(self, partitions: Sequence[TopicPartition]) -> Record:
        """The next record; waits for it."""
        found: Record | None = await self._until(lambda: self._pick(partitions), None)
        assert found is not None, "without a timeout there is a record or an exception"
        return found

    async def many(
        self, partitions: Sequence[TopicPartition], timeout_ms: float, max_records: int | None
    ) -> dict[TopicPartition, list[Record]]:
        """Buffered records, or the first to arrive within `timeout_ms`; empty when none does."""
        return await self._until(lambda: self._collect(partitions, max_records), timeout_ms) or {}

    async def _until(self, look: Callable[[], Any], timeout_ms: float | None) -> Any:
        """Call `look` until it finds something. Nothing is taken before the last await, so cancelling loses no
        record.
        """
        self.mark_consumed()
        self._follow_reader()
        # A loop over buffered records must let the tasks run that fetch, send heartbeats and commit.
        await asyncio.sleep(0)
        self._check()
        deadline = None if timeout_ms is None else Deadline(self._edge, timeout_ms)
        found = await self._look(look, deadline)
        if found or timeout_ms == 0:
            return found
        self._calls.open += 1
        try:
            while not found:
                if not await self._fetcher.arrived.wait(None if deadline is None else deadline.remaining_ms):
                    return None
                self._check()
                found = await self._look(look, deadline)
        finally:
            self._calls.open -= 1
        return found

    async def _look(self, look: Callable[[], Any], deadline: Deadline | None) -> Any:
        """Call `look`; None when a deserializer is not ready in time. What it loads is loaded once, whatever happens
        to the call that waits for it.
        """
        while True:
            try:
                return look()
            except NotReady as missing:
                loading = missing.load()
            self._calls.open += 1
            try:
                await asyncio.wait([loading], timeout=None if deadline is None else deadline.remaining_ms / 1000)
            finally:
                self._calls.open -= 1
            self._check()
            if not loading.done():
                return None
            loading.result()

    def _follow_reader(self) -> None:
        """The running task gets the next records. `stop` looks whether it has processed them."""
        task = asyncio.current_task()
        if task is self._reader or task is None:
            return
        if self._reader is not None:
            self._reader.remove_done_callback(self._reader_ended)
        self._reader, self._is_abandoned = task, False
        task.add_done_callback(self._reader_ended)
        self._mark = object()
        _reading.set(self._mark)

    def _reader_ended(self, task: asyncio.Task[Any]) -> None:
        self._reader, self._is_abandoned = None, _has_failed(task)

    def _are_processed(self) -> bool:
        """Whether the records handed out last are processed, as far as the task that got them shows it."""
        reader = self._reader
        if reader is None:
            return not self._is_abandoned
        if reader.done():
            return not _has_failed(reader)
        is_caller = _reading.get() is self._mark  # or has made the task of the caller
        return is_caller and not reader.cancelling() and not is_interrupted()

    def stop(self, *, has_failed: bool) -> None:
        """Hand out nothing more. The records handed out last are consumed, unless the task that got them was
        cancelled, has raised, or still works on them. has_failed: the caller knows of an exception.
        """
        if not has_failed and self._are_processed():
            self.mark_consumed()
        self.current = None
        if self._reader is not None:
            self._reader.remove_done_callback(self._reader_ended)
            self._reader = None

    def mark_consumed(self) -> None:
        """The application asks for more: the records handed out before are consumed."""
        current, self.current = self.current, None
        if current is not None:
            _skip_offsets_without_record(current)
        self._subscription.mark_consumed()
        self._calls.made += 1
        self._calls.notice(self._edge.monotonic())
        if self._group is not None:
            self._group.application_polled()

    def _pick(self, partitions: Sequence[TopicPartition]) -> Record | None:
        for state in self._servable(partitions):
            try:
                filled = self._fill(state, DECODE_AHEAD)
            except Exception:
                self._to_the_end(state)
                raise
            if not filled:
                continue
            if not partitions:
                self.current = state
            buffer = state.buffer
            record = buffer.records[buffer.at]
            buffer.at += 1
            state.hand_out(record.offset + 1)
            self._subscription.handed_out.append(state)
            self._to_the_end(state)
            self._fetcher.records_taken(state)
            return record
        return None

    def _collect(
        self, partitions: Sequence[TopicPartition], max_records: int | None
    ) -> dict[TopicPartition, list[Record]]:
        found: dict[TopicPartition, list[Record]] = {}
        left = max_records if max_records is not None else 1 << 62
        for state in self._servable(partitions):
            if left <= 0:
                break
            try:
                filled = self._fill(state, left)
            except Exception:
                if found:
                    break  # the next call takes this partition first, and raises
                self._to_the_end(state)
                raise
            if not filled:
                continue
            rows = found[state.topic_partition] = state.buffer.take(left)
            left -= len(rows)
            state.hand_out(rows[-1].offset + 1)
            _skip_offsets_without_record(state)
            self._subscription.handed_out.append(state)
            self._to_the_end(state)
            self._fetcher.records_taken(state)
        return found

    def _servable(self, partitions: Sequence[TopicPartition]) -> Iterator[AssignedPartition]:
        """The partitions with data for the application, the longest waiting first."""
        ready = self._fetcher.ready
        for partition, state in list(ready.items()):
            if not self._subscription.in_charge(state):
                del ready[partition]
            elif not state.paused and not state.held and (not partitions or partition in partitions):
                yield state

    def _fill(self, state: AssignedPartition, count: int) -> bool:
        """Decode until there is a record; False when none is left in this partition.

        Raises the partition's error once the earlier records are taken.
        """
        buffer = state.buffer
        buffer.fill(self._decoding, count)
        if buffer.at < len(buffer.records):
            return True
        _skip_offsets_without_record(state)
        state.consumed = state.position
        if (error := state.take_error()) is not None:
            if state.error is None:
                self._fetcher.retry(state)
            raise error
        self._fetcher.ready.pop(state.topic_partition, None)
        self._fetcher.records_taken(state)
        return False

    def _to_the_end(self, state: AssignedPartition) -> None:
        ready = self._fetcher.ready
        if ready.pop(state.topic_partition, None) is not None and (state.error or not state.buffer.is_empty):
            ready[state.topic_partition] = state


def _has_failed(task: asyncio.Task[Any]) -> bool:
    """Whether a task that is done was cancelled, or has raised."""
    # `exception()` would mark the error as retrieved, and asyncio could not report that the application ignores it.
    return task.cancelled() or getattr(task, "_exception", None) is not None


def _skip_offsets_without_record(state: AssignedPartition) -> None:
    """Move the position past control batches, aborted records and compacted offsets after the last taken record."""
    buffer = state.buffer
    if buffer.at >= len(buffer.records) and buffer.next_offset is not None and state.position is not None:
        state.position = buffer.next_offset
