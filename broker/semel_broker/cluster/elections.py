"""PURE: elections: the leader and the ISR that each partition should have, given the live brokers.

One rule, `settled`, computes them from the current state and not from events. So a crash, a restart and a clean
shutdown need no other rules, and a controller that missed events decides the same.

| leader | live members of the ISR | result |
|---|---|---|
| live | | stays; members that are not live leave the ISR |
| live, but leaving | one that is not leaving | that one leads; the leaving one follows until it has stopped |
| not live, or none | some | the first of them in the order of the replicas leads; the ISR is the live members |
| not live | none, one replica | no change: the replica leads again when its broker is back |
| not live | none | no leader; the ISR stays, so that any of its members may come back and lead |

A broker is live when it is registered *and* admitted. A new registration is not admitted at first, so its broker counts
as not live. It loses its leaderships and leaves the ISRs; then it is admitted. If no member of an ISR is live,
`_trusted` chooses the members that stay.

A broker that cannot use the files of a partition counts as not live for this partition. Its registration names such
partitions, and the key `offline/<id>` those that went offline after it.

A broker whose disk hangs, as that key says, counts as not live where another live member of the ISR has a disk that
does not. Otherwise nothing changes: it still serves the reads that need no disk, and no other replica has all records.

Each change of leader raises the leader epoch by one; a change of the ISR alone does not. The ISR is never empty. A
replica outside the ISR is elected only if an operator asks for it (`unclean`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster import records
from semel_broker.cluster.image import Image, PartitionView, Place
from semel_broker.cluster.records import NO_LEADER, PartitionState
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import Expect, Put


class BrokerStates(msgspec.Struct, frozen=True):
    """The registered brokers by state. `live`: may lead and be in sync; with the broker epoch. `leaving`: live, and
    about to stop. `may_lack_records`: not admitted, and a power cut may have lost records that it had acknowledged."""

    live: dict[int, int]
    leaving: dict[int, None]
    may_lack_records: dict[int, None]
    offline: Mapping[int, Mapping[str, Sequence[int]]] = {}
    """By registered broker: the partitions whose files it cannot use, by topic id."""
    hanging: Mapping[int, None] = {}
    """The registered brokers whose disks hang."""

    def can_use(self, node_id: int, view: PartitionView) -> bool:
        """Whether the broker can use the files of its replica, as far as it has said."""
        return view.index not in self.offline.get(node_id, {}).get(view.topic_id, ())

    def serves(self, node_id: int, view: PartitionView) -> bool:
        """Whether the broker is live, and may lead this partition or be in sync."""
        return node_id in self.live and self.can_use(node_id, view)

    def present(self, isr: Sequence[int], view: PartitionView) -> list[int]:
        """The members of the ISR that may stay in it: those whose disks hang only where all others hang, too."""
        serving = [node_id for node_id in isr if self.serves(node_id, view)]
        return [node_id for node_id in serving if node_id not in self.hanging] or serving

    @classmethod
    def of(cls, image: Image) -> BrokerStates:
        """The states in the image."""
        live: dict[int, int] = {}
        leaving: dict[int, None] = {}
        may_lack_records: dict[int, None] = {}
        offline: dict[int, Mapping[str, Sequence[int]]] = {}
        hanging: dict[int, None] = {}
        for stored in image.registered():
            node_id = stored.value.node_id
            if found := image.offline(node_id):
                offline[node_id] = found
            if image.hangs(node_id):
                hanging[node_id] = None
            if image.is_admitted(node_id):
                live[node_id] = stored.revision
                if image.is_leaving(node_id):
                    leaving[node_id] = None
            else:
                before = image.admission(node_id)
                if before is None or not before.is_synced:
                    may_lack_records[node_id] = None
        return cls(live, leaving, may_lack_records, offline, hanging)


def settled(view: PartitionView, brokers: BrokerStates) -> PartitionState:
    """The state that the partition should have now. Returns `view.state` itself if nothing changes."""
    state = view.state
    present = brokers.present(state.isr, view)
    if state.leader in present:
        leader = state.leader
        if leader in brokers.leaving:
            leader = _first(view, (node_id for node_id in present if node_id not in brokers.leaving), or_else=leader)
        return _changed(state, leader, present)
    if present:
        last_resort = _first(view, present, or_else=present[0])
        staying = (node_id for node_id in present if node_id not in brokers.leaving)
        return _changed(state, _first(view, staying, or_else=last_resort), present)
    if len(view.replicas) == 1:
        return state
    return _changed(state, NO_LEADER, _trusted(view, brokers))


def _trusted(view: PartitionView, brokers: BrokerStates) -> list[int]:
    """The ISR to keep while none of its members is live: the members that have lost no records. If all members may have
    lost records, the first one."""
    isr = view.state.isr
    trusted = [each for each in isr if each not in brokers.may_lack_records and brokers.can_use(each, view)]
    return trusted or isr[:1]


def _first(view: PartitionView, candidates: Iterable[int], *, or_else: int) -> int:
    """The first candidate in the order of the partition's replicas; `or_else` if no candidate is a replica."""
    among = dict.fromkeys(candidates)
    return next((node_id for node_id in view.replicas if node_id in among), or_else)


def _changed(state: PartitionState, leader: int, isr: list[int]) -> PartitionState:
    assert isr, "an ISR is never empty"
    if leader == state.leader:
        return state if isr == state.isr else replace(state, isr=isr)
    return PartitionState(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)


def election(view: PartitionView, state: PartitionState, brokers: BrokerStates, why: str) -> Step:
    """The step that writes `state` if the partition has not changed and the new leader is still registered."""
    expects = [Expect(view.key, view.revision)]
    what = "isr_shrunk"
    if state.leader != view.state.leader:
        what = "leader_lost" if state.leader == NO_LEADER else "leader_elected"
        if state.leader in brokers.live:
            expects.append(Expect(records.broker_key(state.leader), brokers.live[state.leader]))
    return Step(
        expects=tuple(expects),
        changes=(Put(view.key, msgspec.json.encode(state)),),
        places=(view.place,),
        what=what,
        facts={
            "topic": view.topic,
            "partition": view.index,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
            "was": view.state.leader,
            "why": why,
        },
    )


def unsettled(views: Iterable[PartitionView], brokers: BrokerStates) -> Iterator[Step]:
    """The steps that bring each of `views` to its `settled` state."""
    for view in views:
        state = settled(view, brokers)
        if state is not view.state:
            yield election(view, state, brokers, "live brokers changed")


def leave(image: Image, node_id: int) -> list[PartitionView]:
    """The partitions that `node_id` leads and another broker could lead. They need another leader before it stops."""
    brokers = BrokerStates.of(image)
    leaving = replace(brokers, leaving={**brokers.leaving, node_id: None})
    return [
        view
        for view in image.partitions()
        if view.state.leader == node_id and settled(view, leaving).leader not in (node_id, NO_LEADER)
    ]


def preferred(views: Iterable[PartitionView], brokers: BrokerStates) -> Iterator[Step]:
    """The steps that make the first replica of each partition its leader, if it may lead and another replica leads."""
    for view in views:
        first = view.replicas[0]
        if brokers.serves(view.state.leader, view) and view.state.leader != first and _may_lead(first, view, brokers):
            yield election(view, _changed(view.state, first, view.state.isr), brokers, "preferred leader")


def _may_lead(node_id: int, view: PartitionView, brokers: BrokerStates) -> bool:
    return node_id in brokers.present(view.state.isr, view) and node_id not in brokers.leaving


def elect(image: Image, place: Place, *, unclean: bool) -> Step:
    """The election that ElectLeaders requests (KIP-183, KIP-460). Preferred: elects the first replica. Unclean: elects
    any live replica; if it is not in the ISR, the records that it lacks are lost.

    Raises UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED (the partition has the requested leader),
    PREFERRED_LEADER_NOT_AVAILABLE (the first replica is not live or not in sync), ELIGIBLE_LEADERS_NOT_AVAILABLE (no
    replica is live).
    """
    view = image.partition(*place)
    if view is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {place[1]} of that topic")
    brokers, state = BrokerStates.of(image), view.state
    if state.leader in brokers.hanging and (clean := settled(view, brokers)).leader not in (state.leader, NO_LEADER):
        return election(view, clean, brokers, "asked for, the disk of the leader hangs")
    if unclean:
        return _elect_unclean(view, brokers)
    first = view.replicas[0]
    if state.leader == first and first in brokers.live:
        raise _not_needed(view, brokers)
    if not _may_lead(first, view, brokers):
        why = "is not in sync" if first in brokers.live else "is not live"
        if first in brokers.live and first in brokers.hanging:
            why = "has a disk that hangs"
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {first}, the preferred leader of {view.topic}-{view.index}, {why}; in sync: {state.isr}",
        )
    return election(view, _changed(state, first, brokers.present(state.isr, view)), brokers, "asked for")


def _not_needed(view: PartitionView, brokers: BrokerStates) -> KafkaError:
    leader = view.state.leader
    message = f"broker {leader} leads {view.topic}-{view.index} already"
    if leader in brokers.hanging:
        message += ". Its disk hangs, and no other replica is in sync: repair the disk, or wait until one is. If its "
        message += "records may be lost, stop the broker, then ask for an unclean election"
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, message)


def _elect_unclean(view: PartitionView, brokers: BrokerStates) -> Step:
    state = view.state
    if brokers.serves(state.leader, view):
        raise _not_needed(view, brokers)
    clean = settled(view, brokers)
    if brokers.serves(clean.leader, view):
        return election(view, clean, brokers, "asked for")
    usable = [node_id for node_id in brokers.live if brokers.can_use(node_id, view)]
    without_hang = [node_id for node_id in usable if node_id not in brokers.hanging and node_id in view.replicas]
    leader = _first(view, without_hang or usable, or_else=NO_LEADER)
    if leader == NO_LEADER:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {list(view.replicas)} of {view.topic}-{view.index} is live",
        )
    return election(view, PartitionState(leader, state.leader_epoch + 1, [leader]), brokers, "asked for, unclean")
