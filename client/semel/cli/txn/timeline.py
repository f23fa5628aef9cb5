"""`semel txn timeline`: draws which offsets of a topic are open, committed or aborted, and its last stable offset."""

from __future__ import annotations

from typing import Any, TextIO

import click
from rich.text import Text
from semel_protocol.tables import Table

from semel import Admin, TopicPartition
from semel._consume.log_scan import scan
from semel.admin import EARLIEST, LATEST
from semel.cli.shared.client_settings import ClientSettings, client_options
from semel.cli.shared.common import console, json_option, run, say, say_json, show, tell
from semel.cli.shared.partition_names import compact, places
from semel.cli.shared.times import duration, iso, moment
from semel.cli.txn.timeline_spans import Outcome, PartitionTimeline, Span, SpanCollector
from semel.cli.txn.timeline_svg import render
from semel.cli.txn.timeline_text import STYLE, draw, legend

LAST_DEFAULT = 10_000


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
            return [await _read(admin, at, from_offset, last) for at in await places(admin, place)]

    timelines = run(work())
    if as_json:
        say_json([facts_of(each) for each in timelines])
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


async def _read(admin: Admin, at: TopicPartition, from_offset: int | None, last: int) -> PartitionTimeline:
    low = (await admin.list_offsets({at: EARLIEST}))[at].offset
    stable = (await admin.list_offsets({at: LATEST}, read_committed=True))[at].offset
    high = (await admin.list_offsets({at: LATEST}))[at].offset
    start = max(low, high - last if from_offset is None else from_offset)
    end = high if from_offset is None else min(high, start + last)
    spans = SpanCollector()
    async for batch in scan(admin._calls, at, start, end):
        spans.add(batch)
    found = spans.result()
    producer_ids = sorted({span.producer_id for span in found if span.outcome is not Outcome.PLAIN})
    names = await names_of(admin, producer_ids)
    return PartitionTimeline(
        partition=at,
        log_start=low,
        start=start,
        end=max(start, end),
        last_stable_offset=stable,
        spans=found,
        names=names,
    )


async def names_of(admin: Admin, producer_ids: list[int]) -> dict[int, str]:
    """The transactional ids that have these producer ids now. An id that has got a new producer id since is not
    found.
    """
    if not producer_ids:
        return {}
    return {row.producer_id: row.transactional_id for row in await admin.list_transactions(producer_ids=producer_ids)}


def spans_table(timeline: PartitionTimeline) -> Table:
    """PURE. One row for each transaction of a partition."""
    numbers = ("first", "last", "marker", "records", "epoch")
    shown = Table(
        "", "transaction of", "outcome", *numbers, "took", "began", right=numbers, below=("began", "took", "outcome")
    )
    for span in _transactions(timeline):
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


def _transactions(timeline: PartitionTimeline) -> list[Span]:
    return [span for span in timeline.spans if span.outcome is not Outcome.PLAIN]


def facts_of(timeline: PartitionTimeline) -> dict[str, Any]:
    """PURE. The transactions of a partition as plain types."""
    return {
        "topic": timeline.partition.topic,
        "partition": timeline.partition.partition,
        "log_start_offset": timeline.log_start,
        "from_offset": timeline.start,
        "to_offset": timeline.end,
        "last_stable_offset": timeline.last_stable_offset,
        "transactions": [
            {
                "transactional_id": timeline.names.get(span.producer_id),
                "producer_id": span.producer_id,
                "producer_epoch": span.producer_epoch,
                "outcome": span.outcome.value,
                "first_offset": span.first_offset,
                "last_offset": span.pieces[-1][1] if span.pieces else None,
                "marker_offset": span.marker_offset,
                "records": span.record_count,
                "size_bytes": span.size_bytes,
                "began": iso(span.first_timestamp),
                "began_ms": span.first_timestamp if span.first_timestamp >= 0 else None,
                "took_ms": span.took_ms,
            }
            for span in _transactions(timeline)
        ],
    }
