"""The progress display: one line per batch, a table that is redrawn, or JSON."""

from __future__ import annotations

import io
import json

import pytest
from pyspark_semel.pipeline.readings import Reading, Totals
from pyspark_semel.pipeline.screen import PlainLines, TableScreen, screen
from rich.console import Console

FIRST = Reading(
    query="delays",
    batch=4,
    rows_in=1_200,
    rows_out=30,
    rows_per_s=800.0,
    lag=5_000,
    position=7_000,
    batch_ms=1_500,
    watermark="2013-01-02T00:00:00.000Z",
    late_rows=2,
)
BARE = Reading(
    query="bare",
    batch=0,
    rows_in=1,
    rows_out=-1,
    rows_per_s=0.5,
    lag=-1,
    position=0,
    batch_ms=90,
    watermark="",
    late_rows=0,
)


def totals() -> dict[str, Totals]:
    found = {"delays": Totals(), "bare": Totals(), "silent": Totals()}
    for reading in (FIRST, BARE):
        assert found[reading.query].add(reading)
    return found


def test_without_a_terminal_each_batch_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown = screen("auto", Console(file=io.StringIO()))
    assert isinstance(shown, PlainLines)
    with shown:
        shown.show_batch(FIRST, totals())
        shown.show_batch(BARE, totals())
        shown.show_message("stopped")
    assert capsys.readouterr().out.splitlines() == [
        (
            "delays batch 4: 1,200 rows in, 30 out, 800/s, 1.5 s, 5,000 behind, watermark 2013-01-02T00:00:00.000Z, "
            "2 too late, 1,200 in all"
        ),
        "bare batch 0: 1 rows in, 0/s, 0.1 s, 1 in all",
        "stopped",
    ]


def test_json_lines_have_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    shown = screen("json", Console(file=io.StringIO()))
    shown.show_batch(FIRST, totals())
    shown.show_message("stopped")
    batch, words = map(json.loads, capsys.readouterr().out.splitlines())
    assert (batch["query"], batch["batch"], batch["position"], batch["late_rows"]) == ("delays", 4, 7_000, 2)
    assert words == {"says": "stopped"}


def test_a_terminal_shows_a_table_with_all_queries() -> None:
    file = io.StringIO()
    shown = screen("auto", Console(file=file, force_terminal=True, width=140))
    assert isinstance(shown, TableScreen)
    with shown:
        shown.show_batch(FIRST, totals())
        shown.show_message("asked to stop")
    text = file.getvalue()
    for cell in ("asked to stop", "delays", "1,200", "5,000", "2013-01-02", "bare", "silent", "starting"):
        assert cell in text
