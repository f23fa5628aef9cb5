"""docs/data/compatibility.toml has whole rows of short cells, and the results of the strangers' tier are shown."""

from __future__ import annotations

from tools.strangers.record import decoded
from tools.website.made.compatibility import RESULTS, clients, differences, runs, strangers, tables

CELL_MAX = 330


def test_each_row_has_a_cell_for_each_column() -> None:
    for each in tables():
        assert [row for row in each.rows if len(row) != len(each.columns)] == [], each.title


def test_cells_are_short() -> None:
    assert [cell for each in tables() for row in each.rows for cell in row if len(cell) > CELL_MAX] == []


def test_each_kind_has_its_tables() -> None:
    shown = {"difference": differences(), "client": f"### Limits of clients\n\n{clients()}", "run": runs()}
    for each in tables():
        assert f"### {each.title}\n" in shown[each.kind]
        assert all(f"| {' | '.join(row)} |" in shown[each.kind] for row in each.rows)
    assert len({each.title for each in tables()}) == len(tables())


def test_each_stored_result_has_a_row() -> None:
    results = [decoded(path.read_bytes()) for path in RESULTS.glob("*.json")]
    assert len(results) > 60
    text = strangers()
    assert all(f"\n| {each.title} | {each.versions} | {each.broker}, " in text for each in results)
