"""Checks during a run that committed records are on every replica that can be elected.

At the end of a run all replicas have all records again, and an error in between would often not be seen. So this check
looks at all brokers during the run: at any time, each admitted replica in sync must have all committed records durably.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec
from semel_broker.cluster import records
from semel_broker.cluster.image import Image
from semel_broker.cluster.records import BrokerAdmission, PartitionState
from semel_broker.cluster.registration import Registration
from semel_broker.partitions.partition import Partition

from sim.broker import SimBroker
from sim.store import NAMESPACE, SimStore

EVERY_NS = 10_000_000

_state = msgspec.json.Decoder(PartitionState).decode
_admission = msgspec.json.Decoder(BrokerAdmission).decode

PlaceOfId = tuple[str, int]


class Led(NamedTuple):
    """The state of a leader at the last check. `revision`: of the partition's state in the broker's image."""

    high_watermark: int
    revision: int
    isr: tuple[int, ...]


class Commitment:
    """`found`: one error for each partition. `brokers` by host name."""

    def __init__(self, brokers: Mapping[str, SimBroker], store: SimStore) -> None:
        self.found: dict[PlaceOfId, str] = {}
        self._brokers, self._etcd = brokers, store.etcd
        self._committed: dict[PlaceOfId, int] = {}
        self._led: dict[tuple[int, PlaceOfId], Led] = {}
        self._states: dict[PlaceOfId, tuple[int, PartitionState]] = {}
        self._isrs: dict[PlaceOfId, list[int]] = {}
        """By partition: the answers of `_in_sync` at `_isrs_revision` of the store."""
        self._isrs_revision = -1
        self.due_ns = 0

    @property
    def watched(self) -> int:
        """The number of partitions with committed records."""
        return sum(offset > 0 for offset in self._committed.values())

    def look(self, now_ns: int) -> None:
        """Check all brokers. To be called again at `due_ns`: every 10 ms."""
        self.due_ns = now_ns + EVERY_NS
        here = dict(self._here())
        for node_id, (registration, partitions, image) in here.items():
            if registration.is_valid() and not self._is_registered(registration):
                self.found.setdefault(
                    ("", node_id),
                    f"broker {node_id} takes registration {registration.epoch} as valid, but it has ended",
                )
            for place, partition in partitions.items():
                if partition.is_leading and partition.replicas is not None and _is_here(partition):
                    self._commits(node_id, place, partition, image)
        if self._isrs_revision != self._etcd.revision:
            self._isrs_revision = self._etcd.revision
            self._isrs = {}
        for place, offset in self._committed.items():
            if not offset:
                continue
            isr = self._isrs.get(place)
            if isr is None:
                isr = self._isrs[place] = self._in_sync(place)
            for node_id in isr:
                if node_id not in here:
                    continue
                registration, partitions, _ = here[node_id]
                replica = partitions.get(place)
                if replica is None or replica.durable_end >= offset:
                    continue
                if _is_here(replica) and self._is_admitted(registration):
                    self.found.setdefault(
                        place,
                        f"{replica.topic}-{replica.index}: committed up to {offset}; broker {node_id} is in sync "
                        f"and has durable records up to {replica.durable_end}",
                    )

    def _here(self) -> Iterator[tuple[int, tuple[Registration, dict[PlaceOfId, Partition], Image]]]:
        """The running brokers by node id: registration, partitions (those of deleted topics, too), image."""
        for broker in self._brokers.values():
            if broker.node is None or not broker.host.is_running:
                continue
            partitions = broker.node.broker.topics.local._partitions  # not sorted: this is done very often
            lease = next((each._lease for each in partitions.values() if not each.is_retired), None)
            if isinstance(lease, Registration):
                yield lease.node_id, (lease, partitions, broker.node.broker.feed.image)

    def _commits(self, node_id: int, place: PlaceOfId, partition: Partition, image: Image) -> None:
        """Record the high watermark of a leader, and check that the ISR was large enough if it has risen."""
        replicas, offset = partition.replicas, partition.high_watermark
        assert replicas is not None
        stored = image._states.get(place)
        revision = stored.revision if stored is not None else 0
        before = self._led.get((node_id, place))
        if before == (offset, revision, replicas.isr):
            return  # nothing has changed in 10 ms, as a rule
        led = self._led[node_id, place] = Led(offset, revision, replicas.isr)
        if offset > self._committed.get(place, -1):
            self._committed[place] = offset
        if before is None or offset <= before.high_watermark:
            return
        least = min(partition.log.config.min_insync_replicas, 1 + len(replicas.followers))
        if len(led.isr) < least and (before.isr, before.revision) == (led.isr, led.revision):
            self.found.setdefault(
                place,
                f"{partition.topic}-{partition.index}: committed from {before.high_watermark} to {offset} with "
                f"{list(led.isr)} in sync; {least} replicas are required",
            )

    # --- the store -------------------------------------------------------------------------------------------

    def _in_sync(self, place: PlaceOfId) -> list[int]:
        """The ISR in the store. Empty if the store has no state of the partition: then all replicas start in sync."""
        key = _key(place)
        revision = self._etcd.revision_of(key)
        if not revision:
            return []
        kept = self._states.get(place)
        if kept is None or kept[0] != revision:
            kept = self._states[place] = revision, _state(self._etcd.value_of(key))
        return kept[1].isr

    def _is_registered(self, registration: Registration) -> bool:
        return self._etcd.revision_of(_named(records.broker_key(registration.node_id))) == registration.epoch

    def _is_admitted(self, registration: Registration) -> bool:
        """Whether this registration is admitted. An earlier process of the broker cannot be elected."""
        admission = self._etcd.value_of(_named(f"{records.ADMISSIONS}{registration.node_id}"))
        is_it = bool(admission) and _admission(admission).epoch == registration.epoch
        return is_it and self._is_registered(registration)


def _is_here(partition: Partition) -> bool:
    return partition.is_open and not partition.is_retired


@lru_cache(maxsize=1_000)
def _key(place: PlaceOfId) -> bytes:
    return _named(records.partition_key(*place))


def _named(key: str) -> bytes:
    return f"{NAMESPACE}{key}".encode()
