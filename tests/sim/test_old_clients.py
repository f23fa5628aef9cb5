"""Late requests of old clients do exactly the harm that docs/old-clients.md lists, and none with transaction version 2.

`make sim-exhaustive` runs every case. Here run the cases with anomalies, all similar ones, and some of the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.old_clients.cases import API_KEYS, OFFSETS, PRODUCE, ClientKind, LateRequestCase, cases
from sim.old_clients.known import KNOWN
from sim.old_clients.table import run_case, tabulate

DOCS = Path(__file__).parents[2] / "docs" / "old-clients.md"
STRIDE = 29


def is_doubtful(case: LateRequestCase) -> bool:
    return case.gives_up and case.held in (PRODUCE, OFFSETS)


def found_in(chosen: list[LateRequestCase]) -> list[tuple[LateRequestCase, list[str]]]:
    found = []
    for case in chosen:
        _, anomalies, failures = run_case(case)
        assert not failures, (case, failures)
        found.append((case, anomalies))
    return found


@pytest.mark.thorough
def test_a_client_that_keeps_its_epoch_has_exactly_the_known_anomalies() -> None:
    chosen = [case for case in cases("keeps its epoch") if is_doubtful(case) and case.by_role]
    table = tabulate(found_in(chosen))
    assert {*table} == {*KNOWN}
    assert table.total() == len(KNOWN)


def test_a_client_that_keeps_its_epoch_has_no_other_anomalies() -> None:
    chosen = [case for case in cases("keeps its epoch") if not (is_doubtful(case) and case.by_role)][:: STRIDE // 2]
    assert {case.held for case in chosen} == {*API_KEYS}
    assert not tabulate(found_in(chosen))


@pytest.mark.thorough
@pytest.mark.parametrize("client", ["version 2", "bumps its epoch", "semel", "semel, version 1"])
def test_clients_that_raise_their_epoch_have_no_anomalies(client: ClientKind) -> None:
    every = list(cases(client))
    doubtful = [case for case in every if is_doubtful(case) and case.by_role]
    assert not tabulate(found_in([*doubtful[::3], *every[::STRIDE]]))


def test_the_document_has_these_anomalies_and_no_others() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith(("| Produce", "| TxnOffsetCommit"))]
    assert len(rows) == len({(late, moment, anomalies) for late, moment, _, anomalies in KNOWN})
    for late, moment, follows, anomalies in KNOWN:
        assert any(
            all(part in row for part in (late, moment, follows, *(f"`{each}`" for each in anomalies.split(", "))))
            for row in rows
        ), (late, moment, follows, anomalies)
