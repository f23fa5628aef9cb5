"""`semel txn groups`: lists transaction groups with their drivers, steps and members."""

from __future__ import annotations

from collections.abc import Sequence

import click
from semel_protocol.tables import Table

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import confirm, json_option, run, say, say_json, show
from semel._edge import Edge
from semel._texts import duration, moment, plural
from semel.admin import TransactionGroupDescription
from semel.diagnose import transaction_group_facts


@click.command()
@client_options()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
def groups(client: ClientSettings, names: tuple[str, ...], as_json: bool) -> None:
    """List transaction groups: transactions of several producers that commit as one.

    With NAMEs only these groups, each with its members. JSON always has the members.
    """

    async def work() -> list[TransactionGroupDescription]:
        async with client.admin() as admin:
            return await admin.describe_transaction_groups(names or None)

    found, now_ms = run(work()), Edge().now_ms()
    if as_json:
        say_json([transaction_group_facts(each) for each in found])
    else:
        show(groups_table(found, now_ms), *(members_table(each, now_ms) for each in (found if names else ())))


def groups_table(found: Sequence[TransactionGroupDescription], now_ms: int, title: str = "") -> Table:
    """PURE. One row for each group."""
    numbers = ("step", "open", "members")
    shown = Table(
        title,
        *("transaction group", *numbers, "state", "for", "last committed", "begun by"),
        right=numbers,
        below=("begun by", "last committed", "state"),
    )
    for each in found:
        since_ms = each.began_ms if each.is_open else each.last_update_time_ms
        shown.add_row(
            each.name,
            str(each.epoch),
            sum(member.is_open for member in each.members),
            len(each.members),
            each.state + (f": {each.note}" if each.note else ""),
            duration(now_ms - since_ms),
            None if each.decided_token is None else f"{each.decided_token} (step {each.decided_epoch})",
            ", ".join(part for part in (each.owner, each.client) if part),
        )
    return shown


def members_table(group: TransactionGroupDescription, now_ms: int) -> Table:
    """PURE. One row for each member of a group."""
    numbers = ("step", "producer", "epoch")
    title = f"{group.name}: step {group.epoch} was begun at {moment(group.began_ms, now_ms)}, "
    title += f"its transactions may take {duration(group.timeout_ms)}"
    shown = Table(title, "member", *numbers, "state", "open for", right=numbers)
    for each in group.members:
        since_ms = each.start_time_ms if each.is_open else None
        shown.add_row(
            each.transactional_id,
            str(each.group_epoch),
            str(each.producer_id),
            str(each.producer_epoch),
            each.state,
            None if since_ms is None else duration(now_ms - since_ms),
        )
    return shown


async def abort_group(client: ClientSettings, name: str, reason: str, *, yes: bool) -> None:
    """Ask for confirmation, abort the open step, and print the result."""
    async with client.admin() as admin:
        (found,) = await admin.describe_transaction_groups([name])
        open_ones = sum(member.is_open for member in found.members)
        what = f"step {found.epoch} of transaction group {name} ({found.state})"
        what += f", with {plural(open_ones, 'transaction')} open"
        if not yes:
            confirm(f"Abort {what}, and fence its members and its driver?")
        before = await admin.abort_transaction_group(name, reason)
        say(f"{name}: step {before.epoch} is over; its members and its driver are fenced")
