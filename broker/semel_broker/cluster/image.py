"""PURE: the image of the cluster: the brokers, topics and partition states that the store held at one revision.

`Feed` applies each transaction. Each change returns a `Touched`, so that no listener has to compare whole images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from semel_broker.cluster import records
from semel_broker.cluster.records import (
    ADMISSIONS,
    BROKERS,
    CONFIGS,
    CONTROLLER,
    DELETIONS,
    LEAVING,
    PARTITIONS,
    REASSIGNMENTS,
    TOPICS,
    Admission,
    BrokerRecord,
    ControllerRecord,
    Leaving,
    PartitionState,
    Reassignment,
    TopicRecord,
)
from semel_broker.cluster.store import ABSENT, Entry, Gone, Listing

T = TypeVar("T")
K = TypeVar("K")

Place = tuple[str, int]
"""(topic id as text, partition index)."""


class Kept(msgspec.Struct, Generic[T], frozen=True):
    """A value of the store, and the revision at which it was written."""

    value: T
    revision: int


class Touched(msgspec.Struct, frozen=True):
    """The subjects of some changes, each once, in order. `topics`: keys of topics. `gone`: topics that were deleted, or
    created again under another id. `partitions`: places whose state, replicas or reassignment changed. `deletions`:
    (topic id, broker). `configs`: keys below `configs/`."""

    topics: dict[str, None] = {}
    gone: dict[str, TopicRecord] = {}
    partitions: dict[Place, None] = {}
    brokers: dict[int, None] = {}
    controller: dict[str, None] = {}
    deletions: dict[Place, None] = {}
    configs: dict[str, None] = {}


class PartitionView(msgspec.Struct, frozen=True):
    """A partition and its state. `revision`: of the state's key; ABSENT while it has its initial state."""

    topic: str
    topic_id: str
    index: int
    replicas: Sequence[int]
    state: PartitionState
    revision: int
    reassignment: Reassignment | None = None

    @property
    def place(self) -> Place:
        return self.topic_id, self.index

    @property
    def key(self) -> str:
        """The key of its state in the store."""
        return records.partition_key(self.topic_id, self.index)


_DECODERS: dict[type, Callable[[bytes], Any]] = {
    kind: msgspec.json.Decoder(kind).decode
    for kind in (
        BrokerRecord,
        Admission,
        Leaving,
        ControllerRecord,
        TopicRecord,
        PartitionState,
        Reassignment,
    )
}


class Image:
    """The content of the store at `revision`."""

    def __init__(self) -> None:
        self.revision = 0
        self.topics: dict[str, Kept[TopicRecord]] = {}  # by key
        self.by_id: dict[str, Kept[TopicRecord]] = {}
        self.deletions: dict[Place, Kept[TopicRecord]] = {}
        self.controller: Kept[ControllerRecord] | None = None
        self.configs: dict[str, bytes] = {}  # by key
        self._brokers: dict[int, Kept[BrokerRecord]] = {}
        self._admissions: dict[int, Admission] = {}
        self._leaving: dict[int, Leaving] = {}
        self._states: dict[Place, Kept[PartitionState]] = {}
        self._reassignments: dict[Place, Kept[Reassignment]] = {}

    # --- brokers ---

    def registered(self) -> list[Kept[BrokerRecord]]:
        """The registered brokers, by id. The revision of each is its broker epoch."""
        return [kept for _, kept in sorted(self._brokers.items())]

    def registration(self, node_id: int) -> Kept[BrokerRecord] | None:
        """The registration of a broker, admitted or not."""
        return self._brokers.get(node_id)

    def is_admitted(self, node_id: int) -> bool:
        """Whether the broker is registered, and the controller has admitted this registration."""
        kept, admission = self._brokers.get(node_id), self._admissions.get(node_id)
        return kept is not None and admission is not None and admission.epoch == kept.revision

    def admission(self, node_id: int) -> Admission | None:
        """The broker's last admission; that registration may have ended."""
        return self._admissions.get(node_id)

    def live(self) -> list[BrokerRecord]:
        """The brokers that may lead and be in sync, by id."""
        return [kept.value for node_id, kept in sorted(self._brokers.items()) if self.is_admitted(node_id)]

    def is_leaving(self, node_id: int) -> bool:
        """Whether the broker's current registration has announced a shutdown."""
        kept, leaving = self._brokers.get(node_id), self._leaving.get(node_id)
        return kept is not None and leaving is not None and leaving.epoch == kept.revision

    # --- topics and partitions ---

    def names(self) -> list[str]:
        """All topics' names, sorted."""
        return sorted(kept.value.name for kept in self.topics.values())

    def topic(self, name: str) -> Kept[TopicRecord] | None:
        """The topic of that name."""
        kept = self.topics.get(records.topic_key(name))
        return kept if kept is not None and kept.value.name == name else None

    def partition(self, topic_id: str, index: int) -> PartitionView | None:
        """A partition; None: there is no such topic or partition."""
        kept = self.by_id.get(topic_id)
        if kept is None or not 0 <= index < len(kept.value.replicas):
            return None
        return self._view(kept.value, index)

    def partitions(self) -> Iterator[PartitionView]:
        """All partitions, by topic and index."""
        for _, kept in sorted(self.topics.items()):
            for index in range(len(kept.value.replicas)):
                yield self._view(kept.value, index)

    def contested(self) -> Iterator[PartitionView]:
        """The partitions that an election can change: those with several replicas, or with a state in the store."""
        for _, kept in sorted(self.topics.items()):
            topic = kept.value
            for index, replicas in enumerate(topic.replicas):
                if len(replicas) > 1 or (topic.topic_id, index) in self._states:
                    yield self._view(topic, index)

    def orphans(self) -> list[str]:
        """Keys of states and reassignments whose topic or partition does not exist."""
        states = [records.partition_key(*place) for place in self._states if self.partition(*place) is None]
        moving = [records.reassignment_key(*place) for place in self._reassignments if self.partition(*place) is None]
        return [*states, *moving]

    def leader(self, topic_id: str, index: int) -> int | None:
        """The live broker that leads the partition; None: there is no leader, or no such partition."""
        view = self.partition(topic_id, index)
        return view.state.leader if view is not None and self.is_admitted(view.state.leader) else None

    def reassignments(self) -> list[PartitionView]:
        """The partitions that are being reassigned, by topic and index."""
        found = [self.partition(*place) for place in sorted(self._reassignments)]
        return sorted((view for view in found if view is not None), key=lambda view: (view.topic, view.index))

    def reassignment_revision(self, place: Place) -> int:
        """The revision of the reassignment's key; ABSENT if there is none."""
        kept = self._reassignments.get(place)
        return ABSENT if kept is None else kept.revision

    def _view(self, topic: TopicRecord, index: int) -> PartitionView:
        place = topic.topic_id, index
        kept, moving = self._states.get(place), self._reassignments.get(place)
        replicas = topic.replicas[index]
        return PartitionView(
            topic=topic.name,
            topic_id=topic.topic_id,
            index=index,
            replicas=replicas,
            state=records.initial_state(replicas if moving is None else moving.value.original)
            if kept is None
            else kept.value,
            revision=ABSENT if kept is None else kept.revision,
            reassignment=None if moving is None else moving.value,
        )

    # --- changes ---

    def apply(self, changes: Sequence[Entry | Gone], revision: int) -> Touched:
        """Apply whole transactions, oldest first, up to `revision`."""
        touched = Touched()
        for change in changes:
            self._apply(change, touched)
        self.revision = max(self.revision, revision)
        return touched

    def replace(self, listing: Listing) -> Touched:
        """Replace the whole content. Keys that did not change may be among those touched."""
        there = {entry.key: entry for entry in listing.entries}
        gone = [Gone(key, listing.revision) for key in self._keys() if key not in there]
        return self.apply([*gone, *listing.entries], listing.revision)

    def _keys(self) -> list[str]:
        brokers = [f"{BROKERS}{node_id}" for node_id in self._brokers]
        admissions = [f"{ADMISSIONS}{node_id}" for node_id in self._admissions]
        leaving = [f"{LEAVING}{node_id}" for node_id in self._leaving]
        states = [records.partition_key(*place) for place in self._states]
        moving = [records.reassignment_key(*place) for place in self._reassignments]
        doomed = [records.deletion_key(*place) for place in self.deletions]
        controller = [CONTROLLER] if self.controller is not None else []
        plain = [*controller, *self.topics, *self.configs]
        return sorted([*brokers, *admissions, *leaving, *states, *moving, *doomed, *plain])

    def _apply(self, change: Entry | Gone, touched: Touched) -> None:
        key = change.key
        kind, _, rest = key.partition("/")
        if kind == TOPICS[:-1]:
            self._apply_topic(change, touched)
        elif kind == PARTITIONS[:-1]:
            place = records.place_of(key)
            _keep(self._states, place, change, PartitionState)
            touched.partitions[place] = None
        elif kind == REASSIGNMENTS[:-1]:
            place = records.place_of(key)
            _keep(self._reassignments, place, change, Reassignment)
            touched.partitions[place] = None
        elif kind == DELETIONS[:-1]:
            place = records.place_of(key)
            _keep(self.deletions, place, change, TopicRecord)
            touched.deletions[place] = None
        elif kind == BROKERS[:-1]:
            _keep(self._brokers, int(rest), change, BrokerRecord)
            touched.brokers[int(rest)] = None
        elif kind == ADMISSIONS[:-1]:
            _keep_plain(self._admissions, int(rest), change, Admission)
            touched.brokers[int(rest)] = None
        elif kind == LEAVING[:-1]:
            _keep_plain(self._leaving, int(rest), change, Leaving)
            touched.brokers[int(rest)] = None
        elif kind == CONTROLLER:
            self.controller = _read(change, ControllerRecord)
            touched.controller[key] = None
        elif kind == CONFIGS[:-1]:
            if isinstance(change, Gone):
                self.configs.pop(key, None)
            else:
                self.configs[key] = change.value
            touched.configs[key] = None

    def _apply_topic(self, change: Entry | Gone, touched: Touched) -> None:
        key = change.key
        before = self.topics.get(key)
        after = _read(change, TopicRecord)
        touched.topics[key] = None
        if before is not None and (after is None or after.value.topic_id != before.value.topic_id):
            touched.gone[before.value.topic_id] = before.value
            del self.topics[key], self.by_id[before.value.topic_id]
            before = None
        if after is None:
            return
        self.topics[key] = self.by_id[after.value.topic_id] = after
        known = [] if before is None else before.value.replicas
        for index, replicas in enumerate(after.value.replicas):
            if index >= len(known) or known[index] != replicas:
                touched.partitions[after.value.topic_id, index] = None


def _read(change: Entry | Gone, kind: type[T]) -> Kept[T] | None:
    if isinstance(change, Gone):
        return None
    value: T = _DECODERS[kind](change.value)
    return Kept(value, change.revision)


def _keep(where: dict[K, Kept[T]], name: K, change: Entry | Gone, kind: type[T]) -> None:
    kept = _read(change, kind)
    if kept is None:
        where.pop(name, None)
    else:
        where[name] = kept


def _keep_plain(where: dict[K, T], name: K, change: Entry | Gone, kind: type[T]) -> None:
    kept = _read(change, kind)
    if kept is None:
        where.pop(name, None)
    else:
        where[name] = kept.value
