"""`semel group reset`: sets the committed offsets of a group without members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from semel_protocol.tables import Table

from semel import TopicPartition
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import confirm, json_option, position, run, say, say_json, show
from semel._edge import Edge
from semel._texts import plural
from semel.diagnose import OffsetChange, plan_reset, reset_facts
from semel.diagnose.positions import FORMS
from semel.structs import OffsetAndMetadata


@click.command()
@client_options()
@click.argument("group")
@click.argument("names", nargs=-1, metavar="[TOPIC[:PARTITION]]...")
@click.option("--to", metavar="WHERE", help=f"Set the offsets to: {FORMS}.")
@click.option("--by", type=int, metavar="N", help="Add N to the committed offsets; a negative N moves back.")
@click.option("-n", "--dry-run", is_flag=True, help="Show the changes and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def reset(
    client: ClientSettings,
    group: str,
    names: tuple[str, ...],
    to: str | None,
    by: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Set the committed offsets of GROUP for topics or partitions, with --to or --by.

    Without topics: for all partitions with a committed offset. With a time, the group continues at the first record at
    or after that time. The group must have no members: stop its consumers first. JSON needs --dry-run or --yes.
    """
    if (to is None) == (by is None):
        raise click.UsageError("give either --to or --by")
    if as_json and not (dry_run or yes):
        raise click.UsageError("JSON leaves no place for a question: give --dry-run or --yes")
    start = None if to is None else position(to, "--to", Edge().now_ms())

    async def planned() -> list[OffsetChange]:
        async with client.admin() as admin:
            return await plan_reset(admin, group, names, start, by or 0)

    moves = run(planned())
    if not as_json:
        show(moves_table(group, moves))
    changes = {each.at: OffsetAndMetadata(each.offset, "") for each in moves if each.offset != each.committed}
    if as_json:
        if changes and not dry_run:
            run(_set(client, group, changes))
        say_json(reset_facts(group, moves, 0 if dry_run else len(changes)))
        return
    if dry_run or not changes:
        say("Nothing was changed." if changes else "Nothing to change.")
        return
    if not yes:
        confirm(f"Set {plural(len(changes), 'offset')} of {group}?")
    run(_set(client, group, changes))
    say(f"{plural(len(changes), 'offset')} of {group} set")


def moves_table(group: str, moves: Sequence[OffsetChange]) -> Table:
    """PURE. The partitions with their committed and new offsets."""
    numbers = ("part", "committed", "next", "lag")
    shown = Table(f"{group}: new offsets", "topic", *numbers, "note", right=numbers, below=("note",))
    for each in moves:
        note = None if each.wanted == each.offset else f"nearest to {each.wanted:,}"
        committed = None if each.committed < 0 else each.committed
        shown.add_row(each.at.topic, str(each.at.partition), committed, each.offset, each.end - each.offset, note)
    return shown


async def _set(client: ClientSettings, group: str, changes: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    async with client.admin() as admin:
        await admin.alter_consumer_group_offsets(group, changes)
