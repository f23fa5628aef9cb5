"""`semel txn timeline`: draws which offsets of a topic are open, committed or aborted, and its last stable offset."""

from __future__ import annotations

from typing import TextIO

import click
from rich.text import Text
from semel_protocol.tables import Table

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import console, json_option, run, say, say_json, show, tell
from semel._texts import compact, duration, moment
from semel.cli.txn.timeline_svg import render
from semel.cli.txn.timeline_text import STYLE, draw, legend
from semel.diagnose import PartitionTimeline, partitions_of, read_timeline, timeline_facts
from semel.diagnose.timeline import LAST_DEFAULT


@click.command()
@client_options()
@click.argument("place", metavar="TOPIC[:PARTITION]")
@click.option(
    "--from-offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="Begin at this offset. Default: --last offsets before the end.",
)
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=LAST_DEFAULT,
    show_default=True,
    metavar="N",
    help="The number of offsets to show in each partition.",
)
@click.option("--list", "listed", is_flag=True, help="Also print the transactions as a table.")
@click.option(
    "--svg",
    type=click.File("w", encoding="utf-8", lazy=True),
    metavar="FILE",
    help="Write an SVG picture to FILE (-: standard output), and print nothing else.",
)
@json_option
def timeline(
    client: ClientSettings,
    place: str,
    from_offset: int | None,
    last: int,
    listed: bool,
    svg: TextIO | None,
    as_json: bool,
) -> None:
    """Draw the transactions of a partition over its offsets.

    Each producer has a line with its records, the markers of its transactions (C commit, A abort), and its open
    transaction. The last line shows the last stable offset: read_committed consumers read only below it. JSON has the
    facts of --list, without a picture.
    """

    if as_json and svg is not None:
        raise click.UsageError("give either --svg or JSON")

    async def work() -> list[PartitionTimeline]:
        async with client.admin() as admin:
            places = await partitions_of(admin, [place])
            return [await read_timeline(admin, at, from_offset, last) for at in places]

    timelines = run(work())
    if as_json:
        say_json([timeline_facts(each) for each in timelines])
        return
    if svg is not None:
        svg.write(render(timelines))
        if svg.name != "-":
            say(f"{svg.name} written")
        return
    drawn = [each for each in timelines if each.end > each.start] or timelines[:1]
    width = min(console().width, 200)
    for each in drawn:
        tell(*draw(each, width), "")
        if listed:
            show(spans_table(each))
            tell("")
    if empty := [each.partition for each in timelines if each not in drawn]:
        tell(f"No offsets to show: {compact(empty)}")
    tell(legend())


def spans_table(timeline: PartitionTimeline) -> Table:
    """PURE. One row for each transaction of a partition."""
    numbers = ("first", "last", "marker", "records", "epoch")
    shown = Table(
        "", "transaction of", "outcome", *numbers, "took", "began", right=numbers, below=("began", "took", "outcome")
    )
    for span in timeline.transactions:
        shown.add_row(
            timeline.label(span),
            Text(span.outcome.value, STYLE[span.outcome]),
            span.first_offset,
            span.pieces[-1][1] if span.pieces else None,
            span.marker_offset,
            span.record_count,
            str(span.producer_epoch),
            None if span.took_ms is None else duration(span.took_ms),
            moment(span.first_timestamp) if span.first_timestamp >= 0 else None,
        )
    return shown
