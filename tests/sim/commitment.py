"""Looks, while a run goes on, whether what counts as committed is where it has to be.

At the end all replicas have everything again, and most of what was in danger meanwhile was lucky. Here one looks at all
brokers at once, as none of them can: at any moment whoever may be elected has what was ever committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from semel_broker.cluster import records
from semel_broker.cluster.image import Image
from semel_broker.cluster.records import Admission, PartitionState
from semel_broker.cluster.registration import Registration
from semel_broker.partitions.partition import Partition

from sim.broker import SimBroker
from sim.store import NAMESPACE, SimStore

EVERY_NS = 10_000_000

_state = msgspec.json.Decoder(PartitionState).decode
_admission = msgspec.json.Decoder(Admission).decode

PlaceOfId = tuple[str, int]


class Led(msgspec.Struct, frozen=True):
    """What a leader went by when it was last looked at. `revision`: of the state that it had heard of."""

    isr: tuple[int, ...]
    revision: int
    high_watermark: int


class Commitment:
    """`found`: what was wrong, each place once. `brokers` by their hosts' names."""

    def __init__(self, brokers: Mapping[str, SimBroker], store: SimStore) -> None:
        self.found: dict[PlaceOfId, str] = {}
        self._brokers, self._etcd = brokers, store.etcd
        self._committed: dict[PlaceOfId, int] = {}
        self._led: dict[tuple[int, PlaceOfId], Led] = {}
        self._states: dict[PlaceOfId, tuple[int, PartitionState]] = {}
        self._next_ns = 0

    @property
    def watched(self) -> int:
        """In how many partitions something is committed."""
        return sum(offset > 0 for offset in self._committed.values())

    def look(self, now_ns: int) -> None:
        """Look again, if the last time was a while ago."""
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + EVERY_NS
        here = dict(self._here())
        for node_id, (registration, partitions, image) in here.items():
            if registration.is_valid() and not self._is_registered(registration):
                self.found.setdefault(
                    ("", node_id), f"broker {node_id} believes in registration {registration.epoch}, which is over"
                )
            for place, partition in partitions.items():
                if partition.is_leading and partition.replicas is not None and partition.is_open:
                    self._commits(node_id, place, partition, image)
        for place, offset in self._committed.items():
            for node_id in self._in_sync(place):
                if node_id not in here:
                    continue
                registration, partitions, _ = here[node_id]
                replica = partitions.get(place)
                if replica is None or not replica.is_open:
                    continue
                if replica.durable_end < offset and self._is_admitted(registration):
                    self.found.setdefault(
                        place,
                        f"{replica.topic}-{replica.index}: committed up to {offset}, broker {node_id} is in sync "
                        f"and has {replica.durable_end}",
                    )

    def _here(self) -> Iterator[tuple[int, tuple[Registration, dict[PlaceOfId, Partition], Image]]]:
        """What runs, by broker."""
        for broker in self._brokers.values():
            if broker.node is None or not broker.host.is_running:
                continue
            partitions = {
                (each.topic_id, each.index): each for each in broker.node.broker.topics.here() if not each.is_retired
            }
            lease = next((each._lease for each in partitions.values()), None)
            if isinstance(lease, Registration):
                yield lease.node_id, (lease, partitions, broker.node.broker.feed.image)

    def _commits(self, node_id: int, place: PlaceOfId, partition: Partition, image: Image) -> None:
        """A leader has moved the high watermark, or not."""
        replicas, offset = partition.replicas, partition.high_watermark
        assert replicas is not None
        view = image.partition(*place)
        led = Led(replicas.isr, view.revision if view is not None else 0, offset)
        before = self._led.get((node_id, place))
        self._led[node_id, place] = led
        if offset > self._committed.get(place, -1):
            self._committed[place] = offset
        if before is None or offset <= before.high_watermark:
            return
        least = min(partition.log.config.min_insync_replicas, 1 + len(replicas.followers))
        if len(led.isr) < least and (before.isr, before.revision) == (led.isr, led.revision):
            self.found.setdefault(
                place,
                f"{partition.topic}-{partition.index}: committed from {before.high_watermark} to {offset} with "
                f"{list(led.isr)} in sync, and it takes {least}",
            )

    # --- what the store says ---------------------------------------------------------------------------------

    def _in_sync(self, place: PlaceOfId) -> list[int]:
        """Nobody, for a partition that the store has no state of: all are in sync there from the start."""
        revision = self._etcd.revision_of(_key(place))
        if not revision:
            return []
        kept = self._states.get(place)
        if kept is None or kept[0] != revision:
            kept = self._states[place] = revision, _state(self._etcd.value_of(_key(place)))
        return kept[1].isr

    def _is_registered(self, registration: Registration) -> bool:
        return self._etcd.revision_of(_named(records.broker_key(registration.node_id))) == registration.epoch

    def _is_admitted(self, registration: Registration) -> bool:
        """As what runs there now; what it was before is nothing that could be elected."""
        admission = self._etcd.value_of(_named(f"{records.ADMISSIONS}{registration.node_id}"))
        is_it = bool(admission) and _admission(admission).epoch == registration.epoch
        return is_it and self._is_registered(registration)


def _key(place: PlaceOfId) -> bytes:
    return _named(records.partition_key(*place))


def _named(key: str) -> bytes:
    return f"{NAMESPACE}{key}".encode()
