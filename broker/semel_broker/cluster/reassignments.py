"""PURE: moving partitions to other brokers (KIP-455): begin, go back, and be done.

While a partition is on its way its replicas are those it shall have and those it has, in this order; so the new ones
fetch like any other follower and join the ISR when they have caught up. Once all of the target are in the ISR and one
of them may lead, the rest is let go: replicas, state and the note of the reassignment change in one transaction.

Going back is the same with the replicas that there were; it is refused where none of them is in the ISR any more, since
that would lose what was written meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster import records
from semel_broker.cluster.elections import Standing
from semel_broker.cluster.image import Image, Kept, PartitionView, Place
from semel_broker.cluster.records import PartitionState, Reassignment, TopicRecord
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import Change, Delete, Expect, Put

PARTITIONS_PER_STEP: Final = 32
"""Of one topic in one transaction: each has a state and a note to be changed, and both are expected to be as seen."""


def adding(view: PartitionView) -> list[int]:
    """The replicas that the partition is getting."""
    moving = view.reassignment
    return [] if moving is None else [node_id for node_id in moving.target if node_id not in moving.original]


def removing(view: PartitionView) -> list[int]:
    """The replicas that it will lose."""
    moving = view.reassignment
    return [] if moving is None else [node_id for node_id in view.replicas if node_id not in moving.target]


def check(view: PartitionView, target: Sequence[int], image: Image, *, may_change_factor: bool = True) -> None:
    """Whether the partition could go there. Raises KafkaError 39, 38."""
    problem = None
    known = [*view.replicas, *(kept.value.node_id for kept in image.registered())]
    unknown = [node_id for node_id in target if node_id not in known]
    if not target:
        problem = "a partition needs at least one replica"
    elif len(dict.fromkeys(target)) != len(target):
        problem = f"{list(target)} names a broker twice"
    elif unknown:
        live = [kept.value.node_id for kept in image.registered()]
        problem = f"there is no broker {unknown[0]} now; the brokers are {live}"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    has = len(original_of(view))
    if not may_change_factor and len(target) != has:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{view.topic}-{view.index} has {has} replicas and is to keep that number, not to have {len(target)}",
        )


def alter(
    image: Image,
    topic: Kept[TopicRecord],
    targets: Mapping[int, Sequence[int] | None],
    *,
    may_change_factor: bool = True,
) -> tuple[Step | None, dict[int, KafkaError]]:
    """Send partitions (index -> replicas) of one topic on their way, or back (None); at most PARTITIONS_PER_STEP.

    What has to be written, if anything; and those that cannot be done, by index: 3 no such partition, 38, 39 as `check`
    says, 85 and 39 as `going_back` says. A partition that is on its way already gets another aim.
    """
    assert len(targets) <= PARTITIONS_PER_STEP, len(targets)
    edit, standing = _Edit(image, topic), Standing.of(image)
    refused: dict[int, KafkaError] = {}
    for index, target in sorted(targets.items()):
        view = image.partition(topic.value.topic_id, index)
        try:
            if view is None:
                what = f"there is no partition {index} of topic {topic.value.name!r}"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
            if target is None:
                edit.end(view, original_of(view), going_back(view, standing), standing)
            else:
                check(view, target, image, may_change_factor=may_change_factor)
                edit.begin(view, list(target))
        except KafkaError as error:
            refused[index] = error
    return edit.step("reassignment_altered"), refused


def original_of(view: PartitionView) -> list[int]:
    """The replicas that the partition had, or has, when it is not on its way."""
    return list(view.replicas) if view.reassignment is None else view.reassignment.original


def going_back(view: PartitionView, standing: Standing) -> PartitionState:
    """The state of a partition whose reassignment is given up. Raises KafkaError 85 where none is under way, 39 where
    no old replica could lead."""
    if view.reassignment is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{view.topic}-{view.index} is not on its way anywhere")
    state = _within(view, view.reassignment.original, standing)
    if state is None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{view.topic}-{view.index} cannot go back to {view.reassignment.original}: none of them is there and in "
            f"sync ({view.state.isr} are). Wait for one of them, or let the reassignment finish",
        )
    return state


def arrived(view: PartitionView, standing: Standing) -> PartitionState | None:
    """The state to end the reassignment with; None as long as that cannot be."""
    moving = view.reassignment
    if moving is None or any(node_id not in view.state.isr for node_id in moving.target):
        return None
    return _within(view, moving.target, standing)


def finish(image: Image, standing: Standing, places: Sequence[Place]) -> list[Step]:
    """End the reassignments among `places` that have arrived: for each topic one step at most."""
    by_topic: dict[str, list[tuple[PartitionView, PartitionState]]] = {}
    for place in places:
        view = image.partition(*place)
        state = None if view is None else arrived(view, standing)
        if view is not None and state is not None:
            by_topic.setdefault(view.topic_id, []).append((view, state))
    steps = []
    for topic_id, rows in by_topic.items():
        edit = _Edit(image, image.by_id[topic_id])
        for view, state in rows[:PARTITIONS_PER_STEP]:
            assert view.reassignment is not None
            edit.end(view, view.reassignment.target, state, standing)
        step = edit.step("reassignment_finished")
        assert step is not None, topic_id
        steps.append(step)
    return steps


def _within(view: PartitionView, replicas: Sequence[int], standing: Standing) -> PartitionState | None:
    """The partition's state with no others than `replicas`; None if none of them can lead now."""
    state = view.state
    isr = [node_id for node_id in state.isr if node_id in replicas]
    if state.leader in isr and state.leader in standing.live:
        return replace(state, isr=isr)
    present = [node_id for node_id in replicas if node_id in isr and node_id in standing.live]
    staying = [node_id for node_id in present if node_id not in standing.leaving]
    if not present:
        return None
    return PartitionState((staying or present)[0], state.leader_epoch + 1, isr)


def _key(view: PartitionView) -> str:
    return records.reassignment_key(*view.place)


class _Edit:
    """Changes of several partitions of one topic, as one step: they share the topic's record."""

    def __init__(self, image: Image, topic: Kept[TopicRecord]) -> None:
        self._image = image
        self._topic = topic
        self._replicas = list(topic.value.replicas)
        self._expects: list[Expect] = []
        self._changes: list[Change] = []
        self._places: dict[Place, None] = {}

    def begin(self, view: PartitionView, target: list[int]) -> None:
        """The partition is on its way to `target` from now on, unless it is already, or is there."""
        moving = view.reassignment
        if target == (list(view.replicas) if moving is None else moving.target):
            return
        union = [*target, *(node_id for node_id in view.replicas if node_id not in target)]
        self._move(view, union, Put(_key(view), msgspec.json.encode(Reassignment(target, original_of(view)))))

    def end(self, view: PartitionView, replicas: list[int], state: PartitionState, standing: Standing) -> None:
        """The partition is on its way no longer: these are its replicas, and this is its state, if who comes to lead is
        still there."""
        self._move(view, replicas, Delete(_key(view)))
        if state.leader != view.state.leader:
            self._expects.append(Expect(records.broker_key(state.leader), standing.live[state.leader]))
        self._expects.append(Expect(view.key, view.revision))
        self._changes.append(Put(view.key, msgspec.json.encode(state)))

    def _move(self, view: PartitionView, replicas: list[int], note: Put | Delete) -> None:
        self._replicas[view.index] = replicas
        self._places[view.place] = None
        self._expects.append(Expect(note.key, self._image.reassignment_revision(view.place)))
        self._changes.append(note)

    def step(self, what: str) -> Step | None:
        """All of it; None if there is nothing to do."""
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
