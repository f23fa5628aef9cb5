"""Timelines: batches become spans, spans become lanes of a terminal or an SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel._texts import duration, moment, plural
from semel.cli.txn.timeline_svg import COLOUR, RIGHT, WIDTH, render, ticks
from semel.cli.txn.timeline_text import Scale, draw, legend
from semel.diagnose import Outcome, PartitionTimeline, ScannedBatch
from semel.diagnose.timeline import spans_of
from semel.structs import TopicPartition
from semel_protocol.batch import read_header
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.records import Record, build_batch

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
NOW_MS = 1_700_000_000_000


def data(at: int, count: int = 1, pid: int = -1, *, transactional: bool = True, epoch: int = 0) -> ScannedBatch:
    records = [Record(i, NOW_MS + at + i, None, b"v") for i in range(count)]
    batch = build_batch(
        records,
        base_offset=at,
        producer_id=pid,
        producer_epoch=epoch if pid >= 0 else -1,
        base_sequence=0 if pid >= 0 else -1,
        is_transactional=transactional and pid >= 0,
    )
    return ScannedBatch(read_header(batch))


def marker(at: int, pid: int, kind: ControlType, epoch: int = 0) -> ScannedBatch:
    batch = build_marker(
        EndTxnMarker(kind, 0), producer_id=pid, producer_epoch=epoch, timestamp_ms=NOW_MS + at, base_offset=at
    )
    return ScannedBatch(read_header(batch), kind)


BATCHES = [
    data(0, 2, 7),
    data(2, 1, 8),
    data(3, 1, 7),
    data(4, 3),
    marker(7, 7, COMMIT),
    data(8, 2, 7, epoch=1),
    marker(10, 8, ABORT),
    data(11, 2, 9),
    marker(13, 7, COMMIT, epoch=1),
    data(14, 1),
]


def timeline(stable: int = 11, names: dict[int, str] | None = None, start: int = 0, end: int = 15) -> PartitionTimeline:
    return PartitionTimeline(
        partition=TopicPartition("orders", 0),
        log_start=0,
        start=start,
        end=end,
        last_stable_offset=stable,
        spans=spans_of(batch for batch in BATCHES if start <= batch.header.last_offset < end),
        names={7: "shop", 8: "till"} if names is None else names,
    )


def test_interleaved_transactions_become_spans_with_their_markers() -> None:
    seen = [(s.producer_id, s.outcome.value, s.pieces, s.marker_offset, s.record_count) for s in spans_of(BATCHES)]
    assert seen == [
        (7, "committed", ((0, 1), (3, 3)), 7, 3),
        (8, "aborted", ((2, 2),), 10, 1),
        (-1, "plain", ((4, 6), (14, 14)), None, 4),
        (7, "committed", ((8, 9),), 13, 2),
        (9, "open", ((11, 12),), None, 2),
    ]


def test_a_marker_without_records_in_what_was_read_is_still_a_span() -> None:
    (span,) = spans_of([marker(20, 5, ABORT)])
    assert (span.outcome, span.first_offset, span.last_offset, span.record_count) == (Outcome.ABORTED, 20, 20, 0)


def test_a_control_batch_of_another_type_makes_no_span() -> None:
    other = build_batch([Record(0, NOW_MS, b"\0\0\0\5", b"")], base_offset=3, is_control=True)
    assert spans_of([ScannedBatch(read_header(other))]) == []


@given(st.lists(st.tuples(st.sampled_from(["data", "commit", "abort", "plain"]), st.integers(1, 4)), max_size=40))
@settings(max_examples=60)
def test_every_record_is_in_exactly_one_span(steps: list[tuple[str, int]]) -> None:
    batches, at, records = [], 0, 0
    for what, pid in steps:
        if what in ("data", "plain"):
            batches.append(data(at, pid, pid, transactional=what == "data"))
            at, records = at + pid, records + pid
        else:
            batches.append(marker(at, pid, COMMIT if what == "commit" else ABORT))
            at += 1
    spans = spans_of(batches)
    assert sum(span.record_count for span in spans) == records
    covered = sorted(offset for span in spans for a, b in span.pieces for offset in range(a, b + 1))
    assert covered == sorted(
        o for b in batches if b.marker is None for o in range(b.header.base_offset, b.header.next_offset)
    )
    assert len({span.producer_id for span in spans if span.outcome is Outcome.OPEN}) == sum(
        span.outcome is Outcome.OPEN for span in spans
    ), "a producer has one transaction open at a time"


def test_the_terminal_shows_lanes_markers_and_the_last_stable_offset() -> None:
    lines = [line.plain.rstrip() for line in draw(timeline(), 78)]
    assert lines[0] == "orders-0  offsets 0 to 15  2 committed  1 aborted  1 open"
    assert [line[:17].strip() for line in lines[1:5]] == ["shop", "till", "producer 9", "no producer id"]
    left, columns_per_offset = len("  last stable offset  "), 3
    cells = [line.ljust(left + 45)[left::columns_per_offset] for line in lines[1:5]]
    assert cells == ["██─█───C██───C ", "  ▒───────A    ", "           ░░──", "    ▄▄▄       ▄"]
    assert lines[5].split() == ["0", "15"]
    assert lines[6] == "  last stable offset           11, 4 offsets held back ▲"
    assert lines[6].index("▲") == left + 11 * columns_per_offset


@pytest.mark.parametrize("width", [10, 24, 33, 80, 200])
@pytest.mark.parametrize("stable", [0, 7, 11, 15])
def test_no_line_of_the_picture_is_wider_than_the_terminal(width: int, stable: int) -> None:
    lines = list(draw(timeline(stable), width))
    widest = max(width, 60)  # headline and captions have their own minimum
    assert all(len(line.plain.rstrip()) <= widest + 10 for line in lines)


def test_a_part_of_a_log_is_drawn_with_transactions_that_began_before_it() -> None:
    text = "\n".join(line.plain for line in draw(timeline(stable=2, start=5, end=15), 78))
    assert "the log starts at 0" in text
    assert "◄ 2, before the range shown" in text


def test_many_offsets_share_a_column_and_few_have_several() -> None:
    wide = Scale(0, 1_000_000, 50)
    assert wide.offsets_per_column == 20_000
    assert wide.columns <= 50
    assert wide.column(999_999) == 49
    narrow = Scale(100, 103, 50)
    assert narrow.columns_per_offset == 4
    assert list(narrow.columns_of(101, 101)) == [4, 5, 6, 7]
    assert list(narrow.columns_of(0, 100)) == [0, 1, 2, 3]


def test_too_many_producers_are_counted_not_drawn() -> None:
    spans = spans_of(data(i, 1, i) for i in range(50))
    many = PartitionTimeline(
        partition=TopicPartition("t", 0), log_start=0, start=0, end=50, last_stable_offset=0, spans=spans
    )
    lines = [line.plain for line in draw(many, 100)]
    assert len(lines) == 1 + 40 + 1 + 2
    assert "and 10 producers more" in lines[41]


def test_an_empty_partition_is_said_to_be_empty() -> None:
    empty = PartitionTimeline(
        partition=TopicPartition("t", 0), log_start=5, start=5, end=5, last_stable_offset=5, spans=[]
    )
    assert [line.plain for line in draw(empty, 80)] == ["t-0  offsets 5 to 5", "  no offsets to show"]
    ElementTree.fromstring(render([empty]))


def test_the_svg_is_well_formed_and_says_what_the_terminal_says() -> None:
    picture = render([timeline(names={7: "<shop> & co"}), timeline(stable=15)])
    root = ElementTree.fromstring(picture)
    text = " ".join(root.itertext())
    for words in (
        "orders-0",
        "<shop> & co",
        "last stable offset 11: 4 offsets held back",
        "marker at offset 7",
        "open",
    ):
        assert words in text
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 2 * 3 + 1, "one for each marker, and the legend's"
    assert "script" not in picture
    assert picture.count("http") == 1, "the namespace: the picture needs nothing from elsewhere"


def test_an_open_transaction_of_one_record_among_thousands_is_visible_in_the_svg() -> None:
    batches = [data(0, 5000), data(5000, 1, 7)]
    one = PartitionTimeline(
        partition=TopicPartition("orders", 0),
        log_start=0,
        start=0,
        end=5001,
        last_stable_offset=5000,
        spans=spans_of(batches),
        names={7: "culprit"},
    )
    root = ElementTree.fromstring(render([one]))
    rects = [each.attrib for each in root.iter("{http://www.w3.org/2000/svg}rect")]
    (bar,) = [each for each in rects if each.get("fill") == COLOUR[Outcome.OPEN] and each["height"] != each["width"]][
        :1
    ]
    (held,) = [each for each in rects if each.get("class") == "held"]
    for each in (bar, held):
        assert float(each["width"]) >= 8
        assert float(each["x"]) + float(each["width"]) <= WIDTH - RIGHT
    (label,) = [each for each in root.iter("{http://www.w3.org/2000/svg}text") if each.get("class") == "open"]
    assert label.text == "culprit"
    words = " ".join(root.itertext())
    assert f"began {moment(NOW_MS + 5000)}" in words
    assert "offset" in [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_legend_names_every_outcome() -> None:
    for outcome in Outcome:
        assert outcome.value in legend().plain


@given(st.integers(0, 10**12), st.integers(0, 10**9))
def test_ticks_are_few_round_and_inside(start: int, count: int) -> None:
    found = ticks(start, start + count)
    assert 1 <= len(found) + (count == 0) <= 14
    assert all(start <= tick <= start + count for tick in found)


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0, "0 ms"), (-5, "0 ms"), (999.6, "1.0 s"), (12_345, "12.3 s"), (123_000, "2 min 3 s"), (90_061_000, "1 d 1 h")],
)
def test_durations_have_their_two_largest_units(ms: float, words: str) -> None:
    assert duration(ms) == words


def test_moments_of_today_leave_out_the_date() -> None:
    assert moment(NOW_MS) == "2023-11-14 22:13:20 UTC"
    assert moment(NOW_MS, NOW_MS + 60_000) == "22:13:20 UTC"
    assert moment(NOW_MS, NOW_MS + 86_400_000) == "2023-11-14 22:13:20 UTC"
    assert moment(10**18) == "1000000000000000000"
    assert plural(1, "offset") == "1 offset"
    assert plural(1234, "offset") == "1,234 offsets"
