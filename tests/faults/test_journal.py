"""Tests of journals: whole events of a killed process are kept, and the journals of all processes are merged."""

from __future__ import annotations

from pathlib import Path

from sim.events import Sending, Stored

from faults.journal import journal, read


def test_events_of_several_processes_are_one_history_in_order_of_time(tmp_path: Path) -> None:
    one, other = journal(tmp_path / "a.jsonl"), journal(tmp_path / "b.jsonl")
    left, right = one.recorder("a"), other.recorder("b")
    first = left.sending("t", 0, value="x")
    second = right.sending("t", 0, value="y")
    right.stored(second, 0, 0)
    left.stored(first, 0, 1)
    events = read([tmp_path / "a.jsonl", tmp_path / "b.jsonl"]).events
    assert [type(event) for event in events] == [Sending, Sending, Stored, Stored]
    assert [event.client for event in events] == ["a#1", "b#1", "b#1", "a#1"]
    assert events[0].op == events[3].op
    assert events[1].op == events[2].op
    assert events[0].op != events[1].op, "operations of two processes differ"


def test_what_was_written_before_a_kill_is_read_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    recorder = journal(path).recorder("a")
    recorder.sending("t", 0, value="x")
    recorder.sending("t", 0, value="y")
    path.write_bytes(path.read_bytes()[:-10])
    assert [event.value for event in read([path]).events] == ["x"]


def test_a_process_that_did_nothing_leaves_an_empty_history(tmp_path: Path) -> None:
    journal(tmp_path / "a.jsonl")
    assert read([tmp_path / "a.jsonl"]).events == []
