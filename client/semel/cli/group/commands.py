"""`semel group`: lists, describes and deletes consumer groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from semel_protocol.tables import Table

from semel._admin.types import GROUP_STATES
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import confirm, delete_each, failure, json_option, run, say, say_json, show, tell
from semel._texts import compact, plural, similar
from semel.admin import ConsumerGroupDescription, ConsumerGroupListing
from semel.cli.group.reset import reset
from semel.cli.group.stuck import stuck_group
from semel.diagnose import PartitionLag, group_facts, lag_of, total_lag
from semel.diagnose.offset_reset import must_be_empty
from semel.diagnose.reconciliation import is_of_consumer_protocol, steps_of, words
from semel.errors import GroupIdNotFound, NonEmptyGroup

DEAD = "Dead"
"""The state of a group that does not exist."""
PROTOCOLS = ("classic", "consumer")


@click.group()
def group() -> None:
    """Show consumer groups: members, offsets, lag, and why one is stuck; set offsets; delete groups."""


group.add_command(reset)
group.add_command(stuck_group)


@group.command("list")
@client_options()
@click.option(
    "--state", "states", multiple=True, type=click.Choice(GROUP_STATES, case_sensitive=False),
    help="Only groups in this state. May be given several times.",
)  # fmt: skip
@click.option(
    "--protocol", "protocols", multiple=True, type=click.Choice(PROTOCOLS, case_sensitive=False),
    help="Only groups of this protocol: classic, or consumer (KIP-848). Default: all.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print only the names, one in each line; do not ask for offsets.")
@json_option
def list_(
    client: ClientSettings, states: tuple[str, ...], protocols: tuple[str, ...], quiet: bool, as_json: bool
) -> None:
    """List the groups with their states, numbers of members, lag, assignors, and protocols (classic or consumer)."""

    async def work() -> tuple[
        list[ConsumerGroupListing], list[ConsumerGroupDescription], dict[str, list[PartitionLag]]
    ]:
        async with client.admin() as admin:
            listed = await admin.list_consumer_groups(states_filter=states, types_filter=protocols)
            names = [found.group_id for found in listed]
            groups = await admin.describe_consumer_groups(names) if names and not quiet else []
            living = [found for found in groups if found.state != DEAD]
            return listed, groups, await lag_of(admin, living) if living else {}

    listed, groups, lags = run(work())
    if quiet:
        say(*(found.group_id for found in listed))
        return
    rows = [
        {
            "group": each.group_id,
            "state": row.state if each.state == DEAD and row.state else each.state,  # share groups of Apache Kafka
            "members": len(each.members),
            "lag": total_lag(lags.get(each.group_id, ())),
            "assignor": each.protocol,
            "protocol": each.group_type or row.group_type,
        }
        for row, each in zip(listed, groups, strict=True)
    ]
    if as_json:
        say_json(rows)
    else:
        show(groups_table(rows))


def groups_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """PURE. rows: as `semel group list --json`."""
    columns = ("group", "state", "members", "lag", "assignor", "protocol")
    shown = Table("", *columns, right=("members", "lag"), below=("assignor", "protocol"))
    for row in rows:
        shown.add_row(*row.values())
    return shown


@group.command()
@client_options()
@click.argument("names", nargs=-1, required=True)
@json_option
def describe(client: ClientSettings, names: tuple[str, ...], as_json: bool) -> None:
    """Show the state, members, committed offsets and lag of groups.

    Partitions of the group's topics without a committed offset are shown too; their lag counts from their first offset.
    For a group of the consumer protocol (KIP-848) also its epochs, and for each member its subscription, its
    assignment, its target assignment, and what it still has to do to reach it.
    """

    async def work() -> tuple[list[ConsumerGroupDescription], dict[str, list[PartitionLag]], list[str], str]:
        async with client.admin() as admin:
            found = await admin.describe_consumer_groups(names)
            living = [each for each in found if each.state != DEAD]
            lags = await lag_of(admin, living) if living else {}
            missing = [each.group_id for each in found if each.state == DEAD]
            known = [each.group_id for each in await admin.list_consumer_groups()] if missing else []
            hint = similar(missing[0], known) if missing else ""
            return living, lags, missing, hint

    groups, lags, missing, hint = run(work())
    facts = [group_facts(each, lags[each.group_id]) for each in groups]
    if as_json:
        say_json(facts)
    else:
        for number, (each, its_facts) in enumerate(zip(groups, facts, strict=True)):
            if number:
                tell("")
            show(group_table(its_facts))
            tell(*_below(its_facts))
            if is_of_consumer_protocol(each):
                tell(_epochs(each), "")
                show(members_table(each))
    if missing:
        raise failure(f"no such group: {', '.join(missing)}.{hint} `semel group list` lists the groups")


def group_table(found: Mapping[str, Any]) -> Table:
    """PURE. found: one of `semel group describe --json`."""
    numbers = ("part", "committed", "end", "lag")
    title = f"{found['group']}: {found['state']}, {plural(found['members'], 'member')}"
    shown = Table(title, "topic", *numbers, "owner", "host", right=numbers, below=("host", "owner"))
    for row in found["partitions"]:
        facts = (row[name] for name in ("committed", "end_offset", "lag", "owner", "host"))
        shown.add_row(row["topic"], str(row["partition"]), *facts)
    return shown


def members_table(group: ConsumerGroupDescription) -> Table:
    """PURE. The members of a group of the consumer protocol."""
    texts = ("client", "host", "instance", "rack", "subscription", "assigned", "target", "to do")
    shown = Table("Members", "member", "epoch", *texts, right=("epoch",), below=texts)
    steps = steps_of(group)
    for member in group.members:
        pattern = f"pattern {member.pattern}" if member.pattern else ""
        shown.add_row(
            member.member_id,
            str(member.member_epoch),
            member.client_id,
            member.client_host,
            member.group_instance_id,
            member.rack_id,
            ", ".join(filter(None, (*member.subscription, pattern))),
            compact(member.assignment),
            compact(member.target_assignment or ()),
            words(steps[member.member_id]),
        )
    return shown


def _below(found: Mapping[str, Any]) -> list[str]:
    lines = []
    if found["members_without_partition"]:
        lines.append(f"Without a partition: {', '.join(found['members_without_partition'])}")
    lines.append("Total lag: -" if found["total_lag"] is None else f"Total lag: {found['total_lag']:,}")
    if without := found["lag_without_commit"]:
        count = sum(row["committed"] is None and bool(row["lag"]) for row in found["partitions"])
        lines[-1] += f", of it {without:,} in {plural(count, 'partition')} without a committed offset"
    return lines


def _epochs(found: ConsumerGroupDescription) -> str:
    said = f"Protocol: consumer, group epoch {found.group_epoch}, assignment epoch {found.assignment_epoch}"
    return f"{said}, assignor {found.protocol or '-'}"


@group.command()
@client_options()
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--if-exists", is_flag=True, help="Skip groups that do not exist. Default: a missing group is an error.")
def delete(client: ClientSettings, names: tuple[str, ...], yes: bool, if_exists: bool) -> None:
    """Delete groups with their committed offsets. A group must have no members."""
    if not yes:
        confirm(f"Delete {', '.join(names)} with all committed offsets?")

    async def work() -> None:
        async with client.admin() as admin:

            async def delete_empty(names: list[str]) -> None:
                try:
                    await admin.delete_consumer_groups(names)
                except NonEmptyGroup:
                    for found in await admin.describe_consumer_groups(names):
                        must_be_empty(found, "may commit offsets")
                    raise

            await delete_each(names, delete_empty, GroupIdNotFound, if_exists=if_exists)

    run(work())
