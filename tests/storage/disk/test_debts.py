"""Pending syncs: which of them a sync of a file covers, their order, and that a later one stays pending."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from semel_storage.disk.debts import Debts, directory_of


def paths(debts: Debts, path: str) -> list[str]:
    return [debt.path for debt in debts.of(path)]


def test_files_are_paid_before_names_and_a_directory_before_the_one_above_it() -> None:
    debts = Debts()
    debts.add_names("data")
    debts.add_names("data/t-0")
    debts.add_file("data/t-0/id")
    debts.add_file("data/t-1/id")
    assert paths(debts, "data/t-0/log") == ["data/t-0/id", "data/t-0", "data"]
    assert paths(debts, "data/t-1/log") == ["data/t-1/id", "data"]
    assert paths(debts, "data/store") == ["data"]
    assert paths(debts, "other/log") == []


def test_a_debt_that_comes_while_a_thread_pays_it_stays() -> None:
    debts = Debts()
    debts.add_names("d")
    debts.add_file("d/id")
    paying = debts.of("d/log")
    debts.add_names("d")
    debts.paid(paying)
    assert paths(debts, "d/log") == ["d"], "the thread may have begun before the change"
    debts.paid(debts.of("d/log"))
    assert debts.of("d/log") == []


def test_a_directory_that_is_renamed_owes_nothing_under_its_old_name() -> None:
    debts = Debts()
    debts.add_names("data/t-0")
    debts.add_file("data/t-0/id")
    debts.add_names("data")
    debts.forget("data/t-0")
    assert paths(debts, "data/t-0/log") == ["data"]


PLACES = st.sampled_from(["a/x", "a/y", "a/b/x", "a/b/c/x", "d/x"])


@given(steps=st.lists(st.tuples(st.sampled_from(["file", "names", "begin", "end"]), PLACES), max_size=40))
def test_what_was_added_after_the_last_payment_began_is_owed(steps: list[tuple[str, str]]) -> None:
    debts, paying, owed = Debts(), [], dict[str, None]()
    begun: dict[str, None] = {}
    for step, place in steps:
        if step == "file":
            debts.add_file(place)
            owed[place] = None
            begun.pop(place, None)
        elif step == "names":
            debts.add_names(directory_of(place))
            owed[directory_of(place)] = None
            begun.pop(directory_of(place), None)
        elif step == "begin" and not paying:
            paying = debts.of(place)
            begun = dict.fromkeys(debt.path for debt in paying)
        elif step == "end":
            debts.paid(paying)
            for path in begun:
                owed.pop(path, None)
            paying, begun = [], {}
    found = {debt.path for place in ("a/x", "a/b/x", "a/b/c/x", "d/x") for debt in debts.of(place)}
    assert found == set(owed)
