"""Finds a starting position for every assigned partition without one: the committed offset, else the reset policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from semel_protocol.backoff import Backoff

from semel._config.consumer import ConsumerConfig
from semel._group.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAt, Offsets
from semel._net.cluster import Cluster
from semel._net.retry import Deadline
from semel._net.signal import Signal
from semel._subscription.subscription import AssignedPartition, Reset, Subscription
from semel.errors import IllegalStateError, KafkaError, KafkaTimeoutError, NoOffsetForPartitionError
from semel.structs import TopicPartition

log = logging.getLogger(__name__)

TIMESTAMP_OF = {Reset.EARLIEST: EARLIEST_TIMESTAMP, Reset.LATEST: LATEST_TIMESTAMP}


class Positions:
    """One task. `wake` when partitions may need a position.

    found: called when partitions got a position. fail: called with a partition that never gets one.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: Subscription,
        offsets: Offsets,
        *,
        found: Callable[[], None],
        fail: Callable[[AssignedPartition, KafkaError], object],
    ) -> None:
        self._config, self._subscription, self._offsets = config, subscription, offsets
        self._found, self._fail = found, fail
        self._cluster, self._edge = cluster, cluster.edge
        self._backoff = Backoff(self._edge.rng, config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._policy = Reset(config.auto_offset_reset)
        self._wanted = Signal()
        self._last_errors: dict[TopicPartition, KafkaError] = {}
        self.changed = Signal()
        """Notified whenever a position was found or given up."""

    def wake(self) -> None:
        self._wanted.notify()

    async def reset(self, states: Sequence[AssignedPartition], reset: Reset) -> None:
        """Find new positions. Raises as `position`."""
        for state in states:
            state.lose_position(reset)
            state.sought()
        for state in states:
            await self.position(state)

    async def position(self, state: AssignedPartition) -> int:
        """The position, once it is known.

        Raises the reason why there is none, IllegalStateError when the partition is revoked, KafkaTimeoutError.
        """
        deadline = Deadline(self._edge, self._config.default_api_timeout_ms)
        self.wake()
        while state.position is None:
            if (error := state.take_error()) is not None:
                raise error
            now = self._subscription.states.get(state.topic_partition)
            if now is None or (now is not state and now.topic_id == state.topic_id):
                raise IllegalStateError(f"{state.topic_partition} was revoked while its position was looked up")
            state = now  # the topic may have been created again
            if state.position is None and not await self.changed.wait(deadline.remaining_ms):
                raise self._no_position(state.topic_partition, deadline.timeout_ms)
        return state.position

    def _no_position(self, partition: TopicPartition, waited_ms: float) -> KafkaTimeoutError:
        last = self._last_errors.get(partition)
        text = f"no position of {partition} within {waited_ms:.0f} ms{f': {last.message}' if last else ''}"
        return self._cluster.timed_out(text, waited_ms)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            if not (lacking := self._lacking()):
                await self._wanted.wait()
                continue
            if await self._look_up(lacking):
                self._backoff.reset()
            else:
                # A wait for the signal, not a sleep: a new assignment must not wait for partitions of a failed broker.
                await self._wanted.wait(self._backoff.next_ms())

    def _lacking(self) -> list[AssignedPartition]:
        return [
            state
            for state in self._subscription.states.values()
            if state.position is None and state.reset is not None and state.error is None
        ]

    async def _look_up(self, lacking: list[AssignedPartition]) -> bool:
        """One round for all. True when each of them has a position or an error."""
        committed = [state for state in lacking if state.reset is Reset.COMMITTED]
        if committed:
            await self._from_committed(committed)
        lost = [state for state in lacking if state.reset is Reset.IN_RANGE]
        if lost:
            await self._back_into_range(lost)
        to_list = {
            state.topic_partition: state
            for state in lacking
            if state.position is None and state.reset in TIMESTAMP_OF and self._subscription.in_charge(state)
        }
        if to_list:
            resets = {partition: state.reset for partition, state in to_list.items() if state.reset is not None}
            found, failures = await self._offsets.list_once(
                {partition: TIMESTAMP_OF[reset] for partition, reset in resets.items()}, self._config.request_timeout_ms
            )
            for partition, (offset, _) in found.items():
                self._start(to_list[partition], resets[partition], offset)
            for partition, error in failures.items():
                self._failed(to_list[partition], resets[partition], error)
        self._found()
        self.changed.notify()
        return not any(state.reset is not None and state.error is None for state in lacking)

    async def _from_committed(self, lacking: list[AssignedPartition]) -> None:
        """Take the group's committed offsets. Partitions without one follow the reset policy."""
        if self._config.group_id is None:
            for state in lacking:
                self._fall_back(state)
            return
        try:
            found, unknown = await self._offsets.find_committed(
                [state.topic_partition for state in lacking], self._config.request_timeout_ms
            )
        except KafkaError as error:
            for state in lacking:
                self._failed(state, Reset.COMMITTED, error)
            return
        for state in lacking:
            if state.topic_partition in unknown:
                self._failed(state, Reset.COMMITTED, unknown[state.topic_partition])
                continue
            at = found[state.topic_partition]
            if at is None:
                self._fall_back(state)
            elif self._start(state, Reset.COMMITTED, at.offset):
                state.committed = at.offset

    async def _back_into_range(self, lost: list[AssignedPartition]) -> None:
        """Handle positions that the leader did not have. If the leader has the offset now, it had only lagged
        behind. Otherwise the reset policy decides: records were deleted, the log was truncated, or the topic was
        created again.
        """
        asked = [state.topic_partition for state in lost]
        bounds: dict[Reset, dict[TopicPartition, OffsetAt]] = {}
        failures: dict[TopicPartition, KafkaError] = {}
        for reset, timestamp in TIMESTAMP_OF.items():
            bounds[reset], refused = await self._offsets.list_once(
                dict.fromkeys(asked, timestamp), self._config.request_timeout_ms
            )
            failures |= refused
        for state in lost:
            partition = state.topic_partition
            if partition in failures:
                self._failed(state, Reset.IN_RANGE, failures[partition])
                continue
            if not self._still_lacks(state, Reset.IN_RANGE):
                continue
            start, end = bounds[Reset.EARLIEST][partition][0], bounds[Reset.LATEST][partition][0]
            if start <= state.lost <= end:
                state.seek(state.lost)
                continue
            log.warning(
                "%s-%d holds offsets %d to %d and not %d: continuing from the %s",
                *partition, start, end, state.lost, self._policy.value,
            )  # fmt: skip
            # Not asked again: another leader may have a lower start by now, with records that were handed out.
            state.seek(bounds[self._policy][partition][0])

    def _fall_back(self, state: AssignedPartition) -> None:
        if not self._still_lacks(state, Reset.COMMITTED):
            return
        state.reset = self._policy
        if self._policy is Reset.NONE:
            topic, partition = state.topic_partition
            state.reset = None
            self._fail(state, NoOffsetForPartitionError(f"{topic}-{partition} has no committed offset"))

    def _start(self, state: AssignedPartition, reset: Reset, offset: int) -> bool:
        if not self._still_lacks(state, reset):
            return False
        state.seek(offset)
        self._last_errors.pop(state.topic_partition, None)
        return True

    def _failed(self, state: AssignedPartition, reset: Reset, error: KafkaError) -> None:
        if error.retriable:
            self._last_errors[state.topic_partition] = error
            log.info("no position for %s yet: %s", state.topic_partition, error)
        elif self._still_lacks(state, reset):
            self._fail(state, error)

    def _still_lacks(self, state: AssignedPartition, reset: Reset) -> bool:
        """False when the partition was revoked, or the application sought, while the position was looked up."""
        return self._subscription.in_charge(state) and state.position is None and state.reset is reset
