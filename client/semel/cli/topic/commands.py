"""`semel topic`: creates, lists, describes and deletes topics; the other subcommands have their own files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import click
from semel_protocol.tables import Table

from semel import Admin, NewTopic, TopicPartition
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import (
    confirm,
    delete_each,
    failure,
    json_option,
    key_values,
    run,
    say,
    say_json,
    show,
    tell,
)
from semel._texts import plural, similar
from semel.admin import (
    EARLIEST,
    LATEST,
    ClusterDescription,
    ConfigResource,
    ConfigResourceType,
    PartitionReassignment,
)
from semel.cli.topic.alter import alter, tell_without_effect
from semel.cli.topic.elect import elect
from semel.cli.topic.reassign import reassign
from semel.cli.topic.stuck import stuck_topic
from semel.cli.topic.truncate import truncate
from semel.diagnose import PartitionStatus, known_offsets, moves_of, state_of, topics_of
from semel.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from semel.structs import TopicMetadata

POLL_SECONDS = 0.2
TRIES = 25


@click.group()
def topic() -> None:
    """Create, list, describe, alter, truncate and delete topics; reassign partitions; show why one is stuck."""


topic.add_command(alter)
topic.add_command(stuck_topic)
topic.add_command(reassign)
topic.add_command(elect)
topic.add_command(truncate)


@topic.command()
@client_options()
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
    client: ClientSettings,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create the topic NAME."""
    new = NewTopic(name, partitions or -1, replication_factor or -1, topic_configs=key_values(configs, "--config"))

    async def work() -> str:
        async with client.admin() as admin:
            try:
                await admin.create_topics([new])
            except TopicAlreadyExistsError:
                if not if_not_exists:
                    raise failure(f"{name} exists already; with --if-not-exists that is no error") from None
                return f"{name} exists already"
            made = await _made(admin, name)
            await tell_without_effect(admin, name, list(new.topic_configs or ()))
            return f"{name} created with {_count(made)}"

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
@client_options()
@click.option("--internal", is_flag=True, help="Also list internal topics.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the names, one in each line.")
@json_option
def list_(client: ClientSettings, internal: bool, quiet: bool, as_json: bool) -> None:
    """List the topics with their numbers of partitions, replicas and offsets."""

    async def work() -> tuple[list[TopicMetadata], dict[str, int | None]]:
        async with client.admin() as admin:
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
    show(topics_table(rows))


def topics_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """PURE. rows: as `semel topic list --json`."""
    numbers = ("partitions", "replicas", "offsets held")
    shown = Table("", "topic", *numbers, right=numbers)
    for row in rows:
        shown.add_row(*row.values())
    return shown


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
@client_options()
@click.argument("names", nargs=-1, required=True)
@click.option("-a", "--all-configs", is_flag=True, help="Also show the settings that have their defaults.")
@json_option
def describe(client: ClientSettings, names: tuple[str, ...], all_configs: bool, as_json: bool) -> None:
    """Show the leaders, replicas, offsets and settings of topics."""

    async def work() -> list[dict[str, Any]]:
        async with client.admin() as admin:
            topics = await topics_of(admin, names)
            cluster = await admin.describe_cluster()
            moves = await moves_of(admin, cluster)
            return [
                {
                    "topic": found.name,
                    "internal": found.is_internal,
                    "partitions": await _partitions(admin, found, cluster, moves),
                    "settings": await _settings(admin, found, all_configs),
                }
                for found in topics
            ]

    described = run(work())
    if as_json:
        say_json(described)
        return
    for number, each in enumerate(described):
        if number:
            tell("")
        show(*topic_tables(each))
        if not each["settings"]:
            tell("Every setting has its default; --all-configs shows them.")


async def _partitions(
    admin: Admin,
    found: TopicMetadata,
    cluster: ClusterDescription,
    moves: Mapping[TopicPartition, PartitionReassignment],
) -> list[dict[str, Any]]:
    """The partitions as plain types. leader, leader_epoch, start_offset, end_offset: None where unknown."""
    starts = await known_offsets(admin, found.partitions, cluster.brokers, EARLIEST)
    ends = await known_offsets(admin, found.partitions, cluster.brokers, LATEST)
    rows = []
    for partition in found.partitions:
        at = TopicPartition(found.name, partition.partition)
        adding = moves[at].adding_replicas if at in moves else ()
        state = state_of(partition, cluster.brokers, adding=adding)
        rows.append(
            {
                "partition": partition.partition,
                "leader": None if state is PartitionStatus.OFFLINE else partition.leader,
                "leader_epoch": None if partition.leader_epoch < 0 else partition.leader_epoch,
                "start_offset": starts.get(at),
                "end_offset": ends.get(at),
                "replicas": list(partition.replicas),
                "in_sync": list(partition.isr),
                "state": state.value,
                "moving_to": list(moves[at].target) if at in moves else None,
            }
        )
    return rows


async def _settings(admin: Admin, found: TopicMetadata, all_configs: bool) -> list[dict[str, Any]]:
    (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, found.name)])
    entries = [e for _, e in sorted(described.configs.items()) if all_configs or not e.is_default]
    return [{"name": e.name, "value": e.value, "from": e.source.name.lower().replace("_", " ")} for e in entries]


def topic_tables(described: Mapping[str, Any]) -> list[Table]:
    """PURE. described: one of `semel topic describe --json`."""
    numbers = ("part", "leader", "epoch", "start", "end")
    rows = Table("", *numbers, "replicas", "in sync", "state", right=numbers, below=("state", "in sync", "replicas"))
    states = [each["state"] for each in described["partitions"]]
    for each in described["partitions"]:
        rows.add_row(
            str(each["partition"]),
            "none" if each["leader"] is None else str(each["leader"]),
            None if each["leader_epoch"] is None else str(each["leader_epoch"]),
            each["start_offset"],
            each["end_offset"],
            ",".join(map(str, each["replicas"])),
            ",".join(map(str, each["in_sync"])),
            each["state"] + (f", moving to {','.join(map(str, each['moving_to']))}" if each["moving_to"] else ""),
        )
    troubles = [
        f"{states.count(s.value)} {s.value}"
        for s in PartitionStatus
        if s is not PartitionStatus.OK and s.value in states
    ]
    kind = ["internal"] if described["internal"] else []
    rows.title = ", ".join([f"{described['topic']}: {plural(len(states), 'partition')}", *kind, *troubles])
    if not described["settings"]:
        return [rows]
    settings = Table("", "setting", "value", "from", below=("value",))
    for entry in described["settings"]:
        settings.add_row(entry["name"], entry["value"] or "", entry["from"])
    return [rows, settings]


@topic.command()
@client_options()
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--if-exists", is_flag=True, help="Skip topics that do not exist. Default: a missing topic is an error.")
def delete(client: ClientSettings, names: tuple[str, ...], yes: bool, if_exists: bool) -> None:
    """Delete topics and all their records."""

    async def work() -> None:
        async with client.admin() as admin:
            await delete_each(names, admin.delete_topics, UnknownTopicOrPartitionError, if_exists=if_exists)

    found = run(_existing(client, names, if_exists=if_exists))
    if found and not yes:
        confirm(f"Delete {', '.join(run(_sizes(client, found)))} with all records?")
    run(work())


async def _existing(client: ClientSettings, names: Sequence[str], *, if_exists: bool) -> list[str]:
    """The topics that exist. A missing one ends the command, unless `if_exists`."""
    async with client.admin() as admin:
        known = await admin.list_topics()
    missing = [name for name in names if name not in known]
    if missing and not if_exists:
        raise failure(f"There is no topic {missing[0]!r}.{similar(missing[0], known)}")
    return [name for name in names if name in known]


async def _sizes(client: ClientSettings, names: Sequence[str]) -> list[str]:
    """The topics with their numbers of partitions and records, in words."""
    async with client.admin() as admin:
        topics = await admin.describe_topics(names)
        held = await _held(admin, topics)
    counts = {name: "" if count is None else f", about {plural(count, 'record')}" for name, count in held.items()}
    return [f"{each.name} ({_count(each)}{counts[each.name]})" for each in topics]


def _count(found: TopicMetadata) -> str:
    count = len(found.partitions)
    return f"{count} partition{'' if count == 1 else 's'}"
