"""The audit of a counting application's output."""

from __future__ import annotations

import json

import pytest

from tools.strangers.counting import audit, audit_lost


def output(*rows: tuple[str, int, int]) -> str:
    lines = [json.dumps([key, {"number": number, "seen": seen}]) for key, number, seen in rows]
    return "\n".join(["a line of a log", *lines])


def test_inputs_once_and_counts_without_gaps_pass() -> None:
    audit(output(("a", 0, 1), ("b", 1, 1), ("a", 2, 2)), records=3)


def test_a_lost_input_is_named() -> None:
    with pytest.raises(AssertionError, match=r"1 lost \[1\], 0 more than once"):
        audit(output(("a", 0, 1), ("a", 2, 2)), records=3)


def test_a_duplicated_input_is_named() -> None:
    with pytest.raises(AssertionError, match=r"0 lost \[\], 1 more than once \[0\]"):
        audit(output(("a", 0, 1), ("a", 0, 2), ("b", 1, 1)), records=2)


def test_a_descending_count_is_an_error() -> None:
    with pytest.raises(AssertionError, match="the counts of a are not 1, 2, 3"):
        audit(output(("a", 0, 1), ("a", 1, 1)), records=2)


def test_an_application_without_state_needs_no_counts() -> None:
    audit('["a", {"number": 0}]\n["a", {"number": 1}]', records=2)


def test_a_duplicated_input_is_not_lost() -> None:
    audit_lost(output(("a", 0, 1), ("a", 0, 2), ("b", 1, 1)), records=2)
    with pytest.raises(AssertionError, match=r"of 3: 1 lost \[2\]"):
        audit_lost(output(("a", 0, 1), ("b", 1, 1)), records=3)
