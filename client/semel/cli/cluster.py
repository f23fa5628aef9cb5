"""`semel cluster`: shows the brokers, their partitions, and the partitions with problems."""

from __future__ import annotations

import click
from semel_protocol.tables import Table

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import FOUND_TROUBLE, json_option, run, say_json, show, tell
from semel._texts import plural
from semel.diagnose import Health, HealthVerdict, PartitionStatus, cluster_health, health_facts, health_sentence

SHOWN = 20


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
        say_json(health_facts(health))
    else:
        _show(health)
    if health.verdict is not HealthVerdict.HEALTHY:
        raise SystemExit(FOUND_TROUBLE)


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
    tell(health_sentence(health))


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
