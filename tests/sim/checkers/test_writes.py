"""lost-write, unseen, duplicate, inconsistent-offsets, phantom-read."""

from __future__ import annotations

from sim.checkers.telling import T0, Tale


def test_what_is_acknowledged_and_there_is_in_order() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    tale.send(shop, "a", 0)
    tale.send(shop, "b", 1)
    tale.ends([(0, "a"), (1, "b")])
    assert tale.found() == []


def test_an_acknowledged_write_missing_amid_others_is_lost() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    tale.send(shop, "a", 0)
    tale.send(shop, "b", 1)
    tale.ends([(1, "b")])
    assert tale.found() == ["lost-write"]


def test_an_acknowledged_write_missing_at_the_end_is_unseen() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    tale.send(shop, "a", 0)
    tale.send(shop, "b", 1)
    tale.ends([(0, "a")])
    assert tale.found() == ["unseen"]


def test_what_a_consumer_saw_must_stay_even_if_nobody_acknowledged_it() -> None:
    tale = Tale()
    tale.send(tale.witness("shop"), "a")
    tale.consumer().polled(T0, [0], ["a"])
    tale.ends([])
    assert tale.found() == ["unseen"]


def test_a_write_that_was_not_acknowledged_may_be_there_or_not() -> None:
    for rows in ([], [(0, "a")]):
        tale = Tale()
        shop = tale.witness("shop")
        shop.not_stored(tale.send(shop, "a"), "timed out")
        tale.ends(rows)
        assert tale.found() == []


def test_with_acks_1_a_broker_that_is_alone_keeps_what_it_acknowledged_and_with_acks_0_it_need_not() -> None:
    for acks, expected in ((1, ["unseen"]), (0, [])):
        tale = Tale()
        tale.history.has_followers = False
        shop = tale.witness("shop")
        shop.stored(shop.sending("t", 0, value="a", acks=acks, idempotent=False), 0, 0)
        tale.ends([])
        assert tale.found() == expected


def test_with_acks_1_a_leader_that_dies_may_take_an_acknowledged_write_from_its_followers() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    shop.stored(shop.sending("t", 0, value="a", acks=1, idempotent=False), 0, 0)
    tale.ends([])
    assert tale.found() == []


def test_what_somebody_deleted_may_be_gone_and_nothing_behind_it() -> None:
    for detail, expected in (("0:1", []), ("0:-1", []), ("0:0", ["lost-write"]), ("1:1", ["lost-write"])):
        tale = Tale()
        shop = tale.witness("shop")
        tale.send(shop, "a", 0)
        tale.send(shop, "b", 1)
        boss = tale.witness("boss")
        boss.changed(boss.asking("delete-records", "t", detail))
        tale.ends([(1, "b")], start_offset=1)
        assert [name for name in tale.found() if name != "lost-topic"] == expected, detail


def test_retention_takes_only_what_is_below_the_start() -> None:
    for missing, expected in ((0, []), (1, ["lost-write"])):
        tale = Tale(cleanup="delete")
        shop = tale.witness("shop")
        for offset, value in enumerate("abc"):
            tale.send(shop, value, offset)
        tale.ends([(offset, value) for offset, value in enumerate("abc") if offset != missing])
        assert tale.found() == expected


def test_one_value_at_two_offsets_is_a_duplicate_unless_the_sender_was_not_idempotent() -> None:
    for idempotent in (True, False):
        tale = Tale()
        tale.send(tale.witness("shop"), "a", 1, idempotent=idempotent)
        tale.ends([(0, "a"), (1, "a")])
        assert tale.found() == (["duplicate"] if idempotent else [])


def test_a_value_elsewhere_than_its_sender_was_told_is_a_duplicate() -> None:
    tale = Tale(cleanup="compact")
    tale.send(tale.witness("shop"), "a", 7, key="k")
    tale.consumer().polled(T0, [2], ["a"])
    tale.ends([(7, "a")], keys={7: "k"})
    assert tale.found() == ["duplicate"]


def test_a_duplicate_that_only_a_consumer_saw_counts() -> None:
    tale = Tale()
    tale.send(tale.witness("shop"), "a", 0)
    tale.consumer().polled(T0, [0, 1], ["a", "a"])
    tale.ends([(0, "a")])
    assert tale.found() == ["duplicate"]


def test_one_offset_with_two_values_is_inconsistent() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    tale.send(shop, "a")
    tale.send(shop, "b")
    tale.consumer().polled(T0, [0], ["a"])
    tale.ends([(0, "b"), (1, "a")])
    assert "inconsistent-offsets" in tale.found()


def test_a_write_told_to_be_where_another_one_is() -> None:
    tale = Tale()
    shop = tale.witness("shop")
    tale.send(shop, "a", 1)
    tale.send(shop, "b", 2)
    tale.ends([(0, "a"), (1, "b")])
    assert tale.found() == ["duplicate", "inconsistent-offsets"]


def test_what_nobody_sent_or_what_never_left_is_a_phantom() -> None:
    tale = Tale()
    tale.ends([(0, "?")])
    assert tale.found() == ["phantom-read"]

    tale = Tale()
    shop = tale.witness("shop")
    shop.not_stored(tale.send(shop, "a"), "too large", is_certain=True)
    tale.ends([(0, "a")])
    assert tale.found() == ["phantom-read"]


def test_a_record_in_another_partition_than_it_was_sent_to_is_a_phantom() -> None:
    tale = Tale()
    tale.send(tale.witness("shop"), "a", partition=1)
    tale.ends([(0, "a")])
    assert tale.found() == ["phantom-read"]


def test_compaction_keeps_the_last_of_each_key() -> None:
    for rows, expected in (
        ([(1, "x2"), (2, "y1")], []),
        ([(0, "x1"), (1, "x2"), (2, "y1")], []),
        ([(2, "y1")], ["lost-write"]),
        ([(0, "x1"), (2, "y1")], ["lost-write"]),
    ):
        tale = Tale(cleanup="compact")
        shop = tale.witness("shop")
        tale.send(shop, "x1", 0, key="x")
        tale.send(shop, "x2", 1, key="x")
        tale.send(shop, "y1", 2, key="y")
        tale.ends(rows, keys={0: "x", 1: "x", 2: "y"})
        assert tale.found() == expected, rows


def test_a_tombstone_that_nobody_has_acknowledged_may_have_deleted_its_key() -> None:
    for rows, certain, expected in (
        ([], False, []),
        ([], True, ["lost-write"]),
        ([(0, "x1")], False, ["lost-write"]),
    ):
        tale = Tale(cleanup="compact")
        shop = tale.witness("shop")
        tale.send(shop, "x1", 0, key="x")
        tale.send(shop, "x2", 1, key="x")
        op = tale.send(shop, None, key="x")
        shop.not_stored(op, "no answer", is_certain=certain)
        tale.send(shop, "y", 3, key="y")
        tale.ends([*rows, (3, "y")], keys={0: "x", 3: "y"})
        assert tale.found() == expected, rows


def test_a_tombstone_may_go_with_all_that_it_deleted_but_not_before() -> None:
    for rows, expected in (([(1, None)], []), ([], []), ([(0, "x1")], ["lost-write"])):
        tale = Tale(cleanup="compact")
        shop = tale.witness("shop")
        tale.send(shop, "x1", 0, key="x")
        tale.send(shop, None, 1, key="x")
        tale.ends(rows, keys={0: "x", 1: "x"})
        assert tale.found() == expected, rows
