"""Elections and reassignments that operators request. Any broker carries them out, by compare-and-swap.

The request is answered once the change is written and this broker's image shows it. If another broker has changed the
state meanwhile, this broker decides again on the new state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster import elections
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import Place
from semel_broker.cluster.reassignments import alter, portions
from semel_broker.cluster.records import topic_key
from semel_broker.cluster.steps import Step, StepBatch, log_steps, pack
from semel_broker.cluster.store import CHANGES_MAX, Store
from semel_broker.cluster.writes import catch_up, stays_absent, stays_as_is, write
from semel_broker.scheduling.turns import Slices
from semel_broker.world import Logger


class Operations:
    """The operations of one request, with the store to write to and the feed that shows the state."""

    def __init__(self, store: Store, feed: Feed, log: Logger, slices: Slices) -> None:
        self._store = store
        self._feed = feed
        self._log = log
        self._slices = slices
        self._settled: dict[str, bool] = {}
        """By topic: whether it exists, once the image is known to be current."""

    async def elect(self, places: Iterable[Place], *, unclean: bool) -> dict[Place, KafkaError]:
        """Elect leaders as `elections.elect` decides. Returns the errors of the partitions whose election failed.

        The decisions are made in slices. One that is out of date when it is written fails, and is made again.

        Raises REQUEST_TIMED_OUT while the store cannot be reached; some of the elections may have been written.
        """
        refused: dict[Place, KafkaError] = {}
        to_do, is_current, is_unsure = list(dict.fromkeys(places)), False, False
        while to_do:
            steps: list[Step] = []
            errors: dict[Place, KafkaError] = {}
            for place in to_do:
                try:
                    steps.append(elections.elect(self._feed.image, place, unclean=unclean))
                except KafkaError as error:
                    if not (is_unsure and error.code is ErrorCode.ELECTION_NOT_NEEDED):  # it may have been this request
                        errors[place] = error.with_traceback(None)  # else it and this frame keep each other
                if self._slices.is_over():
                    await self._slices.next()
            if errors and not is_current:
                is_current = await self._catch_up()
                continue
            refused |= errors
            batches = list(pack(steps, CHANGES_MAX))
            to_do = [place for batch in batches if not await self._write(batch) for place in partitions_of(batch)]
            is_current = is_unsure = True
        return refused

    async def reassign(
        self,
        name: str,
        targets: Mapping[int, Sequence[int] | None],
        *,
        may_change_factor: bool = True,
    ) -> dict[int, KafkaError]:
        """Reassign partitions (index -> replicas; None: cancel). Returns the errors of the partitions that failed.

        Raises UNKNOWN_TOPIC_OR_PARTITION (no such topic), and REQUEST_TIMED_OUT while the store cannot be reached; some
        of the reassignments may have been written.
        """
        refused: dict[int, KafkaError] = {}
        for portion in portions(targets):
            refused |= await self._reassign_some(name, portion, may_change_factor)
            if self._slices.is_over(len(portion)):
                await self._slices.next()
        return refused

    async def _reassign_some(
        self, name: str, targets: Mapping[int, Sequence[int] | None], may_change_factor: bool
    ) -> dict[int, KafkaError]:
        is_unsure = False
        while True:
            topic = self._feed.image.topic(name)
            is_settled = self._settled.get(name) is (topic is not None)
            if topic is None and is_settled:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            if topic is None:
                await stays_absent(self._store, self._feed, topic_key(name))
                self._settled[name] = False
                continue
            step, errors = alter(self._feed.image, topic, targets, may_change_factor=may_change_factor)
            if (errors or step is None) and not is_settled:
                value = msgspec.json.encode(topic.value)
                if await stays_as_is(self._store, self._feed, topic_key(name), value, topic.revision):
                    self._settled[name] = True  # for all portions of the request
            elif step is None or all([await self._write(batch) for batch in pack([step], CHANGES_MAX)]):
                if is_unsure:  # this request may have cancelled it
                    return {i: e for i, e in errors.items() if e.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
                return errors
            else:
                self._settled.pop(name, None)
                is_unsure = True

    async def _catch_up(self) -> bool:
        """Return True once the image is current: no request is refused before. Raises REQUEST_TIMED_OUT."""
        await catch_up(self._feed)
        return True

    async def _write(self, batch: StepBatch) -> bool:
        """Write a transaction. Returns whether it was written, once the image shows it. Raises REQUEST_TIMED_OUT."""
        is_written = await write(self._store, self._feed, batch.expects, batch.changes)
        if is_written:
            log_steps(self._log.info, batch.steps)
        return is_written


def partitions_of(batch: StepBatch) -> list[Place]:
    """The partitions that a transaction changes."""
    return [place for step in batch.steps for place in step.places]
