"""`semel group`: lists, describes and deletes consumer groups."""

from __future__ import annotations

from typing import Any

import click

from semel import Admin, TopicPartition
from semel.admin import LATEST, ConsumerGroupDescription
from semel.cli.group.reset import reset
from semel.cli.shared.common import (
    bootstrap_option,
    confirm,
    console,
    delete_each,
    failure,
    json_option,
    run,
    say,
    say_json,
    table,
)
from semel.cli.shared.partition_names import known_offsets, partitions_of
from semel.cli.shared.times import plural
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
@json_option
def list_(bootstrap: str, quiet: bool, as_json: bool) -> None:
    """List the groups with their states, numbers of members, and assignors."""

    async def work() -> list[ConsumerGroupDescription]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            names = [found.group_id for found in await admin.list_consumer_groups()]
            return await admin.describe_consumer_groups(names) if names else []

    groups = run(work())
    if quiet:
        say(*(found.group_id for found in groups))
        return
    if as_json:
        say_json(
            [
                {"group": each.group_id, "state": each.state, "members": len(each.members), "assignor": each.protocol}
                for each in groups
            ]
        )
        return
    shown = table("", "group", "state", "members", "assignor", right=("members",))
    for found in groups:
        shown.add_row(found.group_id, found.state, str(len(found.members)), found.protocol or "-")
    console().print(shown)


@group.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True)
@json_option
def describe(bootstrap: str, names: tuple[str, ...], as_json: bool) -> None:
    """Show the state, members, committed offsets and lag of groups."""
    described: list[dict[str, Any]] = []

    async def work() -> list[str]:
        missing = []
        async with Admin(bootstrap_servers=bootstrap) as admin:
            for found in await admin.describe_consumer_groups(names):
                if found.state == "Dead":
                    missing.append(found.group_id)
                else:
                    described.append(await _described(admin, found))
        return missing

    missing = run(work())
    if as_json:
        say_json(described)
    else:
        for each in described:
            _show(each)
    if missing:
        raise failure(f"no such group: {', '.join(missing)}; `semel group list` lists the groups")


async def _described(admin: Admin, found: ConsumerGroupDescription) -> dict[str, Any]:
    """The group as plain types. committed, end_offset, lag: None where unknown."""
    committed = await admin.list_consumer_group_offsets(found.group_id)
    owners = {tp: member for member in found.members for tp in member.assignment}
    places = sorted({*committed, *owners})
    ends = await _ends(admin, places)
    partitions = []
    for tp in places:
        offset = committed[tp].offset if tp in committed else None
        end = ends.get(tp)
        owner = owners.get(tp)
        partitions.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else end - offset,
                "owner": None if owner is None else owner.group_instance_id or owner.member_id,
                "host": None if owner is None else owner.client_host,
            }
        )
    return {
        "group": found.group_id,
        "state": found.state,
        "members": len(found.members),
        "members_without_partition": [m.group_instance_id or m.member_id for m in found.members if not m.assignment],
        "total_lag": sum(row["lag"] or 0 for row in partitions),
        "partitions": partitions,
    }


def _show(described: dict[str, Any]) -> None:
    numbers = ("partition", "committed", "end offset", "lag")
    title = f"{described['group']}: {described['state']}, {plural(described['members'], 'member')}"
    shown = table(title, "topic", *numbers, "owner", "host", right=numbers)
    for row in described["partitions"]:
        cells = ("-" if row[name] is None else f"{row[name]:,}" for name in ("committed", "end_offset", "lag"))
        shown.add_row(row["topic"], str(row["partition"]), *cells, row["owner"] or "-", row["host"] or "-")
    console().print(shown)
    if described["members_without_partition"]:
        console().print(f"Without a partition: {', '.join(described['members_without_partition'])}")
    console().print(f"Total lag: {described['total_lag']:,}\n")


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
