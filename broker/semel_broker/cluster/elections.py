"""PURE: elections: the leader and the ISR that each partition should have, given the live brokers.

One rule, `settled`, computes them from the current state and not from events. So a crash, a restart and a clean
shutdown need no rules of their own, and a controller that missed events decides the same.

| leader | live members of the ISR | result |
|---|---|---|
| live | | stays; members that are not live leave the ISR |
| live, but leaving | one that is not leaving | that one leads; the leaving one follows until it has stopped |
| not live, or none | some | the first of them in the order of the replicas leads; the ISR is the live members |
| not live | none, one replica | no change: the replica leads again when its broker is back |
| not live | none | no leader; the ISR stays, so that any of its members may come back and lead |

A broker is live when it is registered *and* admitted. A new registration is not admitted at first, so its broker is
treated as dead. It loses its leaderships and its places in the ISR, and is admitted then. `lacking` says what that
means if no other member of an ISR is alive.

Each change of leader raises the leader epoch by one; a change of the ISR alone does not. The ISR is never empty. A
replica outside the ISR is elected only if an operator asks for it (`unclean`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster import records
from semel_broker.cluster.image import Image, PartitionView, Place
from semel_broker.cluster.records import NO_LEADER, PartitionState
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import Expect, Put


class Standing(msgspec.Struct, frozen=True):
    """The state of each broker by its registration. `live`: may lead and be in sync, with its broker epoch. `leaving`:
    live, and about to stop. `lacking`: registered again, not admitted, and perhaps without records that it once had."""

    live: dict[int, int]
    leaving: dict[int, None]
    lacking: dict[int, None]

    @classmethod
    def of(cls, image: Image) -> Standing:
        """The states that the image shows."""
        live: dict[int, int] = {}
        leaving: dict[int, None] = {}
        lacking: dict[int, None] = {}
        for kept in image.registered():
            node_id = kept.value.node_id
            if image.is_admitted(node_id):
                live[node_id] = kept.revision
                if image.is_leaving(node_id):
                    leaving[node_id] = None
            else:
                before = image.admission(node_id)
                if before is None or not before.is_synced:
                    lacking[node_id] = None
        return cls(live, leaving, lacking)


def settled(view: PartitionView, standing: Standing) -> PartitionState:
    """The state that the partition should have now. If it has that state, `view.state` itself."""
    state = view.state
    present = [node_id for node_id in state.isr if node_id in standing.live]
    if state.leader in standing.live and state.leader in present:
        leader = state.leader
        if leader in standing.leaving:
            leader = _first(view, (node_id for node_id in present if node_id not in standing.leaving), or_else=leader)
        return _changed(state, leader, present)
    if present:
        last_resort = _first(view, present, or_else=present[0])
        staying = (node_id for node_id in present if node_id not in standing.leaving)
        return _changed(state, _first(view, staying, or_else=last_resort), present)
    if len(view.replicas) == 1:
        return state
    return _changed(state, NO_LEADER, _trusted(state.isr, standing))


def _trusted(isr: list[int], standing: Standing) -> list[int]:
    """The ISR to keep while no member of it is live: those that have lost no records. If all may have lost some, the
    first."""
    trusted = [node_id for node_id in isr if node_id not in standing.lacking]
    return trusted or isr[:1]


def _first(view: PartitionView, candidates: Iterable[int], *, or_else: int) -> int:
    """The first of the candidates in the order of the partition's replicas."""
    among = dict.fromkeys(candidates)
    return next((node_id for node_id in view.replicas if node_id in among), or_else)


def _changed(state: PartitionState, leader: int, isr: list[int]) -> PartitionState:
    assert isr, "an ISR is never empty"
    if leader == state.leader:
        return state if isr == state.isr else replace(state, isr=isr)
    return PartitionState(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)


def election(view: PartitionView, state: PartitionState, standing: Standing, why: str) -> Step:
    """The step that writes `state`, if the partition has not changed and the new leader is still registered."""
    expects = [Expect(view.key, view.revision)]
    what = "isr_shrunk"
    if state.leader != view.state.leader:
        what = "leader_lost" if state.leader == NO_LEADER else "leader_elected"
        if state.leader in standing.live:
            expects.append(Expect(records.broker_key(state.leader), standing.live[state.leader]))
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


def unsettled(views: Iterable[PartitionView], standing: Standing) -> Iterator[Step]:
    """The steps after which all of `views` are settled."""
    for view in views:
        state = settled(view, standing)
        if state is not view.state:
            yield election(view, state, standing, "live brokers changed")


def leave(image: Image, node_id: int) -> list[PartitionView]:
    """The partitions that `node_id` leads and another broker could lead: they move before the broker stops."""
    standing = Standing.of(image)
    leaving = replace(standing, leaving={**standing.leaving, node_id: None})
    return [
        view
        for view in image.partitions()
        if view.state.leader == node_id and settled(view, leaving).leader not in (node_id, NO_LEADER)
    ]


def preferred(views: Iterable[PartitionView], standing: Standing) -> Iterator[Step]:
    """The steps that elect the first replica of each partition, where it may lead and another live one does."""
    for view in views:
        first = view.replicas[0]
        if view.state.leader in standing.live and view.state.leader != first and _may_lead(first, view, standing):
            yield election(view, _changed(view.state, first, view.state.isr), standing, "preferred leader")


def _may_lead(node_id: int, view: PartitionView, standing: Standing) -> bool:
    return node_id in view.state.isr and node_id in standing.live and node_id not in standing.leaving


def elect(image: Image, place: Place, *, unclean: bool) -> Step:
    """The election that ElectLeaders requests (KIP-183, KIP-460). Preferred: of the first replica. Unclean: of any live
    replica; the records that it lacks are lost if it is not in the ISR.

    Raises UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED (the partition has such a leader),
    PREFERRED_LEADER_NOT_AVAILABLE (the first replica is not live or not in sync), ELIGIBLE_LEADERS_NOT_AVAILABLE (no
    replica is live).
    """
    view = image.partition(*place)
    if view is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {place[1]} of that topic")
    standing, state = Standing.of(image), view.state
    if unclean:
        return _elect_unclean(view, standing)
    first = view.replicas[0]
    if state.leader == first and first in standing.live:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {first} leads {view.topic}-{view.index} already")
    if not _may_lead(first, view, standing):
        why = "is not in sync" if first in standing.live else "is not live"
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {first}, the preferred leader of {view.topic}-{view.index}, {why}; in sync: {state.isr}",
        )
    present = [node_id for node_id in state.isr if node_id in standing.live]
    return election(view, _changed(state, first, present), standing, "asked for")


def _elect_unclean(view: PartitionView, standing: Standing) -> Step:
    state = view.state
    if state.leader in standing.live:
        raise KafkaError(
            ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads {view.topic}-{view.index} already"
        )
    clean = settled(view, standing)
    if clean.leader in standing.live:
        return election(view, clean, standing, "asked for")
    leader = _first(view, standing.live, or_else=NO_LEADER)
    if leader == NO_LEADER:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {list(view.replicas)} of {view.topic}-{view.index} is live",
        )
    return election(view, PartitionState(leader, state.leader_epoch + 1, [leader]), standing, "asked for, unclean")
