"""lost-write, unseen, duplicate, inconsistent-offsets, phantom-read."""

from __future__ import annotations

from sim.checkers.history_builder import T0, HistoryBuilder


def test_acknowledged_and_stored_writes_are_fine() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.send(shop, "a", 0)
    builder.send(shop, "b", 1)
    builder.ends([(0, "a"), (1, "b")])
    assert builder.found() == []


def test_an_acknowledged_write_missing_amid_others_is_lost() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.send(shop, "a", 0)
    builder.send(shop, "b", 1)
    builder.ends([(1, "b")])
    assert builder.found() == ["lost-write"]


def test_an_acknowledged_write_missing_at_the_end_is_unseen() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.send(shop, "a", 0)
    builder.send(shop, "b", 1)
    builder.ends([(0, "a")])
    assert builder.found() == ["unseen"]


def test_a_record_that_a_consumer_saw_must_stay_even_if_unacknowledged() -> None:
    builder = HistoryBuilder()
    builder.send(builder.recorder("shop"), "a")
    builder.consumer().polled(T0, [0], ["a"])
    builder.ends([])
    assert builder.found() == ["unseen"]


def test_a_write_that_was_not_acknowledged_may_be_there_or_not() -> None:
    for rows in ([], [(0, "a")]):
        builder = HistoryBuilder()
        shop = builder.recorder("shop")
        shop.not_stored(builder.send(shop, "a"), "timed out")
        builder.ends(rows)
        assert builder.found() == []


def test_with_acks_1_a_broker_that_is_alone_keeps_what_it_acknowledged_and_with_acks_0_it_need_not() -> None:
    for acks, expected in ((1, ["unseen"]), (0, [])):
        builder = HistoryBuilder()
        builder.history.has_followers = False
        shop = builder.recorder("shop")
        shop.stored(shop.sending("t", 0, value="a", acks=acks, idempotent=False), 0, 0)
        builder.ends([])
        assert builder.found() == expected


def test_with_acks_1_a_leader_that_dies_may_take_an_acknowledged_write_from_its_followers() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    shop.stored(shop.sending("t", 0, value="a", acks=1, idempotent=False), 0, 0)
    builder.ends([])
    assert builder.found() == []


def test_deleted_records_may_be_gone_but_not_those_behind_them() -> None:
    for detail, expected in (("0:1", []), ("0:-1", []), ("0:0", ["lost-write"]), ("1:1", ["lost-write"])):
        builder = HistoryBuilder()
        shop = builder.recorder("shop")
        builder.send(shop, "a", 0)
        builder.send(shop, "b", 1)
        boss = builder.recorder("boss")
        boss.changed(boss.asking("delete-records", "t", detail))
        builder.ends([(1, "b")], start_offset=1)
        assert [name for name in builder.found() if name != "lost-topic"] == expected, detail


def test_retention_takes_only_what_is_below_the_start() -> None:
    for missing, expected in ((0, []), (1, ["lost-write"])):
        builder = HistoryBuilder(cleanup="delete")
        shop = builder.recorder("shop")
        for offset, value in enumerate("abc"):
            builder.send(shop, value, offset)
        builder.ends([(offset, value) for offset, value in enumerate("abc") if offset != missing])
        assert builder.found() == expected


def test_one_value_at_two_offsets_is_a_duplicate_unless_the_sender_was_not_idempotent() -> None:
    for idempotent in (True, False):
        builder = HistoryBuilder()
        builder.send(builder.recorder("shop"), "a", 1, idempotent=idempotent)
        builder.ends([(0, "a"), (1, "a")])
        assert builder.found() == (["duplicate"] if idempotent else [])


def test_a_value_at_another_offset_than_acknowledged_is_a_duplicate() -> None:
    builder = HistoryBuilder(cleanup="compact")
    builder.send(builder.recorder("shop"), "a", 7, key="k")
    builder.consumer().polled(T0, [2], ["a"])
    builder.ends([(7, "a")], keys={7: "k"})
    assert builder.found() == ["duplicate"]


def test_a_duplicate_that_only_a_consumer_saw_counts() -> None:
    builder = HistoryBuilder()
    builder.send(builder.recorder("shop"), "a", 0)
    builder.consumer().polled(T0, [0, 1], ["a", "a"])
    builder.ends([(0, "a")])
    assert builder.found() == ["duplicate"]


def test_one_offset_with_two_values_is_inconsistent() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.send(shop, "a")
    builder.send(shop, "b")
    builder.consumer().polled(T0, [0], ["a"])
    builder.ends([(0, "b"), (1, "a")])
    assert "inconsistent-offsets" in builder.found()


def test_a_write_acknowledged_at_the_offset_of_another_one() -> None:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    builder.send(shop, "a", 1)
    builder.send(shop, "b", 2)
    builder.ends([(0, "a"), (1, "b")])
    assert builder.found() == ["duplicate", "inconsistent-offsets"]


def test_a_value_that_was_never_sent_or_never_left_the_client_is_a_phantom() -> None:
    builder = HistoryBuilder()
    builder.ends([(0, "?")])
    assert builder.found() == ["phantom-read"]

    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    shop.not_stored(builder.send(shop, "a"), "too large", is_certain=True)
    builder.ends([(0, "a")])
    assert builder.found() == ["phantom-read"]


def test_a_record_in_another_partition_than_it_was_sent_to_is_a_phantom() -> None:
    builder = HistoryBuilder()
    builder.send(builder.recorder("shop"), "a", partition=1)
    builder.ends([(0, "a")])
    assert builder.found() == ["phantom-read"]


def test_compaction_keeps_the_last_of_each_key() -> None:
    for rows, expected in (
        ([(1, "x2"), (2, "y1")], []),
        ([(0, "x1"), (1, "x2"), (2, "y1")], []),
        ([(2, "y1")], ["lost-write"]),
        ([(0, "x1"), (2, "y1")], ["lost-write"]),
    ):
        builder = HistoryBuilder(cleanup="compact")
        shop = builder.recorder("shop")
        builder.send(shop, "x1", 0, key="x")
        builder.send(shop, "x2", 1, key="x")
        builder.send(shop, "y1", 2, key="y")
        builder.ends(rows, keys={0: "x", 1: "x", 2: "y"})
        assert builder.found() == expected, rows


def test_an_unacknowledged_tombstone_may_have_deleted_its_key() -> None:
    for rows, certain, expected in (
        ([], False, []),
        ([], True, ["lost-write"]),
        ([(0, "x1")], False, ["lost-write"]),
    ):
        builder = HistoryBuilder(cleanup="compact")
        shop = builder.recorder("shop")
        builder.send(shop, "x1", 0, key="x")
        builder.send(shop, "x2", 1, key="x")
        op = builder.send(shop, None, key="x")
        shop.not_stored(op, "no answer", is_certain=certain)
        builder.send(shop, "y", 3, key="y")
        builder.ends([*rows, (3, "y")], keys={0: "x", 3: "y"})
        assert builder.found() == expected, rows


def test_a_tombstone_may_go_together_with_its_records_but_not_before() -> None:
    for rows, expected in (([(1, None)], []), ([], []), ([(0, "x1")], ["lost-write"])):
        builder = HistoryBuilder(cleanup="compact")
        shop = builder.recorder("shop")
        builder.send(shop, "x1", 0, key="x")
        builder.send(shop, None, 1, key="x")
        builder.ends(rows, keys={0: "x", 1: "x"})
        assert builder.found() == expected, rows
