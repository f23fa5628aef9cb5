"""PURE: draws timelines as a standalone SVG picture: no script, font or network; tooltips show the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import cycle

from semel._texts import duration, moment, plural
from semel.diagnose import Outcome, PartitionTimeline, Span

WIDTH = 1200
LEFT, RIGHT = 220, 40
LANE = 24
BAR = 14
TOP = 56
AXIS = 58
COLOUR = {
    Outcome.COMMITTED: "#2e9e5b",
    Outcome.ABORTED: "#d1495b",
    Outcome.OPEN: "#edae49",
    Outcome.PLAIN: "#5b7db1",
}
LEAST_PX = {Outcome.OPEN: 8.0}
"""The least width of a bar: an open transaction of one record is visible among thousands of offsets. Others: 1."""
HELD_LEAST_PX = 8.0
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #222 }
  .title { font-weight: 600; font-size: 14px }
  .small { font-size: 11px; fill: #666 }
  .grid { stroke: #ddd }
  .paper { fill: #fff }
  .held { fill: #edae49; opacity: .2 }
  .row { fill: #edae49; opacity: .1 }
  .open { font-weight: 600; fill: #9a6700 }
  .lso { stroke: #222; stroke-dasharray: 4 3 }
  .ink { stroke: #222 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e6e6 }
    .small { fill: #a6a6a6 }
    .grid { stroke: #3c3f44 }
    .paper { fill: #16181c }
    .open { fill: #f0c060 }
    .lso, .ink { stroke: #e6e6e6 }
  }
"""


def render(timelines: Sequence[PartitionTimeline]) -> str:
    """One picture of all partitions, one below the other."""
    parts: list[str] = []
    y = 0
    for timeline in timelines:
        parts.append(f'<g transform="translate(0 {y})">')
        parts += _partition(timeline)
        parts.append("</g>")
        y += _height(timeline)
    parts += _legend(y)
    height = y + 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _height(timeline: PartitionTimeline) -> int:
    return TOP + LANE * max(1, len(timeline.lanes())) + AXIS


def _partition(timeline: PartitionTimeline) -> Iterator[str]:
    topic, partition = timeline.partition
    counts = ", ".join(
        f"{count:,} {outcome.value}"
        for outcome in (Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN)
        if (count := timeline.count(outcome))
    )
    yield f'<text class="title" x="16" y="28">{escape(f"{topic}-{partition}")}</text>'
    yield f'<text class="small" x="{LEFT}" y="28">{escape(counts or "no transactions")}</text>'
    lanes = timeline.lanes()
    bottom = TOP + LANE * max(1, len(lanes))
    lso = max(timeline.last_stable_offset, timeline.start)
    if lso < timeline.end:
        x, width = _bar(timeline, lso, timeline.end, HELD_LEAST_PX)
        yield f'<rect class="held" x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{bottom - TOP}"/>'
    yield from _axis(timeline, bottom)
    for number, (name, spans) in enumerate(lanes.items()):
        y = TOP + LANE * number
        label = name if len(name) <= 30 else name[:29] + "…"
        is_open = any(span.outcome is Outcome.OPEN for span in spans)
        if is_open:
            yield f'<rect class="row" x="8" y="{y}" width="{WIDTH - RIGHT - 8}" height="{LANE}"/>'
        look = ' class="open"' if is_open else ""
        yield f'<text{look} x="16" y="{y + 16}">{escape(label)}<title>{escape(name)}</title></text>'
        for span in spans:
            yield from _span(timeline, span, name, y)
    x = _x(timeline, min(lso, timeline.end))
    yield f'<line class="lso" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom + 6}"/>'
    held = timeline.end - timeline.last_stable_offset
    words = f"last stable offset {timeline.last_stable_offset:,}" + (
        f": {plural(held, 'offset')} held back" if held > 0 else ""
    )
    anchor = "end" if x > WIDTH / 2 else "start"
    yield f'<text x="{x:.1f}" y="{bottom + 40}" text-anchor="{anchor}">{words}</text>'


def _axis(timeline: PartitionTimeline, bottom: int) -> Iterator[str]:
    yield f'<text class="small" x="{LEFT - 40}" y="{bottom + 18}" text-anchor="end">offset</text>'
    for offset in ticks(timeline.start, timeline.end):
        x = _x(timeline, offset)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text class="small" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{offset:,}</text>'


def _span(timeline: PartitionTimeline, span: Span, name: str, y: int) -> Iterator[str]:
    colour = COLOUR[span.outcome]
    middle = y + LANE / 2
    yield f"<g><title>{escape(_words(span, name))}</title>"
    if span.outcome is not Outcome.PLAIN:
        end = timeline.end if span.outcome is Outcome.OPEN else span.last_offset + 1
        x1, x2 = _x(timeline, max(span.first_offset, timeline.start)), _x(timeline, end)
        look = f'stroke="{colour}" stroke-width="2"' + (
            ' stroke-dasharray="3 3"' if span.outcome is Outcome.OPEN else ""
        )
        yield f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{middle}" y2="{middle}" {look}/>'
    for first, last in span.pieces:
        x, width = _bar(timeline, max(first, timeline.start), last + 1, LEAST_PX.get(span.outcome, 1.0))
        yield _rect(x, middle - BAR / 2, width, span.outcome)
    if span.marker_offset is not None:
        x = (_x(timeline, span.marker_offset) + _x(timeline, span.marker_offset + 1)) / 2
        yield f'<circle cx="{x:.1f}" cy="{middle}" r="5" class="paper" stroke="{colour}" stroke-width="2"/>'
    yield "</g>"


def _rect(x: float, y: float, width: float, outcome: Outcome) -> str:
    """A bar. Those of aborted records are outlined, so that colour is not the only difference."""
    look = f'fill="{COLOUR[outcome]}"'
    if outcome is Outcome.ABORTED:
        look += f' fill-opacity=".3" stroke="{COLOUR[outcome]}"'
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" {look}/>'


def _words(span: Span, name: str) -> str:
    lines = [f"{name}: {span.outcome.value}"]
    if span.producer_id >= 0:
        lines.append(f"producer {span.producer_id}, epoch {span.producer_epoch}")
    if span.pieces:
        last = span.pieces[-1][1]
        lines.append(f"{plural(span.record_count, 'record')}, offsets {span.first_offset:,} to {last:,}")
    if span.first_timestamp >= 0:
        lines.append(f"began {moment(span.first_timestamp)}")
    if span.marker_offset is not None:
        lines.append(f"marker at offset {span.marker_offset:,}")
    if span.took_ms is not None:
        lines.append(f"{duration(span.took_ms)} from first record to marker")
    return "\n".join(lines)


def _legend(y: int) -> Iterator[str]:
    x = LEFT
    for outcome in Outcome:
        yield _rect(x, y + 6, 14, outcome)
        yield f'<text x="{x + 20}" y="{y + 18}">{outcome.value}</text>'
        x += 110
    yield f'<circle cx="{x + 7}" cy="{y + 13}" r="5" class="paper ink" stroke-width="2"/>'
    yield f'<text x="{x + 20}" y="{y + 18}">marker</text>'


def ticks(start: int, end: int) -> list[int]:
    """Round offsets from start to end, at most about a dozen."""
    count = max(1, end - start)
    step, factors = 1, cycle((2, 2.5, 2))  # 1, 2, 5, 10, 20, ...
    while count / step > 12:
        step = int(step * next(factors))
    first = -(-start // step) * step
    return list(range(first, end + 1, step))


def _x(timeline: PartitionTimeline, offset: int) -> float:
    """The x coordinate where an offset begins."""
    count = max(1, timeline.end - timeline.start)
    return LEFT + (offset - timeline.start) / count * (WIDTH - LEFT - RIGHT)


def _bar(timeline: PartitionTimeline, first: int, end: int, least_px: float) -> tuple[float, float]:
    """The x coordinate and the width of the offsets from `first` to before `end`, within the picture."""
    x = _x(timeline, first)
    width = max(least_px, _x(timeline, end) - x)
    return min(x, WIDTH - RIGHT - width), width
