"""`semel cluster`: shows the brokers, their partitions, and the partitions with problems."""

from __future__ import annotations

from collections.abc import Sequence

import click
from semel_protocol.tables import Table

from semel import Admin
from semel.admin import ConfigResource, ConfigResourceType
from semel.cli.cluster.health import Health, HealthVerdict, PartitionStatus, facts_of, health_of, sentence
from semel.cli.shared.client_settings import ClientSettings, client_options
from semel.cli.shared.common import FOUND_TROUBLE, json_option, run, say_json, show, tell
from semel.cli.shared.moves import moves_of
from semel.cli.shared.times import plural
from semel.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from semel.structs import TopicMetadata

SHOWN = 20
CHECK_TIMEOUT_MS = 2_000
LEAST_IN_SYNC = "min.insync.replicas"


@click.command()
@client_options()
@json_option
def cluster(client: ClientSettings, as_json: bool) -> None:
    """Show the brokers of the cluster, their partitions, and the partitions with problems.

    Sends a request to each broker, to check that it answers. The last line is the verdict on the cluster. JSON has all
    partitions that have problems.

    Exit status 0: healthy. 3: degraded (a replica or a broker is missing) or offline (a partition has no leader that
    answers, or too few replicas in sync for writes with acks=all, or no broker can reach the cluster's store). 1: the
    command failed, for example because no broker answers.
    """

    async def work() -> Health:
        async with client.admin(tolerant=True) as admin:
            return await cluster_health(admin)

    health = run(work())
    if as_json:
        say_json(facts_of(health))
    else:
        _show(health)
    if health.verdict is not HealthVerdict.HEALTHY:
        raise SystemExit(FOUND_TROUBLE)


async def cluster_health(admin: Admin) -> Health:
    """The health of the cluster now."""
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


def _show(health: Health) -> None:
    show(*health_tables(health))
    troubled = sum(each.state is not PartitionStatus.OK for each in health.partitions)
    if troubled > SHOWN:
        tell(f"and {troubled - SHOWN:,} more: --json has them all")
    tell("")
    if health.moving:
        tell(f"{plural(len(health.moving), 'partition')} on the move: `semel topic reassign --watch` follows.")
    if health.not_preferred:
        count = plural(len(health.not_preferred), "partition")
        tell(f"{count} not led by the preferred broker: `semel topic elect` changes that.")
    tell(sentence(health))


def health_tables(health: Health) -> list[Table]:
    """PURE. The brokers, and the partitions with problems if there are any."""
    numbers = ("leads", "pref", "replicas", "in sync")
    brokers = Table(
        f"Cluster {health.cluster_id or ''}",
        *("broker", "role", *numbers, "rack", "address"),
        right=numbers,
        below=("address", "rack"),
    )
    for broker in health.brokers:
        here = broker.metadata
        brokers.add_row(
            str(broker.node_id),
            "controller" if broker.node_id == health.controller_id else None,
            *(broker.leads, broker.preferred, broker.replicas, broker.in_sync),
            None if here is None else here.rack,
            "offline" if here is None else f"{here.host}:{here.port}{'' if broker.answers else ' (no answer)'}",
        )
    troubled = [each for state in PartitionStatus if state is not PartitionStatus.OK for each in health.of_state(state)]
    if not troubled:
        return [brokers]
    rows = Table(
        "Partitions with problems",
        *("partition", "leader", "replicas", "in sync", "missing", "state"),
        right=("leader",),
        below=("state", "missing", "in sync", "replicas"),
    )
    for each in troubled[:SHOWN]:
        rows.add_row(
            f"{each.at.topic}-{each.at.partition}",
            "none" if each.state is PartitionStatus.OFFLINE else str(each.leader),
            *(",".join(map(str, ids)) for ids in (each.replicas, each.isr, each.missing)),
            each.state.value,
        )
    return [brokers, rows]
