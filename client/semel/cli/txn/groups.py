"""`semel txn groups`: lists transaction groups with their drivers, steps and members."""

from __future__ import annotations

import click

from semel import Admin
from semel._edge import Edge
from semel.admin import TransactionGroupDescription
from semel.cli.shared.common import bootstrap_option, confirm, console, run, say, table
from semel.cli.shared.times import duration, moment, plural
from semel.errors import UnsupportedVersionError


@click.command()
@bootstrap_option
@click.argument("names", nargs=-1, metavar="[NAME]...")
def groups(bootstrap: str, names: tuple[str, ...]) -> None:
    """List transaction groups: transactions of several producers that commit as one.

    With NAMEs only these groups, each with its members.
    """

    async def work() -> list[TransactionGroupDescription]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            return await admin.describe_transaction_groups(names or None)

    found, now_ms = run(work()), Edge().now_ms()
    show_groups(found, now_ms)
    for group in found if names else ():
        _show_members(group, now_ms)


def show_groups(found: list[TransactionGroupDescription], now_ms: int, title: str = "") -> None:
    """One line for each group."""
    numbers = ("step", "open", "members")
    shown = table(title, "transaction group", *numbers, "state", "for", "begun by", "last committed", right=numbers)
    for each in found:
        since_ms = each.began_ms if each.is_open else each.last_update_time_ms
        shown.add_row(
            each.name,
            str(each.epoch),
            str(sum(member.is_open for member in each.members)),
            str(len(each.members)),
            each.state + (f": {each.note}" if each.note else ""),
            duration(now_ms - since_ms),
            ", ".join(part for part in (each.owner, each.client) if part),
            "-" if each.decided_token is None else f"{each.decided_token} (step {each.decided_epoch})",
        )
    console().print(shown)


def _show_members(group: TransactionGroupDescription, now_ms: int) -> None:
    numbers = ("step", "producer", "epoch")
    title = f"{group.name}: step {group.epoch} was begun at {moment(group.began_ms, now_ms)}, "
    title += f"its transactions may take {duration(group.timeout_ms)}"
    shown = table(title, "member", *numbers, "state", "open for", right=numbers)
    for each in group.members:
        since_ms = each.start_time_ms if each.is_open else None
        shown.add_row(
            each.transactional_id,
            str(each.group_epoch),
            str(each.producer_id),
            str(each.producer_epoch),
            each.state,
            "-" if since_ms is None else duration(now_ms - since_ms),
        )
    console().print(shown)


async def overdue(admin: Admin, now_ms: int) -> list[TransactionGroupDescription]:
    """Groups whose step is open past its timeout; none when the brokers do not serve transaction groups."""
    try:
        found = await admin.describe_transaction_groups()
    except UnsupportedVersionError:
        return []
    return [each for each in found if each.is_overdue(now_ms)]


async def abort_group(bootstrap: str, name: str, reason: str, *, yes: bool) -> None:
    """Asks for confirmation, aborts the open step, and prints the result."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (found,) = await admin.describe_transaction_groups([name])
        open_ones = sum(member.is_open for member in found.members)
        what = f"step {found.epoch} of transaction group {name} ({found.state})"
        what += f", with {plural(open_ones, 'transaction')} open"
        if not yes:
            confirm(f"Abort {what}, and fence its members and its driver?")
        before = await admin.abort_transaction_group(name, reason)
        say(f"{name}: step {before.epoch} is over; its members and its driver are fenced")
