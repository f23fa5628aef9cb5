"""`semel topic`: create, list, describe and delete topics."""

from __future__ import annotations

import click

from semel import Admin, NewTopic, TopicPartition
from semel.admin import EARLIEST, LATEST, ConfigResource, ConfigResourceType
from semel.cli.common import bootstrap_option, console, key_values, run, table
from semel.cli.stuck import stuck_topic
from semel.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from semel.structs import TopicMetadata


@click.group()
def topic() -> None:
    """Create, list, describe and delete topics; find out why one cannot be read."""


topic.add_command(stuck_topic)


@topic.command()
@bootstrap_option
@click.argument("name")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), help="Partitions (default: the broker's num.partitions)."
)
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), help="Replicas of each partition.")
@click.option(
    "-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting of the topic; repeatable."
)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that exists as it is.")
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
                    raise
                return f"{name} exists already"
            (made,) = await admin.describe_topics([name])
            return f"{name} created with {_count(made)}"

    click.echo(run(work()))


@topic.command("list")
@bootstrap_option
@click.option("--internal", is_flag=True, help="Internal topics too.")
@click.option("-q", "--quiet", is_flag=True, help="Names only, one a line.")
def list_(bootstrap: str, internal: bool, quiet: bool) -> None:
    """List the topics with their partitions and records."""

    async def work() -> tuple[list[TopicMetadata], dict[str, int]]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            topics = [t for t in await admin.describe_topics() if internal or not t.is_internal]
            return topics, {} if quiet else {t.name: sum((await _spans(admin, t)).values()) for t in topics}

    topics, records = run(work())
    if quiet:
        click.echo("".join(f"{t.name}\n" for t in topics), nl=False)
        return
    shown = table(
        "", "topic", "partitions", "replicas", "offsets held", right=("partitions", "replicas", "offsets held")
    )
    for found in topics:
        replicas = len(found.partitions[0].replicas) if found.partitions else 0
        shown.add_row(found.name, str(len(found.partitions)), str(replicas), f"{records[found.name]:,}")
    console().print(shown)


async def _spans(admin: Admin, found: TopicMetadata) -> dict[TopicPartition, int]:
    places = [TopicPartition(found.name, p.partition) for p in found.partitions]
    starts = await admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
    return {tp: ends[tp].offset - starts[tp].offset for tp in places}


@topic.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
@click.option("-a", "--all-configs", is_flag=True, help="Also the settings that follow their defaults.")
def describe(bootstrap: str, names: tuple[str, ...], all_configs: bool) -> None:
    """Show partitions, offsets and settings of topics."""

    async def work() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            for found in await admin.describe_topics(names):
                await _describe(admin, found, all_configs)

    run(work())


async def _describe(admin: Admin, found: TopicMetadata, all_configs: bool) -> None:
    places = [TopicPartition(found.name, p.partition) for p in found.partitions]
    starts = await admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
    numbers = ("partition", "leader", "start offset", "end offset")
    title = f"{found.name}: {_count(found)}{', internal' if found.is_internal else ''}"
    shown = table(title, *numbers, "replicas", "in sync", right=numbers)
    for partition, tp in zip(found.partitions, places, strict=True):
        shown.add_row(
            str(partition.partition),
            "none" if partition.leader < 0 else str(partition.leader),
            f"{starts[tp].offset:,}",
            f"{ends[tp].offset:,}",
            ",".join(map(str, partition.replicas)),
            ",".join(map(str, partition.isr)),
        )
    console().print(shown)
    (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, found.name)])
    entries = [e for _, e in sorted(described.configs.items()) if all_configs or not e.is_default]
    if entries:
        settings = table("", "setting", "value", "from")
        for entry in entries:
            settings.add_row(entry.name, entry.value or "", entry.source.name.lower().replace("_", " "))
        console().print(settings)
    else:
        console().print("Every setting follows its default; --all-configs shows them.\n")


@topic.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="Pass over topics that are not there.")
def delete(bootstrap: str, names: tuple[str, ...], yes: bool, if_exists: bool) -> None:
    """Delete topics and all their records."""
    if not yes:
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True)

    async def work() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            for name in names:
                try:
                    await admin.delete_topics([name])
                except UnknownTopicOrPartitionError:
                    if not if_exists:
                        raise
                    click.echo(f"{name} does not exist")
                else:
                    click.echo(f"{name} deleted")

    run(work())


def _count(found: TopicMetadata) -> str:
    count = len(found.partitions)
    return f"{count} partition{'' if count == 1 else 's'}"
