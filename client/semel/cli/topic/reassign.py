"""`semel topic reassign`: moves partitions between brokers: the plan, the reassignment, its progress, its
cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from semel_protocol.tables import Table

from semel import Admin, TopicPartition
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import confirm, failure, json_option, run, say, say_json, show, tell
from semel._texts import plural
from semel.admin import ClusterDescription, PartitionReassignment
from semel.cli.topic.reassign_plan import plan
from semel.diagnose import moves_of, partitions_of

SHOWN = 50
POLL_SECONDS = 0.5
TRIES = 6
MOVED = "partitions moved"
Replicas = Mapping[TopicPartition, tuple[int, ...]]
NOTHING = "No partition is being moved."
AGAIN = "`semel topic reassign --watch` follows, `semel topic reassign --cancel` stops it"


def _parsed(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    if not all(part.isascii() and part.isdigit() for part in value.split(",")):
        raise click.BadParameter(f"{value!r}: write ids with commas between them, such as 1,2,3")
    return list(dict.fromkeys(map(int, value.split(","))))


@click.command()
@client_options()
@click.argument("names", nargs=-1, metavar="[TOPIC[:PARTITION]]...")
@click.option(
    "--brokers",
    callback=_parsed,
    metavar="ID[,…]",
    help="The ids of the brokers that get the replicas. Default: all live brokers.",
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of replicas of each partition. Default: unchanged.",
)
@click.option("-x", "--execute", is_flag=True, help="Execute the plan, and wait until the reassignments are complete.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--watch", "watching", is_flag=True, help="Wait until the reassignments in progress are complete.")
@click.option(
    "--cancel", is_flag=True, help="Cancel the reassignments in progress: partitions keep their old replicas."
)
@json_option
def reassign(
    client: ClientSettings,
    names: tuple[str, ...],
    brokers: list[int] | None,
    replication_factor: int | None,
    execute: bool,
    yes: bool,
    watching: bool,
    cancel: bool,
    as_json: bool,
) -> None:
    """Spread partitions evenly over brokers and racks: the given topics or partitions, or all.

    Moves as few replicas as possible. Without --execute it only prints the plan. To empty a broker before its removal,
    name the other brokers with --brokers. JSON is for the plan alone.
    """
    if as_json and (execute or watching or cancel):
        raise click.UsageError("JSON is for the plan: leave out --execute, --watch and --cancel")
    if execute + watching + cancel > 1:
        raise click.UsageError("give only one of --execute, --watch and --cancel")
    if (watching or cancel) and (brokers is not None or replication_factor is not None):
        raise click.UsageError("--brokers and --replication-factor are for a new plan, not for --watch and --cancel")

    async def work() -> None:
        async with client.admin() as admin:
            chosen = await partitions_of(admin, names)
            cluster = await admin.describe_cluster()
            moving = {
                at: move.target for at, move in (await moves_of(admin, cluster, must_know=True)).items() if at in chosen
            }
            if cancel:
                await _cancel(admin, moving, yes)
            elif watching and moving:
                await _watch(admin, moving)
            elif watching:
                say(NOTHING)
            else:
                led = {at: found for at, found in chosen.items() if found.leader in cluster.brokers}
                now = {at: found.replicas for at, found in led.items() if at not in moving}
                then = plan(now, _racks(cluster, brokers), replication_factor)
                changes = {at: replicas for at, replicas in then.items() if replicas != now[at]}
                if as_json:
                    leaderless = [at for at in chosen if at not in led and at not in moving]
                    say_json(facts_of(now, changes, moving, leaderless))
                    return
                _show(now, changes)
                _show_left_out(moving, [at for at in chosen if at not in led and at not in moving])
                _show_away(now, cluster)
                if changes:
                    await _carry_out(admin, changes, execute, yes)

    try:
        run(work())
    except KeyboardInterrupt:
        if execute or watching:
            say(f"No longer waiting. The reassignments continue: {AGAIN}.", err=True)
        raise


async def _carry_out(admin: Admin, changes: Replicas, execute: bool, yes: bool) -> None:
    if not execute:
        say("Nothing was moved: --execute carries the plan out.")
        return
    if not yes:
        confirm(f"Move {plural(len(changes), 'partition')}?")
    await admin.alter_partition_reassignments(changes)
    await _watch(admin, changes)


def _racks(cluster: ClusterDescription, brokers: Sequence[int] | None) -> dict[int, str | None]:
    """The brokers to hold replicas, with their racks."""
    known = cluster.brokers
    away = [broker for broker in brokers or () if broker not in known]
    if away:
        raise click.BadParameter(
            f"broker {', '.join(map(str, away))} is not live; live brokers: {', '.join(map(str, sorted(known)))}",
            param_hint="--brokers",
        )
    return {broker: known[broker].rack for broker in brokers or sorted(known)}


async def _cancel(admin: Admin, moving: Replicas, yes: bool) -> None:
    if not moving:
        say(NOTHING)
        return
    if not yes:
        confirm(f"Stop moving {plural(len(moving), 'partition')}?")
    await admin.alter_partition_reassignments(dict.fromkeys(moving))
    say(f"{plural(len(moving), 'move')} cancelled")


def _show(now: Replicas, changes: Replicas) -> None:
    if not changes:
        say(f"Nothing to move: {plural(len(now), 'partition')} already spread evenly.")
        return
    show(plan_table(now, dict(list(changes.items())[:SHOWN])))
    if len(changes) > SHOWN:
        tell(f"and {len(changes) - SHOWN:,} more", "")
    copies = sum(_new(now[at], replicas) for at, replicas in changes.items())
    say(f"{len(changes):,} of {plural(len(now), 'partition')} change: {plural(copies, 'replica')} to copy.")


def plan_table(now: Replicas, changes: Replicas) -> Table:
    """PURE. The partitions that change, with their replicas before and after."""
    rows = Table(
        "", "partition", "replicas", "new replicas", "to copy", right=("to copy",), below=("replicas", "new replicas")
    )
    for at, replicas in changes.items():
        rows.add_row(f"{at.topic}-{at.partition}", _ids(now[at]), _ids(replicas), _new(now[at], replicas))
    return rows


def facts_of(
    now: Replicas, changes: Replicas, moving: Replicas, leaderless: Sequence[TopicPartition]
) -> dict[str, Any]:
    """PURE. The plan as plain types."""
    return {
        "partitions": len(now),
        "changes": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "replicas": list(now[at]),
                "new_replicas": list(replicas),
                "to_copy": _new(now[at], replicas),
            }
            for at, replicas in changes.items()
        ],
        "moving": [f"{at.topic}-{at.partition}" for at in moving],
        "without_leader": [f"{at.topic}-{at.partition}" for at in leaderless],
    }


def _new(now: Sequence[int], then: Sequence[int]) -> int:
    """The number of replicas to copy."""
    return sum(broker not in now for broker in then)


def _show_left_out(moving: Replicas, leaderless: Sequence[TopicPartition]) -> None:
    if moving:
        say(f"Left out: {plural(len(moving), 'partition')} being moved already. {AGAIN}.")
    if leaderless:
        count = plural(len(leaderless), "partition")
        say(f"Left out: {count} without a leader to copy from. See `semel cluster`.")


def _show_away(now: Replicas, cluster: ClusterDescription) -> None:
    for broker in sorted(dict.fromkeys(broker for replicas in now.values() for broker in replicas)):
        if broker not in cluster.brokers:
            held = plural(sum(broker in replicas for replicas in now.values()), "replica")
            say(f"Broker {broker} is offline: other brokers get its {held}. If it will come back, wait for it.")


def _ids(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


async def _watch(admin: Admin, targets: Replicas) -> None:
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
