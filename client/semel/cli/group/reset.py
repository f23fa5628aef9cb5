"""`semel group reset`: sets the committed offsets of a group without members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec
from semel_protocol.tables import Table

from semel import Admin, TopicPartition
from semel._edge import Edge
from semel.admin import EARLIEST, LATEST
from semel.cli.group.members import must_be_empty
from semel.cli.shared.client_settings import ClientSettings, client_options
from semel.cli.shared.common import confirm, failure, json_option, run, say, say_json, show
from semel.cli.shared.partition_names import partitions_of
from semel.cli.shared.start_position import FORMS, StartPosition, parse
from semel.cli.shared.times import plural
from semel.structs import OffsetAndMetadata


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one partition's offset. committed: -1 without one.

    wanted: the requested offset. offset: the nearest one to it within the log. end: the end offset.
    """

    at: TopicPartition
    committed: int
    wanted: int
    offset: int
    end: int


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
    start = None if to is None else parse(to, "--to", Edge().now_ms())

    async def planned() -> list[Move]:
        async with client.admin() as admin:
            return await plan(admin, group, names, start, by or 0)

    moves = run(planned())
    if not as_json:
        show(moves_table(group, moves))
    changes = {each.at: OffsetAndMetadata(each.offset, "") for each in moves if each.offset != each.committed}
    if as_json:
        if changes and not dry_run:
            run(_set(client, group, changes))
        say_json(facts_of(group, moves, 0 if dry_run else len(changes)))
        return
    if dry_run or not changes:
        say("Nothing was changed." if changes else "Nothing to change.")
        return
    if not yes:
        confirm(f"Set {plural(len(changes), 'offset')} of {group}?")
    run(_set(client, group, changes))
    say(f"{plural(len(changes), 'offset')} of {group} set")


async def plan(admin: Admin, group: str, names: Sequence[str], to: StartPosition | None, by: int = 0) -> list[Move]:
    """The changes that a reset would make. to: None moves by `by` offsets from the committed ones.

    Raises ClickException for a group with members, a topic that does not exist, and offsets that are not committed.
    """
    (described,) = await admin.describe_consumer_groups([group])
    must_be_empty(described, "would overwrite the new offsets with their own commits")
    committed = {at: each.offset for at, each in (await admin.list_consumer_group_offsets(group)).items()}
    if not names and not committed:
        raise failure(
            f"{group} has no committed offsets: name the topics to set offsets for, or check the group's name "
            "with `semel group list`"
        )
    places = list(await partitions_of(admin, names or await _topics_of(admin, committed)))
    if to is None or not names:
        places = [at for at in places if at in committed]
    starts = await _offsets(admin, places, EARLIEST)
    ends = await _offsets(admin, places, LATEST)
    found = {} if to is None or to.timestamp is None else await _offsets(admin, places, to.timestamp)
    moves = []
    for at in places:
        if to is None:
            wanted = committed[at] + by
        elif to.offset is not None:
            wanted = to.offset
        else:
            wanted = found[at] if found[at] >= 0 else ends[at]  # -1: no record at or after that time
        offset = min(max(wanted, starts[at]), ends[at])
        moves.append(Move(at=at, committed=committed.get(at, -1), wanted=wanted, offset=offset, end=ends[at]))
    return moves


async def _topics_of(admin: Admin, committed: Iterable[TopicPartition]) -> list[str]:
    """The existing topics among them. Offsets of a deleted topic may remain for a moment. Raises ClickException for
    none.
    """
    existing = await admin.list_topics()
    topics = {at.topic: None for at in committed}
    found = [name for name in topics if name in existing]
    if not found:
        raise failure(f"all committed offsets are of deleted topics: {', '.join(topics)}")
    return found


async def _offsets(admin: Admin, places: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    return {at: row.offset for at, row in (await admin.list_offsets(dict.fromkeys(places, timestamp))).items()}


def moves_table(group: str, moves: Sequence[Move]) -> Table:
    """PURE. The partitions with their committed and new offsets."""
    numbers = ("part", "committed", "next", "lag")
    shown = Table(f"{group}: new offsets", "topic", *numbers, "note", right=numbers, below=("note",))
    for each in moves:
        note = None if each.wanted == each.offset else f"nearest to {each.wanted:,}"
        committed = None if each.committed < 0 else each.committed
        shown.add_row(each.at.topic, str(each.at.partition), committed, each.offset, each.end - each.offset, note)
    return shown


def facts_of(group: str, moves: Sequence[Move], changed: int) -> dict[str, Any]:
    """PURE. The offsets as plain types. changed: the number of offsets that were set."""
    return {
        "group": group,
        "changed": changed,
        "partitions": [
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "committed": None if each.committed < 0 else each.committed,
                "wanted": each.wanted,
                "next": each.offset,
                "lag": each.end - each.offset,
            }
            for each in moves
        ],
    }


async def _set(client: ClientSettings, group: str, changes: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    async with client.admin() as admin:
        await admin.alter_consumer_group_offsets(group, changes)
