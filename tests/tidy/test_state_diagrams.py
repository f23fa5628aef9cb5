"""Each table of transitions has a diagram on the site, and a row in docs/states.md."""

from __future__ import annotations

from tools.website import ROOT
from tools.website.made.states import DIAGRAMS, drawn, modules_with_tables, part


def test_each_table_is_named_by_the_page_and_drawn_on_the_site() -> None:
    page, drawings = (ROOT / "docs/states.md").read_text(), part()
    for diagram in DIAGRAMS:
        assert f"| {diagram.title} | [`{diagram.path}`](../{diagram.path}) |" in page
        assert f"## {diagram.title}\n" in drawings
    assert drawings.count("```mermaid") == len(DIAGRAMS)


def test_each_table_has_a_diagram() -> None:
    assert sorted(modules_with_tables()) == sorted(diagram.module for diagram in DIAGRAMS)


def test_each_state_can_be_reached() -> None:
    for diagram in DIAGRAMS:
        table = diagram.table
        reached = [next(state for state in table if state.name == diagram.first)]
        for state in reached:
            reached += [then for then in table[state] if then not in reached]
        assert sorted(state.name for state in reached) == sorted(state.name for state in table), diagram.title


def test_quiet_states_are_named_in_a_sentence() -> None:
    member = next(diagram for diagram in DIAGRAMS if "FAILED" in diagram.quiet)
    lines = drawn(member)
    assert not any("--> FAILED" in line or "--> STOPPED" in line for line in lines)
    assert "Not drawn: every state leads to `STOPPED` (stopped)." in lines
    (told,) = [line for line in lines if "leads to `FAILED`" in line]
    assert "`ADOPTING`" in told
