"""Reassignments in progress: which there are, and waiting until they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from semel import Admin, TopicPartition
from semel.admin import ClusterDescription, PartitionReassignment
from semel.cli.shared.common import failure, say
from semel.cli.shared.partition_names import partitions_of
from semel.cli.shared.times import plural
from semel.errors import ClusterAuthorizationFailedError, UnsupportedVersionError

POLL_SECONDS = 0.5
TRIES = 6
MOVED = "partitions moved"
Replicas = Mapping[TopicPartition, tuple[int, ...]]


async def moves_of(
    admin: Admin, cluster: ClusterDescription, *, must_know: bool = False
) -> dict[TopicPartition, PartitionReassignment]:
    """All reassignments in progress; none when the brokers do not serve the request or there is no controller, and when
    the principal may not see them, unless `must_know`.

    Raises ClusterAuthorizationFailedError.
    """
    if cluster.controller_id not in cluster.brokers:
        return {}
    try:
        return await admin.list_partition_reassignments()
    except UnsupportedVersionError:
        return {}
    except ClusterAuthorizationFailedError:
        if must_know:
            raise
        return {}


async def watch(admin: Admin, targets: Replicas) -> None:
    """Show a progress bar until none of these reassignments is in progress. Interrupting it stops none of them."""
    out = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal, transient=True) as progress:
        bar = progress.add_task(MOVED, total=len(targets))
        while left := await admin.list_partition_reassignments(targets):
            progress.update(bar, completed=len(targets) - len(left), description=await _waiting_for(admin, left))
            await asyncio.sleep(POLL_SECONDS)
    elsewhere = await _not_there(admin, targets)
    say(f"{plural(len(targets) - len(elsewhere), 'partition')} moved")
    if elsewhere:
        names = ", ".join(f"{at.topic}-{at.partition}" for at in elsewhere)
        raise failure(f"not moved, and no longer being moved: {names}. The reassignment was cancelled.")


async def _not_there(admin: Admin, targets: Replicas) -> list[TopicPartition]:
    """The partitions whose replicas are not the target's. A broker may get the last changes later than the
    controller.
    """
    topics = list(dict.fromkeys(at.topic for at in targets))
    for _ in range(TRIES):
        found = await partitions_of(admin, topics)
        elsewhere = [at for at, replicas in targets.items() if sorted(found[at].replicas) != sorted(replicas)]
        if not elsewhere:
            break
        await asyncio.sleep(POLL_SECONDS)
    return elsewhere


async def _waiting_for(admin: Admin, left: Mapping[TopicPartition, PartitionReassignment]) -> str:
    here = (await admin.describe_cluster()).brokers
    away = sorted(dict.fromkeys(b for move in left.values() for b in move.adding_replicas if b not in here))
    return f"waiting for offline broker {', '.join(map(str, away))}" if away else MOVED
