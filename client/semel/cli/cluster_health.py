"""PURE: what there is to say of brokers and partitions: which are led, replicated and writable, and the verdict."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from semel import TopicPartition
from semel.admin import ClusterDescription, PartitionReassignment
from semel.cli.times import plural
from semel.structs import BrokerMetadata, PartitionMetadata, TopicMetadata

NAMED = 3
"""So many partitions are named in a sentence."""


class State(Enum):
    """How a partition is, the worst first."""

    OFFLINE = "offline"
    """Nobody leads it: it can be neither read nor written."""
    READ_ONLY = "refuses acks=all"
    """Fewer replicas in sync than min.insync.replicas."""
    UNDER_REPLICATED = "under-replicated"
    """A replica is not in sync: one failure more than there may be otherwise."""
    OK = "ok"


class Verdict(Enum):
    OFFLINE = "offline"
    DEGRADED = "degraded"
    HEALTHY = "healthy"


class PartitionHealth(msgspec.Struct, frozen=True):
    """A partition with what it lacks: `missing` are its replicas that are not in sync."""

    at: TopicPartition
    state: State
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    missing: tuple[int, ...]


class BrokerHealth(msgspec.Struct, frozen=True):
    """How many partitions a broker leads, should lead, holds, and holds in sync. `metadata` None: it is away."""

    node_id: int
    metadata: BrokerMetadata | None
    leads: int
    preferred: int
    replicas: int
    in_sync: int


class Health(msgspec.Struct, frozen=True):
    """A whole cluster. `misled`: partitions whose preferred leader is in sync, but is not the one who leads."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerHealth, ...]
    partitions: tuple[PartitionHealth, ...]
    misled: tuple[TopicPartition, ...]
    moving: tuple[TopicPartition, ...]

    def of_state(self, state: State) -> list[PartitionHealth]:
        return [each for each in self.partitions if each.state is state]

    @property
    def away(self) -> list[int]:
        """Brokers that hold replicas, but are not there."""
        return [broker.node_id for broker in self.brokers if broker.metadata is None]

    @property
    def verdict(self) -> Verdict:
        states = [each.state for each in self.partitions]
        if State.OFFLINE in states or State.READ_ONLY in states:
            return Verdict.OFFLINE
        has_all = all(state is State.OK for state in states) and not self.away and self.controller_id >= 0
        return Verdict.HEALTHY if has_all else Verdict.DEGRADED


def state_of(
    partition: PartitionMetadata, live: Container[int], *, least_in_sync: int = 1, adding: Container[int] = ()
) -> State:
    """`live`: the brokers that are there; `adding`: replicas that a move has only just begun to copy."""
    if partition.leader not in live:
        return State.OFFLINE
    if len(partition.isr) < least_in_sync:
        return State.READ_ONLY
    complete = all(broker in partition.isr or broker in adding for broker in partition.replicas)
    return State.OK if complete else State.UNDER_REPLICATED


def health_of(
    cluster: ClusterDescription,
    topics: Sequence[TopicMetadata],
    moves: Mapping[TopicPartition, PartitionReassignment],
    least_in_sync: Mapping[str, int],
) -> Health:
    """`least_in_sync`: min.insync.replicas by topic, where it is known."""
    partitions, misled = [], []
    for topic in topics:
        for each in topic.partitions:
            at = TopicPartition(topic.name, each.partition)
            adding = moves[at].adding_replicas if at in moves else ()
            state = state_of(each, cluster.brokers, least_in_sync=least_in_sync.get(topic.name, 1), adding=adding)
            missing = tuple(broker for broker in each.replicas if broker not in each.isr or state is State.OFFLINE)
            partitions.append(PartitionHealth(at, state, each.leader, each.replicas, each.isr, missing))
            preferred = each.replicas[0] if each.replicas else each.leader
            if at not in moves and each.leader != preferred and preferred in each.isr and preferred in cluster.brokers:
                misled.append(at)
    return Health(
        cluster.cluster_id,
        cluster.controller_id,
        _brokers(cluster, partitions),
        tuple(partitions),
        tuple(misled),
        tuple(moves),
    )


def _brokers(cluster: ClusterDescription, partitions: Sequence[PartitionHealth]) -> tuple[BrokerHealth, ...]:
    named = [broker for each in partitions for broker in (*each.replicas, *each.isr)]
    return tuple(
        BrokerHealth(
            node_id,
            cluster.brokers.get(node_id),
            leads=sum(each.leader == node_id for each in partitions),
            preferred=sum(each.replicas[:1] == (node_id,) for each in partitions),
            replicas=sum(node_id in each.replicas for each in partitions),
            in_sync=sum(node_id in each.isr for each in partitions),
        )
        for node_id in sorted(dict.fromkeys([*cluster.brokers, *named]))
    )


def sentence(health: Health) -> str:
    """The verdict in a line, with what to do about it."""
    total = len(health.partitions)
    away = f"{_named(health.away)} {'is' if len(health.away) == 1 else 'are'} away" if health.away else ""
    if offline := health.of_state(State.OFFLINE):
        who = sorted(dict.fromkeys(broker for each in offline for broker in each.isr or each.replicas))
        return f"Offline: {_share(offline, total)} no leader ({_some(offline)}). Bring back {_named(who)}."
    if read_only := health.of_state(State.READ_ONLY):
        return (
            f"Offline: {_share(read_only, total)} fewer replicas in sync than min.insync.replicas and refuse writes "
            f"with acks=all ({_some(read_only)}): {away or 'wait until the others have caught up'}."
        )
    if under := health.of_state(State.UNDER_REPLICATED):
        return (
            f"Degraded: {_share(under, total)} replicas that are not in sync ({_some(under)}): "
            f"{away or 'they are catching up'}. All can be read and written."
        )
    if away or health.controller_id < 0:
        return f"Degraded: {away or 'there is no controller'}. {plural(total, 'partition')} can be read and written."
    here = plural(len(health.brokers), "broker")
    if not total:
        return f"Healthy: {here}, and no topic yet."
    return f"Healthy: {plural(total, 'partition')} on {here}, each with a leader and all its replicas in sync."


def as_json(health: Health) -> dict[str, Any]:
    """All of it, for machines."""
    return {
        "cluster_id": health.cluster_id,
        "verdict": health.verdict.value,
        "text": sentence(health),
        "controller": health.controller_id,
        "brokers": [
            {
                "id": each.node_id,
                "address": None if each.metadata is None else f"{each.metadata.host}:{each.metadata.port}",
                "rack": None if each.metadata is None else each.metadata.rack,
                "leads": each.leads,
                "preferred": each.preferred,
                "replicas": each.replicas,
                "in_sync": each.in_sync,
            }
            for each in health.brokers
        ],
        "partitions": len(health.partitions),
        "troubled": [
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "state": each.state.value,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "in_sync": list(each.isr),
            }
            for each in health.partitions
            if each.state is not State.OK
        ],
        "not_led_by_preferred": [f"{at.topic}-{at.partition}" for at in health.misled],
        "moving": [f"{at.topic}-{at.partition}" for at in health.moving],
    }


def _named(ids: Sequence[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"


def _share(found: Sequence[PartitionHealth], total: int) -> str:
    return f"{len(found):,} of {plural(total, 'partition')} {'has' if len(found) == 1 else 'have'}"


def _some(found: Sequence[PartitionHealth]) -> str:
    named = ", ".join(f"{each.at.topic}-{each.at.partition}" for each in found[:NAMED])
    return named if len(found) <= NAMED else f"{named} and {len(found) - NAMED:,} more"
