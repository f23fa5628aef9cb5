"""`semel group`: lists, describes and deletes consumer groups."""

from __future__ import annotations

import click

from semel import Admin, TopicPartition
from semel.admin import LATEST, ConsumerGroupDescription
from semel.cli.group.reset import reset
from semel.cli.shared.common import bootstrap_option, confirm, console, delete_each, failure, run, say, table
from semel.cli.shared.partition_names import known_offsets, partitions_of
from semel.cli.stuck.group import stuck_group
from semel.errors import GroupIdNotFound


@click.group()
def group() -> None:
    """Show consumer groups: members, offsets, lag, and why one is stuck; set offsets; delete groups."""


group.add_command(reset)
group.add_command(stuck_group)


@group.command("list")
@bootstrap_option
@click.option("-q", "--quiet", is_flag=True, help="Print only the names, one in each line.")
def list_(bootstrap: str, quiet: bool) -> None:
    """List the groups with their states, numbers of members, and assignors."""

    async def work() -> list[ConsumerGroupDescription]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            names = [found.group_id for found in await admin.list_consumer_groups()]
            return await admin.describe_consumer_groups(names) if names else []

    groups = run(work())
    if quiet:
        say(*(found.group_id for found in groups))
        return
    shown = table("", "group", "state", "members", "assignor", right=("members",))
    for found in groups:
        shown.add_row(found.group_id, found.state, str(len(found.members)), found.protocol or "-")
    console().print(shown)


@group.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
def describe(bootstrap: str, names: tuple[str, ...]) -> None:
    """Show the state, members, committed offsets and lag of groups."""

    async def work() -> list[str]:
        missing = []
        async with Admin(bootstrap_servers=bootstrap) as admin:
            for found in await admin.describe_consumer_groups(names):
                if found.state == "Dead":
                    missing.append(found.group_id)
                else:
                    await _describe(admin, found)
        return missing

    missing = run(work())
    if missing:
        raise failure(f"no such group: {', '.join(missing)}; `semel group list` lists the groups")


async def _describe(admin: Admin, found: ConsumerGroupDescription) -> None:
    committed = await admin.list_consumer_group_offsets(found.group_id)
    owners = {tp: member for member in found.members for tp in member.assignment}
    places = sorted({*committed, *owners})
    ends = await _ends(admin, places)
    numbers = ("partition", "committed", "end offset", "lag")
    title = f"{found.group_id}: {found.state}, {len(found.members)} member{'' if len(found.members) == 1 else 's'}"
    shown = table(title, "topic", *numbers, "owner", "host", right=numbers)
    total = 0
    for tp in places:
        offset = committed[tp].offset if tp in committed else None
        end = ends.get(tp)
        lag = None if offset is None or end is None else end - offset
        total += lag or 0
        owner = owners.get(tp)
        name = "-" if owner is None else owner.group_instance_id or owner.member_id
        host = "-" if owner is None else owner.client_host
        cells = ("-" if n is None else f"{n:,}" for n in (offset, end, lag))
        shown.add_row(tp.topic, str(tp.partition), *cells, name, host)
    console().print(shown)
    idle = [m.group_instance_id or m.member_id for m in found.members if not m.assignment]
    if idle:
        console().print(f"Without a partition: {', '.join(idle)}")
    console().print(f"Total lag: {total:,}\n")


async def _ends(admin: Admin, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offsets of existing topics whose leaders answer. A group may hold offsets of deleted topics."""
    existing = await admin.list_topics()
    topics = dict.fromkeys(at.topic for at in places if at.topic in existing)
    partitions = await partitions_of(admin, list(topics)) if topics else {}
    live = (await admin.describe_cluster()).brokers
    return await known_offsets(admin, [partitions[at] for at in places if at in partitions], live, LATEST)


@group.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--if-exists", is_flag=True, help="Skip groups that do not exist. Default: a missing group is an error.")
def delete(bootstrap: str, names: tuple[str, ...], yes: bool, if_exists: bool) -> None:
    """Delete groups with their committed offsets. A group must have no members."""
    if not yes:
        confirm(f"Delete {', '.join(names)} with all committed offsets?")

    async def work() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await delete_each(names, admin.delete_consumer_groups, GroupIdNotFound, if_exists=if_exists)

    run(work())
