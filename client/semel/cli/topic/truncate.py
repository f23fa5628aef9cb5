"""`semel topic truncate`: deletes the oldest records of partitions, up to an offset or a time."""

from __future__ import annotations

import click

from semel import RecordsToDelete, TopicPartition
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import confirm, failure, position, run, say
from semel._edge import Edge
from semel._texts import plural
from semel.admin import LATEST
from semel.diagnose import StartPosition, Truncation, TruncationRefusedError, plan_truncation
from semel.diagnose.positions import EXAMPLE

ALL = "all"


@click.command()
@client_options()
@click.argument("topic")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; repeatable. Default: all partitions.",
)
@click.option(
    "--before",
    required=True,
    metavar="WHERE",
    help=f"Delete the records before: an offset, a time such as {EXAMPLE} (UTC without a zone), one before now such as "
    "-7d, or all.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def truncate(
    client: ClientSettings, topic: str, partitions: tuple[int, ...], before: str, dry_run: bool, yes: bool
) -> None:
    """Delete the oldest records of TOPIC, in all partitions or some. They cannot be restored.

    The remaining records keep their offsets. With a time, the first record that is kept is the first one at or after
    that time. Records of an open transaction can be deleted too.
    """
    limit = StartPosition(timestamp=LATEST) if before == ALL else position(before, "--before", Edge().now_ms())
    cuts = run(_plan(client, topic, sorted(set(partitions)), limit))
    chosen = [each for each in cuts if each.offsets > 0]
    if not chosen:
        say("Nothing to delete.")
        return
    for each in chosen:
        say(f"{topic}-{each.at.partition}: offsets {each.start} to {each.keep - 1} ({each.offsets:,})")
    if dry_run:
        say("Nothing was deleted.")
        return
    count = plural(sum(each.offsets for each in chosen), "record")
    if not yes:
        confirm(f"Delete about {count} of {plural(len(chosen), 'partition')} of {topic}?")
    for at, first in run(_delete(client, chosen)).items():
        say(f"{at.topic}-{at.partition}: the first offset is now {first}")


async def _plan(client: ClientSettings, topic: str, partitions: list[int], limit: StartPosition) -> list[Truncation]:
    names = [f"{topic}:{each}" for each in partitions] or [topic]
    async with client.admin() as admin:
        try:
            return await plan_truncation(admin, names, limit)
        except TruncationRefusedError as e:
            raise failure(f"--before {e}") from None


async def _delete(client: ClientSettings, cuts: list[Truncation]) -> dict[TopicPartition, int]:
    async with client.admin() as admin:
        return await admin.delete_records({each.at: RecordsToDelete(each.keep) for each in cuts})
