"""`semel topic`: creates, lists, describes and deletes topics; the other subcommands have their own files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import click

from semel import Admin, NewTopic, TopicPartition
from semel.admin import (
    EARLIEST,
    LATEST,
    ClusterDescription,
    ConfigResource,
    ConfigResourceType,
    PartitionReassignment,
)
from semel.cli.cluster.health import State, state_of
from semel.cli.shared.common import (
    bootstrap_option,
    confirm,
    console,
    delete_each,
    failure,
    json_option,
    key_values,
    run,
    say,
    say_json,
    similar,
    table,
)
from semel.cli.shared.moves import moves_of
from semel.cli.shared.partition_names import known_offsets
from semel.cli.shared.times import plural
from semel.cli.stuck.partition import stuck_topic
from semel.cli.topic.alter import alter
from semel.cli.topic.elect import elect
from semel.cli.topic.reassign import reassign
from semel.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from semel.structs import TopicMetadata

POLL_SECONDS = 0.2
TRIES = 25


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics; reassign partitions; show why one is stuck."""


topic.add_command(alter)
topic.add_command(stuck_topic)
topic.add_command(reassign)
topic.add_command(elect)


@topic.command()
@bootstrap_option
@click.argument("name")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of partitions. Default: the broker's num.partitions.",
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of replicas of each partition. Default: the broker's default.replication.factor.",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic; repeatable. Default: the broker's settings.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists. Default: that is an error.")
def create(
    bootstrap: str,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create the topic NAME."""
    new = NewTopic(name, partitions or -1, replication_factor or -1, topic_configs=key_values(configs, "--config"))

    async def work() -> str:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            try:
                await admin.create_topics([new])
            except TopicAlreadyExistsError:
                if not if_not_exists:
                    raise failure(f"{name} exists already; with --if-not-exists that is no error") from None
                return f"{name} exists already"
            return f"{name} created with {_count(await _made(admin, name))}"

    say(run(work()))


async def _made(admin: Admin, name: str) -> TopicMetadata:
    """The new topic. A broker may get it later than the controller that created it."""
    for _ in range(TRIES):
        try:
            (made,) = await admin.describe_topics([name])
            return made
        except UnknownTopicOrPartitionError:
            await asyncio.sleep(POLL_SECONDS)
    raise failure(f"{name} is created, but the brokers do not list it yet: see `semel cluster`")


@topic.command("list")
@bootstrap_option
@click.option("--internal", is_flag=True, help="Also list internal topics.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the names, one in each line.")
@json_option
def list_(bootstrap: str, internal: bool, quiet: bool, as_json: bool) -> None:
    """List the topics with their numbers of partitions, replicas and offsets."""

    async def work() -> tuple[list[TopicMetadata], dict[str, int | None]]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            topics = [t for t in await admin.describe_topics() if internal or not t.is_internal]
            return topics, {} if quiet else await _held(admin, topics)

    topics, records = run(work())
    if quiet:
        say(*(t.name for t in topics))
        return
    rows = [
        {
            "topic": found.name,
            "partitions": len(found.partitions),
            "replicas": len(found.partitions[0].replicas) if found.partitions else 0,
            "offsets_held": records[found.name],
        }
        for found in topics
    ]
    if as_json:
        say_json(rows)
        return
    shown = table(
        "", "topic", "partitions", "replicas", "offsets held", right=("partitions", "replicas", "offsets held")
    )
    for row in rows:
        shown.add_row(
            *("-" if cell is None else f"{cell:,}" if isinstance(cell, int) else cell for cell in row.values())
        )
    console().print(shown)


async def _held(admin: Admin, topics: list[TopicMetadata]) -> dict[str, int | None]:
    """The number of offsets in each topic; None where a leader is offline."""
    live = (await admin.describe_cluster()).brokers
    partitions = [partition for each in topics for partition in each.partitions]
    starts = await known_offsets(admin, partitions, live, EARLIEST)
    ends = await known_offsets(admin, partitions, live, LATEST)
    held: dict[str, int | None] = {}
    for each in topics:
        places = [TopicPartition(each.name, partition.partition) for partition in each.partitions]
        known = all(at in starts and at in ends for at in places)
        held[each.name] = sum(ends[at] - starts[at] for at in places) if known else None
    return held


@topic.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
@click.option("-a", "--all-configs", is_flag=True, help="Also show the settings that have their defaults.")
def describe(bootstrap: str, names: tuple[str, ...], all_configs: bool) -> None:
    """Show the leaders, replicas, offsets and settings of topics."""

    async def work() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            topics = await admin.describe_topics(names)
            cluster = await admin.describe_cluster()
            moves = await moves_of(admin, cluster)
            for found in topics:
                await _describe_partitions(admin, found, cluster, moves)
                await _describe_settings(admin, found, all_configs)

    run(work())


async def _describe_partitions(
    admin: Admin,
    found: TopicMetadata,
    cluster: ClusterDescription,
    moves: Mapping[TopicPartition, PartitionReassignment],
) -> None:
    starts = await known_offsets(admin, found.partitions, cluster.brokers, EARLIEST)
    ends = await known_offsets(admin, found.partitions, cluster.brokers, LATEST)
    numbers = ("partition", "leader", "epoch", "start offset", "end offset")
    rows = table("", *numbers, "replicas", "in sync", "state", right=numbers)
    states = []
    for partition in found.partitions:
        at = TopicPartition(found.name, partition.partition)
        adding = moves[at].adding_replicas if at in moves else ()
        states.append(state_of(partition, cluster.brokers, adding=adding))
        rows.add_row(
            str(partition.partition),
            "none" if states[-1] is State.OFFLINE else str(partition.leader),
            "-" if partition.leader_epoch < 0 else str(partition.leader_epoch),
            f"{starts[at]:,}" if at in starts else "-",
            f"{ends[at]:,}" if at in ends else "-",
            ",".join(map(str, partition.replicas)),
            ",".join(map(str, partition.isr)),
            states[-1].value + (f", moving to {','.join(map(str, moves[at].target))}" if at in moves else ""),
        )
    troubles = [f"{states.count(state)} {state.value}" for state in State if state is not State.OK and state in states]
    rows.title = ", ".join([f"{found.name}: {_count(found)}", *(["internal"] if found.is_internal else []), *troubles])
    console().print(rows)


async def _describe_settings(admin: Admin, found: TopicMetadata, all_configs: bool) -> None:
    (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, found.name)])
    entries = [e for _, e in sorted(described.configs.items()) if all_configs or not e.is_default]
    if entries:
        settings = table("", "setting", "value", "from")
        for entry in entries:
            settings.add_row(entry.name, entry.value or "", entry.source.name.lower().replace("_", " "))
        console().print(settings)
    else:
        console().print("Every setting has its default; --all-configs shows them.\n")


@topic.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--if-exists", is_flag=True, help="Skip topics that do not exist. Default: a missing topic is an error.")
def delete(bootstrap: str, names: tuple[str, ...], yes: bool, if_exists: bool) -> None:
    """Delete topics and all their records."""

    async def work() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await delete_each(names, admin.delete_topics, UnknownTopicOrPartitionError, if_exists=if_exists)

    found = run(_existing(bootstrap, names, if_exists=if_exists))
    if found and not yes:
        confirm(f"Delete {', '.join(run(_sizes(bootstrap, found)))} with all records?")
    run(work())


async def _existing(bootstrap: str, names: Sequence[str], *, if_exists: bool) -> list[str]:
    """The topics that exist. A missing one ends the command, unless `if_exists`."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        known = await admin.list_topics()
    missing = [name for name in names if name not in known]
    if missing and not if_exists:
        raise failure(f"There is no topic {missing[0]!r}.{similar(missing[0], known)}")
    return [name for name in names if name in known]


async def _sizes(bootstrap: str, names: Sequence[str]) -> list[str]:
    """The topics with their numbers of partitions and records, in words."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        topics = await admin.describe_topics(names)
        held = await _held(admin, topics)
    counts = {name: "" if count is None else f", about {plural(count, 'record')}" for name, count in held.items()}
    return [f"{each.name} ({_count(each)}{counts[each.name]})" for each in topics]


def _count(found: TopicMetadata) -> str:
    count = len(found.partitions)
    return f"{count} partition{'' if count == 1 else 's'}"
