"""A history survives being written down, and several become one."""

from __future__ import annotations

from sim.checkers import check_all
from sim.checkers.telling import T0, Tale
from sim.history import History


def a_tale() -> Tale:
    tale = Tale()
    shop = tale.witness("shop")
    tale.transaction(shop, ("a", 0, 0))
    reader = tale.consumer(group="g")
    reader.assigned([T0], 1, [0])
    reader.polled(T0, [0], ["a"])
    reader.offsets_committed(reader.committing_offsets("g", {T0: 1}))
    tale.ends([(0, "a")])
    tale.final.groups["g"] = {T0: 1}
    return tale


def test_a_history_comes_back_as_it_was() -> None:
    tale = a_tale()
    again = History.decode(tale.history.encode())
    assert again.events == tale.history.events
    assert again.topics == tale.history.topics
    assert check_all(again, tale.final) == []


def test_histories_of_several_processes_keep_their_operations_apart() -> None:
    one, two = a_tale(), Tale()
    bank = two.witness("bank")
    two.transaction(bank, ("b", 0, 2), end="aborted")
    both = History.decode(one.history.encode(), two.history.encode())
    one.ends([(0, "a")], aborted=[(2, "b")])
    assert check_all(both, one.final) == []
    one.ends([(0, "a"), (2, "b")])
    assert [anomaly.checker for anomaly in check_all(both, one.final)] == ["aborted-read"]
