"""Counts the anomalies of many cases: the table in docs/old-clients.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sim.old_clients.cases import LateRequestCase
from sim.old_clients.play import play

Row = tuple[str, str, str, str]
"""The late request; when it arrived; the next transaction; anomalies, separated by commas."""


def run_case(case: LateRequestCase) -> tuple[LateRequestCase, list[str], list[str]]:
    """The case, the names of its anomalies, and its failures."""
    result = play(case)
    return case, sorted(result.anomalies), result.failures


def row_of(case: LateRequestCase, anomalies: list[str]) -> Row:
    reuses = ", its sequence numbers used again" if case.reuses else ""
    return (
        f"{case.held}, given up{reuses}" if case.gives_up else case.held,
        case.moment,
        case.follows,
        ", ".join(anomalies),
    )


def tabulate(found: Iterable[tuple[LateRequestCase, list[str]]]) -> Counter[Row]:
    """The number of cases with anomalies, by row."""
    return Counter(row_of(case, anomalies) for case, anomalies in found if anomalies)
