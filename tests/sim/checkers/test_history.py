"""A history can be encoded and decoded, and histories of several processes can be merged."""

from __future__ import annotations

from sim.checkers import check_all
from sim.checkers.history_builder import T0, HistoryBuilder
from sim.history import History


def a_history() -> HistoryBuilder:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.transaction(shop, ("a", 0, 0))
    reader = builder.consumer(group="g")
    reader.assigned([T0], 1, [0])
    reader.polled(T0, [0], ["a"])
    reader.offsets_committed(reader.committing_offsets("g", {T0: 1}))
    builder.ends([(0, "a")])
    builder.final.groups["g"] = {T0: 1}
    return builder


def test_a_decoded_history_equals_the_encoded_one() -> None:
    builder = a_history()
    again = History.decode(builder.history.encode())
    assert again.events == builder.history.events
    assert again.topics == builder.history.topics
    assert check_all(again, builder.final) == []


def test_histories_of_several_processes_keep_their_operations_apart() -> None:
    one, two = a_history(), HistoryBuilder()
    bank = two.recorder("bank")
    two.transaction(bank, ("b", 0, 2), end="aborted")
    both = History.decode(one.history.encode(), two.history.encode())
    one.ends([(0, "a")], aborted=[(2, "b")])
    assert check_all(both, one.final) == []
    one.ends([(0, "a"), (2, "b")])
    assert [anomaly.checker for anomaly in check_all(both, one.final)] == ["aborted-read"]
