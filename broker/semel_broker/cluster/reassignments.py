"""PURE: reassignments of partitions to other brokers (KIP-455): begin, cancel and finish.

During a reassignment the replicas of a partition are the target replicas and then the original ones. The new replicas
fetch like all followers and join the ISR when they have caught up. Once all target replicas are in the ISR and one of
them may lead, the other replicas are removed. Replicas, state and the reassignment's record change in one transaction.

A cancelled reassignment ends with the original replicas. The cancellation is refused if none of them is live and in the
ISR, because the records written meanwhile would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster import records
from semel_broker.cluster.elections import BrokerStates
from semel_broker.cluster.image import Image, PartitionView, Place, StoredValue
from semel_broker.cluster.records import PartitionState, Reassignment, TopicRecord
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import Change, Delete, Expect, Put

PARTITIONS_PER_STEP: Final = 32
"""Partitions of one topic whose reassignments one step ends. Each takes up to two changes and three expectations."""
BEGUN_PER_STEP: Final = 120
"""Partitions of one topic whose reassignments one step begins: a change and an expectation each. The step also writes
the whole record of the topic, so with few partitions in each a request for 10,000 would be quadratic."""


def adding(view: PartitionView) -> list[int]:
    """The replicas that the reassignment adds."""
    moving = view.reassignment
    return [] if moving is None else [node_id for node_id in moving.target if node_id not in moving.original]


def removing(view: PartitionView) -> list[int]:
    """The replicas that the reassignment removes."""
    moving = view.reassignment
    return [] if moving is None else [node_id for node_id in view.replicas if node_id not in moving.target]


def check(view: PartitionView, target: Sequence[int], image: Image, *, may_change_factor: bool = True) -> None:
    """Check the target replicas of a partition. Raises INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR."""
    problem = None
    known = [*view.replicas, *(stored.value.node_id for stored in image.registered())]
    unknown = [node_id for node_id in target if node_id not in known]
    if not target:
        problem = "a partition needs at least one replica"
    elif len(dict.fromkeys(target)) != len(target):
        problem = f"{list(target)} names a broker twice"
    elif unknown:
        live = [stored.value.node_id for stored in image.registered()]
        problem = f"there is no broker {unknown[0]} now; the brokers are {live}"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    has = len(original_of(view))
    if not may_change_factor and len(target) != has:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{view.topic}-{view.index} has {has} replicas and must keep that number, not get {len(target)}",
        )


def alter(
    image: Image,
    topic: StoredValue[TopicRecord],
    targets: Mapping[int, Sequence[int] | None],
    *,
    may_change_factor: bool = True,
) -> tuple[Step | None, dict[int, KafkaError]]:
    """Begin the reassignment of partitions of one topic (index -> replicas; None: cancel), as many as `portions` has in
    one. A partition that is being reassigned gets the new target.

    Returns the step to write, if any, and the errors by index: UNKNOWN_TOPIC_OR_PARTITION (no such partition), and the
    errors of `check` and `cancelled`.
    """
    edit, brokers = _Edit(image, topic), BrokerStates.of(image)
    refused: dict[int, KafkaError] = {}
    for index, target in sorted(targets.items()):
        view = image.partition(topic.value.topic_id, index)
        try:
            if view is None:
                what = f"there is no partition {index} of topic {topic.value.name!r}"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
            if target is None:
                edit.end(view, original_of(view), cancelled(view, brokers), brokers)
            else:
                check(view, target, image, may_change_factor=may_change_factor)
                edit.begin(view, list(target))
        except KafkaError as error:
            refused[index] = error
    return edit.step("reassignment_altered"), refused


def portions(targets: Mapping[int, Sequence[int] | None]) -> Iterator[dict[int, Sequence[int] | None]]:
    """The targets (index -> replicas; None: cancel) in portions for one step each, in order of the indexes."""
    for size, does_cancel in ((BEGUN_PER_STEP, False), (PARTITIONS_PER_STEP, True)):
        rows = iter([(index, target) for index, target in sorted(targets.items()) if (target is None) is does_cancel])
        while portion := dict(islice(rows, size)):
            yield portion


def original_of(view: PartitionView) -> list[int]:
    """The replicas of the partition before its reassignment; its replicas if it is not being reassigned."""
    return list(view.replicas) if view.reassignment is None else view.reassignment.original


def cancelled(view: PartitionView, brokers: BrokerStates) -> PartitionState:
    """The state of a partition after the cancellation of its reassignment. Raises NO_REASSIGNMENT_IN_PROGRESS, and
    INVALID_REPLICA_ASSIGNMENT if no original replica may lead."""
    if view.reassignment is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{view.topic}-{view.index} is not being reassigned")
    state = _within(view, view.reassignment.original, brokers)
    if state is None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{view.topic}-{view.index} cannot return to {view.reassignment.original}: none of them is live and in "
            f"sync ({view.state.isr} are). Wait for one of them, or let the reassignment finish",
        )
    return state


def arrived(view: PartitionView, brokers: BrokerStates) -> PartitionState | None:
    """The state of a partition after its reassignment; None while it is not complete."""
    moving = view.reassignment
    if moving is None or any(node_id not in view.state.isr for node_id in moving.target):
        return None
    return _within(view, moving.target, brokers)


def finish(image: Image, brokers: BrokerStates, places: Sequence[Place]) -> list[Step]:
    """The steps that end the complete reassignments among `places`, at most one for each topic."""
    by_topic: dict[str, list[tuple[PartitionView, PartitionState]]] = {}
    for place in places:
        view = image.partition(*place)
        state = None if view is None else arrived(view, brokers)
        if view is not None and state is not None:
            by_topic.setdefault(view.topic_id, []).append((view, state))
    steps = []
    for topic_id, rows in by_topic.items():
        edit = _Edit(image, image.by_id[topic_id])
        for view, state in rows[:PARTITIONS_PER_STEP]:
            assert view.reassignment is not None
            edit.end(view, view.reassignment.target, state, brokers)
        step = edit.step("reassignment_finished")
        assert step is not None, topic_id
        steps.append(step)
    return steps


def _within(view: PartitionView, replicas: Sequence[int], brokers: BrokerStates) -> PartitionState | None:
    """The partition's state with these replicas only; None if none of them can lead now."""
    state = view.state
    isr = [node_id for node_id in state.isr if node_id in replicas]
    able = brokers.present(isr, view)
    if state.leader in able:
        return replace(state, isr=isr)
    present = [node_id for node_id in replicas if node_id in able]
    staying = [node_id for node_id in present if node_id not in brokers.leaving]
    if not present:
        return None
    return PartitionState((staying or present)[0], state.leader_epoch + 1, isr)


def _key(view: PartitionView) -> str:
    return records.reassignment_key(*view.place)


class _Edit:
    """Collects the changes of several partitions of one topic in one step, because they share the topic's record."""

    def __init__(self, image: Image, topic: StoredValue[TopicRecord]) -> None:
        self._image = image
        self._topic = topic
        self._replicas = list(topic.value.replicas)
        self._expects: list[Expect] = []
        self._changes: list[Change] = []
        self._places: dict[Place, None] = {}

    def begin(self, view: PartitionView, target: list[int]) -> None:
        """Begin the reassignment to `target`, unless it is in progress or the partition has these replicas."""
        moving = view.reassignment
        if target == (list(view.replicas) if moving is None else moving.target):
            return
        union = [*target, *(node_id for node_id in view.replicas if node_id not in target)]
        self._move(view, union, Put(_key(view), msgspec.json.encode(Reassignment(target, original_of(view)))))

    def end(self, view: PartitionView, replicas: list[int], state: PartitionState, brokers: BrokerStates) -> None:
        """End the reassignment with these replicas and this state. A new leader must still be registered."""
        self._move(view, replicas, Delete(_key(view)))
        if state.leader != view.state.leader:
            self._expects.append(Expect(records.broker_key(state.leader), brokers.live[state.leader]))
        self._expects.append(Expect(view.key, view.revision))
        self._changes.append(Put(view.key, msgspec.json.encode(state)))

    def _move(self, view: PartitionView, replicas: list[int], record: Put | Delete) -> None:
        self._replicas[view.index] = replicas
        self._places[view.place] = None
        self._expects.append(Expect(record.key, self._image.reassignment_revision(view.place)))
        self._changes.append(record)

    def step(self, what: str) -> Step | None:
        """The step with all changes; None if there are none."""
        if not self._places:
            return None
        topic = self._topic
        key = records.topic_key(topic.value.name)
        record = replace(topic.value, replicas=self._replicas)
        return Step(
            expects=(Expect(key, topic.revision), *self._expects),
            changes=(Put(key, msgspec.json.encode(record)), *self._changes),
            places=tuple(self._places),
            what=what,
            facts={"topic": topic.value.name, "partitions": [index for _, index in self._places]},
        )
