"""The health of a cluster: its brokers and partitions, and the verdict on it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from semel._texts import names_of, plural
from semel.admin import (
    Admin,
    BrokerStatus,
    ClusterDescription,
    ConfigResource,
    ConfigResourceType,
    PartitionReassignment,
)
from semel.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from semel.structs import BrokerMetadata, PartitionMetadata, TopicMetadata, TopicPartition

CHECK_TIMEOUT_MS = 2_000
LEAST_IN_SYNC = "min.insync.replicas"
NAMED = 3
"""The number of partitions that a sentence names."""


class PartitionStatus(Enum):
    """The state of a partition, the worst first."""

    OFFLINE = "offline"
    """It has no leader: it can be neither read nor written."""
    SILENT = "leader does not answer"
    """Its leader does not answer, and no other leader is elected yet."""
    HANGING = "leader's disk hangs"
    """The disk of its leader hangs: it refuses writes, and no other replica leads yet."""
    READ_ONLY = "refuses acks=all"
    """Fewer replicas are in sync than min.insync.replicas."""
    UNDER_REPLICATED = "under-replicated"
    """A replica is not in sync: fewer failures are tolerated."""
    OK = "ok"


class HealthVerdict(Enum):
    OFFLINE = "offline"
    DEGRADED = "degraded"
    HEALTHY = "healthy"


class PartitionHealth(msgspec.Struct, frozen=True):
    """The state of a partition. missing: its replicas that are not in sync."""

    at: TopicPartition
    state: PartitionStatus
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    missing: tuple[int, ...]


class BrokerHealth(msgspec.Struct, frozen=True):
    """The number of partitions that a broker leads, should lead, holds, and holds in sync. metadata: None when it is
    offline.

    status: the result of `Admin.check_brokers`; None when it was not checked.
    """

    node_id: int
    metadata: BrokerMetadata | None
    leads: int
    preferred: int
    replicas: int
    in_sync: int
    status: BrokerStatus | None = None

    @property
    def answers(self) -> bool:
        """False when the broker is registered but does not answer this client."""
        return self.status is None or self.status.answers


class Health(msgspec.Struct, frozen=True):
    """The health of a cluster. not_preferred: partitions whose preferred replica is in sync but does not lead."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerHealth, ...]
    partitions: tuple[PartitionHealth, ...]
    not_preferred: tuple[TopicPartition, ...]
    moving: tuple[TopicPartition, ...]

    def of_state(self, state: PartitionStatus) -> list[PartitionHealth]:
        return [each for each in self.partitions if each.state is state]

    @property
    def away(self) -> list[int]:
        """Offline brokers that hold replicas."""
        return [broker.node_id for broker in self.brokers if broker.metadata is None]

    @property
    def silent(self) -> list[int]:
        """Registered brokers that do not answer this client."""
        return [broker.node_id for broker in self.brokers if not broker.answers]

    @property
    def without_store(self) -> list[int]:
        """Brokers that answer but cannot reach the cluster's store."""
        found = [(broker.node_id, broker.status) for broker in self.brokers]
        return [node_id for node_id, status in found if status is not None and status.is_store_unreachable]

    @property
    def hanging(self) -> list[tuple[int, BrokerStatus]]:
        """Brokers whose disks hang."""
        found = [(broker.node_id, broker.status) for broker in self.brokers]
        return [
            (node_id, status) for node_id, status in found if status is not None and status.disk_hangs_ms is not None
        ]

    @property
    def is_store_away(self) -> bool:
        """Whether no answering broker can reach the store, so that the store itself is unreachable."""
        answering = [broker.node_id for broker in self.brokers if broker.status is not None and broker.status.answers]
        return bool(answering) and answering == self.without_store

    @property
    def verdict(self) -> HealthVerdict:
        states = [each.state for each in self.partitions]
        refusing = (PartitionStatus.OFFLINE, PartitionStatus.SILENT, PartitionStatus.HANGING, PartitionStatus.READ_ONLY)
        if any(state in states for state in refusing) or self.is_store_away:
            return HealthVerdict.OFFLINE
        has_all = all(state is PartitionStatus.OK for state in states) and not self.away and self.controller_id >= 0
        has_all = has_all and not self.silent and not self.without_store and not self.hanging
        return HealthVerdict.HEALTHY if has_all else HealthVerdict.DEGRADED


async def cluster_health(admin: Admin) -> Health:
    """The health of the cluster now. A broker that does not answer within 2 s counts as silent.

    Raises KafkaConnectionError or KafkaTimeoutError when no broker answers.
    """
    health = await _cluster_health_once(admin)
    # Brokers and partitions are two requests. A broker may start or stop between them, so ask again.
    return await _cluster_health_once(admin) if health.verdict is HealthVerdict.OFFLINE else health


async def _cluster_health_once(admin: Admin) -> Health:
    topics = await admin.describe_topics()
    cluster = await admin.describe_cluster()
    statuses = await admin.check_brokers(cluster.brokers, CHECK_TIMEOUT_MS)
    if not any(status.answers and not status.is_store_unreachable for status in statuses.values()):
        return health_of(cluster, topics, {}, {}, statuses)  # further requests would wait for the controller
    return health_of(cluster, topics, await moves_of(admin, cluster), await _least_in_sync(admin, topics), statuses)


async def _least_in_sync(admin: Admin, topics: Sequence[TopicMetadata]) -> dict[str, int]:
    """min.insync.replicas of the topics with a replica out of sync; for others it makes no difference."""
    doubtful = [each.name for each in topics if any(len(p.isr) < len(p.replicas) for p in each.partitions)]
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, [LEAST_IN_SYNC]) for name in doubtful]
    try:
        described = await admin.describe_configs(resources) if resources else []
    except UnknownTopicOrPartitionError:
        return {}  # a topic was deleted between the two requests
    except TopicAuthorizationFailedError:
        return {}  # it needs DESCRIBE_CONFIGS
    values = {each.name: each.configs[LEAST_IN_SYNC].value for each in described if LEAST_IN_SYNC in each.configs}
    return {name: int(value) for name, value in values.items() if value is not None}


async def moves_of(
    admin: Admin, cluster: ClusterDescription, *, must_know: bool = False
) -> dict[TopicPartition, PartitionReassignment]:
    """All reassignments in progress; none when the brokers do not serve the request or there is no controller. Unless
    `must_know` also none when the principal may not see them, or when there is no answer within 2 s: a controller that
    cannot reach the cluster's store has none.

    Raises ClusterAuthorizationFailedError, KafkaConnectionError, KafkaTimeoutError.
    """
    if cluster.controller_id not in cluster.brokers:
        return {}
    try:
        return await admin.list_partition_reassignments(timeout_ms=None if must_know else CHECK_TIMEOUT_MS)
    except UnsupportedVersionError:
        return {}
    except (ClusterAuthorizationFailedError, KafkaConnectionError, KafkaTimeoutError):
        if must_know:
            raise
        return {}


def state_of(
    partition: PartitionMetadata, live: Container[int], *, least_in_sync: int = 1, adding: Container[int] = ()
) -> PartitionStatus:
    """PURE. The state of a partition. live: the registered brokers. adding: replicas that a reassignment has begun to
    copy.
    """
    if partition.leader not in live:
        return PartitionStatus.OFFLINE
    if len(partition.isr) < least_in_sync:
        return PartitionStatus.READ_ONLY
    complete = all(broker in partition.isr or broker in adding for broker in partition.replicas)
    return PartitionStatus.OK if complete else PartitionStatus.UNDER_REPLICATED


def health_of(
    cluster: ClusterDescription,
    topics: Sequence[TopicMetadata],
    moves: Mapping[TopicPartition, PartitionReassignment],
    least_in_sync: Mapping[str, int],
    statuses: Mapping[int, BrokerStatus] | None = None,
) -> Health:
    """PURE. The health of a cluster. least_in_sync: min.insync.replicas by topic, where known. statuses: see
    `Admin.check_brokers`.
    """
    statuses = statuses or {}
    silent = [node_id for node_id, status in statuses.items() if not status.answers]
    hanging = [node_id for node_id, status in statuses.items() if status.disk_hangs_ms is not None]
    partitions, not_preferred = [], []
    for topic in topics:
        for each in topic.partitions:
            at = TopicPartition(topic.name, each.partition)
            adding = moves[at].adding_replicas if at in moves else ()
            state = state_of(each, cluster.brokers, least_in_sync=least_in_sync.get(topic.name, 1), adding=adding)
            if each.leader in silent and state is not PartitionStatus.OFFLINE:
                state = PartitionStatus.SILENT
            elif each.leader in hanging and state is not PartitionStatus.OFFLINE:
                state = PartitionStatus.HANGING
            missing = tuple(
                broker for broker in each.replicas if broker not in each.isr or state is PartitionStatus.OFFLINE
            )
            partitions.append(PartitionHealth(at, state, each.leader, each.replicas, each.isr, missing))
            preferred = each.replicas[0] if each.replicas else each.leader
            if at not in moves and each.leader != preferred and preferred in each.isr and preferred in cluster.brokers:
                not_preferred.append(at)
    return Health(
        cluster.cluster_id,
        cluster.controller_id,
        _brokers(cluster, partitions, statuses),
        tuple(partitions),
        tuple(not_preferred),
        tuple(moves),
    )


def _brokers(
    cluster: ClusterDescription, partitions: Sequence[PartitionHealth], statuses: Mapping[int, BrokerStatus]
) -> tuple[BrokerHealth, ...]:
    named = [broker for each in partitions for broker in (*each.replicas, *each.isr)]
    return tuple(
        BrokerHealth(
            node_id,
            cluster.brokers.get(node_id),
            leads=sum(each.leader == node_id for each in partitions),
            preferred=sum(each.replicas[:1] == (node_id,) for each in partitions),
            replicas=sum(node_id in each.replicas for each in partitions),
            in_sync=sum(node_id in each.isr for each in partitions),
            status=statuses.get(node_id),
        )
        for node_id in sorted(dict.fromkeys([*cluster.brokers, *named]))
    )


def health_sentence(health: Health) -> str:
    """PURE. The verdict in one line, with the next action."""
    total = len(health.partitions)
    away = _troubles(health)
    if health.is_store_away:
        return _without_store(health)
    if offline := health.of_state(PartitionStatus.OFFLINE):
        return f"Offline: {_share(offline, total)} no leader ({_some(offline)}). {_without_leader(health, offline)}"
    if silent := health.of_state(PartitionStatus.SILENT):
        return (
            f"Offline: {_share(silent, total)} a leader that does not answer ({_some(silent)}): "
            f"{_named(health.silent)}. If it is down, other replicas lead when its session has expired; if it runs, "
            "its advertised address cannot be reached from here."
        )
    if hanging := health.of_state(PartitionStatus.HANGING):
        return (
            f"Offline: {_share(hanging, total)} a leader whose disk hangs, and which refuses writes "
            f"({_some(hanging)}): {away}. Repair the disk. Other replicas lead within seconds where one is in sync."
        )
    if read_only := health.of_state(PartitionStatus.READ_ONLY):
        return (
            f"Offline: {_share(read_only, total)} fewer replicas in sync than min.insync.replicas and refuse writes "
            f"with acks=all ({_some(read_only)}): {away or 'wait until the others are in sync'}."
        )
    if under := health.of_state(PartitionStatus.UNDER_REPLICATED):
        return (
            f"Degraded: {_share(under, total)} replicas that are not in sync ({_some(under)}): "
            f"{away or 'they are catching up'}. All partitions can be read and written."
        )
    if away or health.controller_id < 0:
        return f"Degraded: {away or 'there is no controller'}. {plural(total, 'partition')} can be read and written."
    here = plural(len(health.brokers), "broker")
    if not total:
        return f"Healthy: {here}, and no topic yet."
    return f"Healthy: {plural(total, 'partition')} on {here}, each with a leader and all its replicas in sync."


def _troubles(health: Health) -> str:
    """The problems of brokers, as clauses."""
    hanging = [_hanging(node_id, status) for node_id, status in health.hanging]
    found = (
        (health.away, "is offline", "are offline"),
        (health.silent, "does not answer", "do not answer"),
        (health.without_store, "cannot reach the store (etcd)", "cannot reach the store (etcd)"),
    )
    others = [f"{_named(ids)} {one if len(ids) == 1 else many}" for ids, one, many in found if ids]
    return ", ".join([*others, *hanging])


def _hanging(node_id: int, status: BrokerStatus) -> str:
    where = f" ({status.disk_path})" if status.disk_path else ""
    return f"the disk of broker {node_id}{where} hangs for {(status.disk_hangs_ms or 0) / 1000:.0f} s"


def _without_leader(health: Health, offline: Sequence[PartitionHealth]) -> str:
    """The action for partitions without a leader. One with an in-sync replica on an answering broker gets its leader
    when that broker has registered again.
    """
    answering = [b.node_id for b in health.brokers if b.status is not None and b.status.answers]
    lost = [each for each in offline if not any(broker in answering for broker in each.isr or each.replicas)]
    brokers = sorted(dict.fromkeys(broker for each in lost or offline for broker in each.isr or each.replicas))
    if lost:
        return f"Start {_named(brokers)}."
    ready = [broker for broker in brokers if broker in answering]
    verb = "answers" if len(ready) == 1 else "answer"
    return f"{_named(ready).capitalize()} {verb} and can lead: check again in a few seconds."


def _without_store(health: Health) -> str:
    """The sentence when no answering broker can reach the store: the store must be started, not the brokers."""
    ids = health.without_store
    answer = f"{_named(ids)} {'answers' if len(ids) == 1 else 'answer'}, but cannot reach the cluster's store (etcd)"
    left_ms = [
        b.status.session_left_ms or 0 for b in health.brokers if b.status is not None and b.status.is_store_unreachable
    ]
    if any(left_ms):
        then = f"their sessions expire in {max(left_ms) / 1000:.0f} s, and then no broker may lead"
    else:
        then = "without it no broker may lead: nothing can be read or written"
    return f"Offline: {answer}; {then}. Start etcd; the brokers recover by themselves."


def health_facts(health: Health) -> dict[str, Any]:
    """PURE. The health as plain types, as `semel cluster --json` prints it."""
    return {
        "cluster_id": health.cluster_id,
        "verdict": health.verdict.value,
        "text": health_sentence(health),
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
                "answers": each.metadata is not None and each.answers,
                "error": None if each.status is None or each.status.answers else each.status.error,
                "reaches_store": _reaches_store(each.status),
                "disk_hangs_ms": None if each.status is None else each.status.disk_hangs_ms,
                "disk_path": None if each.status is None else each.status.disk_path or None,
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
            if each.state is not PartitionStatus.OK
        ],
        "not_led_by_preferred": names_of(health.not_preferred),
        "moving": names_of(health.moving),
    }


def _reaches_store(status: BrokerStatus | None) -> bool | None:
    """None when the broker does not send its session."""
    return None if status is None or status.session_left_ms is None else not status.is_store_unreachable


def _named(ids: Sequence[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"


def _share(found: Sequence[PartitionHealth], total: int) -> str:
    return f"{len(found):,} of {plural(total, 'partition')} {'has' if len(found) == 1 else 'have'}"


def _some(found: Sequence[PartitionHealth]) -> str:
    named = ", ".join(names_of(each.at for each in found[:NAMED]))
    return named if len(found) <= NAMED else f"{named} and {len(found) - NAMED:,} more"
