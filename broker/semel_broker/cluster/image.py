"""PURE: the image of the cluster: the brokers, topics and partition states that the store held at one revision.

`Feed` applies each transaction. Each change returns an `ImageDelta`, so that no listener has to compare whole images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from semel_protocol.acls import Acl

from semel_broker.cluster import records
from semel_broker.cluster.records import (
    ACLS,
    ADMISSIONS,
    BROKERS,
    CONFIGS,
    CONTROLLER,
    DELETIONS,
    LEAVING,
    OFFLINE,
    PARTITIONS,
    QUOTAS,
    REASSIGNMENTS,
    TOPICS,
    UNBOUND_IDS,
    USERS,
    WRITTEN,
    AclRecord,
    BrokerAdmission,
    BrokerRecord,
    ControllerRecord,
    Leaving,
    Offline,
    PartitionState,
    QuotaRecord,
    Reassignment,
    ScramCredential,
    TopicRecord,
)
from semel_broker.cluster.store import ABSENT, Listing, RemovedKey, StoreEntry

T = TypeVar("T")
K = TypeVar("K")

Place = tuple[str, int]
"""(topic id as text, partition index)."""


class StoredValue(msgspec.Struct, Generic[T], frozen=True):
    """A value of the store, and the revision at which it was written."""

    value: T
    revision: int


class ImageDelta(msgspec.Struct, frozen=True):
    """The topics, partitions, brokers and settings that some transactions have changed, each once, in order.

    `topics`: keys of topics. `gone`: topics that were deleted, or created again with another id. `partitions`: those
    whose state, replicas or reassignment changed. `deletions`: (topic id, broker). `configs`, `acls`, `users`,
    `quotas`: keys below `configs/`, `acls/`, `users/` and `quotas/`.
    """

    topics: dict[str, None] = {}
    gone: dict[str, TopicRecord] = {}
    partitions: dict[Place, None] = {}
    brokers: dict[int, None] = {}
    controller: dict[str, None] = {}
    deletions: dict[Place, None] = {}
    configs: dict[str, None] = {}
    acls: dict[str, None] = {}
    users: dict[str, None] = {}
    quotas: dict[str, None] = {}


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
        BrokerAdmission,
        Leaving,
        Offline,
        ControllerRecord,
        TopicRecord,
        PartitionState,
        Reassignment,
        AclRecord,
        ScramCredential,
        QuotaRecord,
    )
}


class Image:
    """The content of the store at `revision`."""

    def __init__(self) -> None:
        self.revision = 0
        self.topics: dict[str, StoredValue[TopicRecord]] = {}  # by key
        self.by_id: dict[str, StoredValue[TopicRecord]] = {}
        self.deletions: dict[Place, StoredValue[TopicRecord]] = {}
        self.controller: StoredValue[ControllerRecord] | None = None
        self.configs: dict[str, bytes] = {}  # by key
        self.acls: dict[str, Acl] = {}  # by key
        self.users: dict[str, ScramCredential] = {}  # by key
        self.quotas: dict[str, StoredValue[QuotaRecord]] = {}  # by key
        self.written: dict[str, int] = {}  # the revisions of the keys below `written/`
        self.unbound_ids_end = 0  # older versions have given out the producer ids below it
        self._brokers: dict[int, StoredValue[BrokerRecord]] = {}
        self._admissions: dict[int, BrokerAdmission] = {}
        self._leaving: dict[int, Leaving] = {}
        self._offline: dict[int, Offline] = {}
        self._states: dict[Place, StoredValue[PartitionState]] = {}
        self._reassignments: dict[Place, StoredValue[Reassignment]] = {}

    # --- brokers ---

    def registered(self) -> list[StoredValue[BrokerRecord]]:
        """The registered brokers, by id. The revision of each is its broker epoch."""
        return [stored for _, stored in sorted(self._brokers.items())]

    def registration(self, node_id: int) -> StoredValue[BrokerRecord] | None:
        """The registration of a broker, admitted or not."""
        return self._brokers.get(node_id)

    def is_admitted(self, node_id: int) -> bool:
        """Whether the broker is registered, and the controller has admitted this registration."""
        stored, admission = self._brokers.get(node_id), self._admissions.get(node_id)
        return stored is not None and admission is not None and admission.epoch == stored.revision

    def admission(self, node_id: int) -> BrokerAdmission | None:
        """The broker's last admission; that registration may have ended."""
        return self._admissions.get(node_id)

    def live(self) -> list[BrokerRecord]:
        """The brokers that may lead and be in sync, by id."""
        return [stored.value for node_id, stored in sorted(self._brokers.items()) if self.is_admitted(node_id)]

    def fenced(self) -> list[BrokerRecord]:
        """The brokers that are registered but not admitted, by id."""
        return [stored.value for node_id, stored in sorted(self._brokers.items()) if not self.is_admitted(node_id)]

    def is_leaving(self, node_id: int) -> bool:
        """Whether the broker's current registration has announced a shutdown."""
        stored, leaving = self._brokers.get(node_id), self._leaving.get(node_id)
        return stored is not None and leaving is not None and leaving.epoch == stored.revision

    def offline(self, node_id: int) -> Mapping[str, Sequence[int]]:
        """The partitions whose files the broker cannot use, by topic id, as its current registration says."""
        stored, since = self._brokers.get(node_id), self._offline.get(node_id)
        if stored is None:
            return {}
        if since is not None and since.epoch == stored.revision:
            return since.partitions
        return {} if stored.value.offline is msgspec.UNSET else stored.value.offline

    def hangs(self, node_id: int) -> bool:
        """Whether the disk of the broker hangs, as its current registration says."""
        stored, since = self._brokers.get(node_id), self._offline.get(node_id)
        return stored is not None and since is not None and since.epoch == stored.revision and since.hangs

    def is_offline(self, node_id: int, place: Place) -> bool:
        """Whether the broker cannot use the files of its replica of this partition."""
        return place[1] in self.offline(node_id).get(place[0], ())

    # --- topics and partitions ---

    def names(self) -> list[str]:
        """All topics' names, sorted."""
        return sorted(stored.value.name for stored in self.topics.values())

    def topic(self, name: str) -> StoredValue[TopicRecord] | None:
        """The topic of that name."""
        stored = self.topics.get(records.topic_key(name))
        return stored if stored is not None and stored.value.name == name else None

    def partition(self, topic_id: str, index: int) -> PartitionView | None:
        """A partition; None: there is no such topic or partition."""
        stored = self.by_id.get(topic_id)
        if stored is None or not 0 <= index < len(stored.value.replicas):
            return None
        return self._view(stored.value, index)

    def partitions(self) -> Iterator[PartitionView]:
        """All partitions, by topic and index."""
        for _, stored in sorted(self.topics.items()):
            for index in range(len(stored.value.replicas)):
                yield self._view(stored.value, index)

    def electable(self) -> Iterator[PartitionView]:
        """The partitions that an election can change: partitions with several replicas, or with a stored state."""
        for _, stored in sorted(self.topics.items()):
            topic = stored.value
            for index, replicas in enumerate(topic.replicas):
                if len(replicas) > 1 or (topic.topic_id, index) in self._states:
                    yield self._view(topic, index)

    def is_electable(self, view: PartitionView) -> bool:
        """Whether an election or the end of a reassignment can change it: see `electable`."""
        return len(view.replicas) > 1 or view.place in self._states or view.reassignment is not None

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
        stored = self._reassignments.get(place)
        return ABSENT if stored is None else stored.revision

    def _view(self, topic: TopicRecord, index: int) -> PartitionView:
        place = topic.topic_id, index
        stored, moving = self._states.get(place), self._reassignments.get(place)
        replicas = topic.replicas[index]
        return PartitionView(
            topic=topic.name,
            topic_id=topic.topic_id,
            index=index,
            replicas=replicas,
            state=records.initial_state(replicas if moving is None else moving.value.original)
            if stored is None
            else stored.value,
            revision=ABSENT if stored is None else stored.revision,
            reassignment=None if moving is None else moving.value,
        )

    # --- changes ---

    def apply(self, changes: Sequence[StoreEntry | RemovedKey], revision: int) -> ImageDelta:
        """Apply whole transactions, oldest first, up to `revision`."""
        delta = ImageDelta()
        for change in changes:
            self._apply(change, delta)
        self.revision = max(self.revision, revision)
        return delta

    def replace(self, listing: Listing) -> ImageDelta:
        """Replace the whole content. The delta may name keys that did not change."""
        there = {entry.key: entry for entry in listing.entries}
        gone = [RemovedKey(key, listing.revision) for key in self._keys() if key not in there]
        return self.apply([*gone, *listing.entries], listing.revision)

    def _keys(self) -> list[str]:
        brokers = [f"{BROKERS}{node_id}" for node_id in self._brokers]
        admissions = [f"{ADMISSIONS}{node_id}" for node_id in self._admissions]
        leaving = [f"{LEAVING}{node_id}" for node_id in self._leaving]
        offline = [f"{OFFLINE}{node_id}" for node_id in self._offline]
        states = [records.partition_key(*place) for place in self._states]
        moving = [records.reassignment_key(*place) for place in self._reassignments]
        doomed = [records.deletion_key(*place) for place in self.deletions]
        controller = [CONTROLLER] if self.controller is not None else []
        unbound = [UNBOUND_IDS] if self.unbound_ids_end else []
        plain = [
            *controller,
            *self.topics,
            *self.configs,
            *self.acls,
            *self.users,
            *self.quotas,
            *self.written,
            *unbound,
        ]
        return sorted([*brokers, *admissions, *leaving, *offline, *states, *moving, *doomed, *plain])

    def _apply(self, change: StoreEntry | RemovedKey, delta: ImageDelta) -> None:
        key = change.key
        kind, _, rest = key.partition("/")
        if kind == TOPICS[:-1]:
            self._apply_topic(change, delta)
        elif kind == PARTITIONS[:-1]:
            place = records.place_of(key)
            _set(self._states, place, change, PartitionState)
            delta.partitions[place] = None
        elif kind == REASSIGNMENTS[:-1]:
            place = records.place_of(key)
            _set(self._reassignments, place, change, Reassignment)
            delta.partitions[place] = None
        elif kind == DELETIONS[:-1]:
            place = records.place_of(key)
            _set(self.deletions, place, change, TopicRecord)
            delta.deletions[place] = None
        elif kind == BROKERS[:-1]:
            _set(self._brokers, int(rest), change, BrokerRecord)
            delta.brokers[int(rest)] = None
        elif kind == ADMISSIONS[:-1]:
            _set_value(self._admissions, int(rest), change, BrokerAdmission)
            delta.brokers[int(rest)] = None
        elif kind == LEAVING[:-1]:
            _set_value(self._leaving, int(rest), change, Leaving)
            delta.brokers[int(rest)] = None
        elif kind == OFFLINE[:-1]:
            _set_value(self._offline, int(rest), change, Offline)
            delta.brokers[int(rest)] = None
        elif kind == CONTROLLER:
            self.controller = _read(change, ControllerRecord)
            delta.controller[key] = None
        elif kind == CONFIGS[:-1]:
            if isinstance(change, RemovedKey):
                self.configs.pop(key, None)
            else:
                self.configs[key] = change.value
            delta.configs[key] = None
        elif key == UNBOUND_IDS:
            self.unbound_ids_end = 0 if isinstance(change, RemovedKey) else int(change.value)
        else:
            self._apply_access(kind, change, delta)

    def _apply_access(self, kind: str, change: StoreEntry | RemovedKey, delta: ImageDelta) -> None:
        """ACLs, users and quotas, and when they were written."""
        key = change.key
        if kind == ACLS[:-1]:
            stored = _read(change, AclRecord)
            if stored is None:
                self.acls.pop(key, None)
            else:
                self.acls[key] = stored.value.acl()
            delta.acls[key] = None
        elif kind == USERS[:-1]:
            _set_value(self.users, key, change, ScramCredential)
            delta.users[key] = None
        elif kind == QUOTAS[:-1]:
            _set(self.quotas, key, change, QuotaRecord)
            delta.quotas[key] = None
        elif kind == WRITTEN[:-1]:
            if isinstance(change, RemovedKey):
                self.written.pop(key, None)
            else:
                self.written[key] = change.revision

    def _apply_topic(self, change: StoreEntry | RemovedKey, delta: ImageDelta) -> None:
        key = change.key
        before = self.topics.get(key)
        after = _read(change, TopicRecord)
        delta.topics[key] = None
        if before is not None and (after is None or after.value.topic_id != before.value.topic_id):
            delta.gone[before.value.topic_id] = before.value
            del self.topics[key], self.by_id[before.value.topic_id]
            before = None
        if after is None:
            return
        self.topics[key] = self.by_id[after.value.topic_id] = after
        known, rows, topic_id = (
            [] if before is None else before.value.replicas,
            after.value.replicas,
            after.value.topic_id,
        )
        changed = [index for index, (old, new) in enumerate(zip(known, rows, strict=False)) if old != new]
        delta.partitions.update({(topic_id, index): None for index in (*changed, *range(len(known), len(rows)))})


def _read(change: StoreEntry | RemovedKey, kind: type[T]) -> StoredValue[T] | None:
    if isinstance(change, RemovedKey):
        return None
    value: T = _DECODERS[kind](change.value)
    return StoredValue(value, change.revision)


def _set(where: dict[K, StoredValue[T]], name: K, change: StoreEntry | RemovedKey, kind: type[T]) -> None:
    stored = _read(change, kind)
    if stored is None:
        where.pop(name, None)
    else:
        where[name] = stored


def _set_value(where: dict[K, T], name: K, change: StoreEntry | RemovedKey, kind: type[T]) -> None:
    stored = _read(change, kind)
    if stored is None:
        where.pop(name, None)
    else:
        where[name] = stored.value
