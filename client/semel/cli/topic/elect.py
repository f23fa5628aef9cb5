"""`semel topic elect`: elects the preferred replicas of partitions as leaders."""

from __future__ import annotations

from collections.abc import Container

import click

from semel import TopicPartition
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import run, say
from semel._texts import plural
from semel.diagnose import partitions_of
from semel.structs import PartitionMetadata

SHOWN = 50


@click.command()
@client_options()
@click.argument("names", nargs=-1, metavar="[TOPIC[:PARTITION]]...")
def elect(client: ClientSettings, names: tuple[str, ...]) -> None:
    """Elect the preferred replicas as leaders, for the given topics or partitions, or for all.

    The preferred replica of a partition is the first of its replicas. While its broker is offline, another replica is
    elected. That one leads until the controller's periodic election (leader.imbalance.check.interval.seconds) or this
    command. Exit status 1 if a preferred replica could not be elected.
    """

    async def work() -> tuple[list[str], list[str]]:
        async with client.admin() as admin:
            partitions = await partitions_of(admin, names)
            live = (await admin.describe_cluster()).brokers
            not_preferred = {at: p for at, p in partitions.items() if p.replicas and p.leader != p.replicas[0]}
            blocked = {at: _why_not_electable(partition, live) for at, partition in not_preferred.items()}
            elected = await admin.elect_leaders([at for at, why in blocked.items() if not why])
            done = [
                f"{_name(at)}: leader {_leader(not_preferred[at])} -> {not_preferred[at].replicas[0]}" for at in elected
            ]
            not_done = [
                f"{_name(at)}: leader stays {_leader(not_preferred[at])}: {why}" for at, why in blocked.items() if why
            ]
            as_it_was = plural(len(partitions) - len(not_preferred), "partition")
            return [*done, f"{plural(len(done), 'new leader')}; {as_it_was} had the preferred one."], not_done

    done, not_done = run(work())
    for lines in (done, not_done):
        for line in lines[-SHOWN:]:
            say(line)
        if len(lines) > SHOWN:
            say(f"and {len(lines) - SHOWN:,} more")
    if not_done:
        raise SystemExit(1)


def _why_not_electable(partition: PartitionMetadata, live: Container[int]) -> str:
    preferred = partition.replicas[0]
    if preferred not in live:
        return f"broker {preferred} is offline"
    return "" if preferred in partition.isr else f"broker {preferred} is not in sync yet"


def _leader(partition: PartitionMetadata) -> str:
    return "none" if partition.leader < 0 else str(partition.leader)


def _name(at: TopicPartition) -> str:
    return f"{at.topic}-{at.partition}"
