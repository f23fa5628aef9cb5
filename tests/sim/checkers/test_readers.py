"""poll-skip, nonmonotonic-poll, nonmonotonic-send, lost-group-offset, double-assignment, zombie-commit."""

from __future__ import annotations

from sim.checkers.telling import T0, T1, Tale
from sim.final import Replica


def stored(*values: str) -> Tale:
    tale = Tale()
    shop = tale.witness("shop")
    for offset, value in enumerate(values):
        tale.send(shop, value, offset)
    tale.ends(list(enumerate(values)))
    return tale


def test_consecutive_polls_without_gaps_are_in_order() -> None:
    tale = stored("a", "b", "c")
    reader = tale.consumer()
    reader.assigned([T0], positions=[0])
    reader.polled(T0, [0], ["a"])
    reader.polled(T0, [1, 2], ["b", "c"])
    assert tale.found() == []


def test_a_record_jumped_over_is_a_skip() -> None:
    tale = stored("a", "b", "c")
    reader = tale.consumer()
    reader.polled(T0, [0], ["a"])
    reader.polled(T0, [2], ["c"])
    assert tale.found() == ["poll-skip"]


def test_a_record_between_the_first_position_and_the_first_poll_is_a_skip() -> None:
    tale = stored("a", "b")
    reader = tale.consumer()
    reader.assigned([T0], positions=[0])
    reader.polled(T0, [1], ["b"])
    assert tale.found() == ["poll-skip"]


def test_what_somebody_deleted_is_no_skip_even_where_it_came_back() -> None:
    for detail, expected in (("0:2", []), ("0:1", ["poll-skip"]), ("1:2", ["poll-skip"])):
        tale = stored("a", "b", "c")
        boss, reader = tale.witness("boss"), tale.consumer()
        reader.polled(T0, [0], ["a"])
        boss.changed(boss.asking("delete-records", "t", detail))
        reader.polled(T0, [2], ["c"])
        assert tale.found() == expected


def test_what_one_replica_has_compacted_is_no_skip_where_another_one_has_it_still() -> None:
    for skipped, replicas, expected in ((0, 3, []), (0, 1, ["poll-skip"]), (2, 3, []), (1, 3, ["poll-skip"])):
        tale = Tale(cleanup="compact")
        shop, reader = tale.witness("shop"), tale.consumer()
        for offset, (key, value) in enumerate([("x", "x0"), ("x", "x1"), ("y", None), ("z", "z3")]):
            tale.send(shop, value, offset, key=key)
        rows = [(0, "x0"), (1, "x1"), (2, None), (3, "z3")]
        given = [row for row in rows if row[0] != skipped]
        reader.assigned([T0], positions=[0])
        reader.polled(T0, [offset for offset, _ in given], [value for _, value in given])
        tale.ends(rows, keys={0: "x", 1: "x", 2: "y", 3: "z"})
        tale.final.replicas[T0] = [Replica(broker=f"broker-{number}") for number in range(replicas)]
        assert tale.found() == expected, skipped


def around_an_aborted_one(cleanup: str, *, read_committed: bool) -> Tale:
    """A reader that is given "a" and "c", and not "b", which was aborted between them."""
    tale = Tale(cleanup=cleanup)
    shop = tale.witness("shop")
    tale.transaction(shop, ("a", 0, 0))
    tale.transaction(shop, ("b", 0, 2), end="aborted")
    tale.transaction(shop, ("c", 0, 4))
    reader = tale.consumer(read_committed=read_committed)
    reader.polled(T0, [0], ["a"])
    reader.polled(T0, [4], ["c"])
    tale.ends([(0, "a"), (4, "c")], aborted=[(2, "b")], keys={0: "x", 2: "y", 4: "z"})
    return tale


def test_aborted_records_that_one_replica_has_compacted_are_no_skip_either() -> None:
    for replicas, expected in ((3, []), (1, ["poll-skip"])):
        tale = around_an_aborted_one("compact", read_committed=False)
        tale.final.replicas[T0] = [Replica(broker=f"broker-{number}") for number in range(replicas)]
        assert tale.found() == expected


def test_aborted_records_and_markers_are_no_skip_for_readers_of_committed_ones() -> None:
    for read_committed, expected in ((True, []), (False, ["poll-skip"])):
        assert around_an_aborted_one("delete", read_committed=read_committed).found() == expected


def test_a_record_twice_is_nonmonotonic_unless_the_partition_was_given_anew() -> None:
    for again, expected in ((False, ["nonmonotonic-poll"]), (True, [])):
        tale = stored("a", "b")
        reader = tale.consumer()
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        if again:
            reader.assigned([T0], positions=[1])
        reader.polled(T0, [1], ["b"])
        assert tale.found() == expected


def test_a_group_must_not_commit_over_what_no_member_was_given() -> None:
    for given, expected in (([0, 1], []), ([1], ["poll-skip"])):
        tale = stored("a", "b")
        reader = tale.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, given, ["ab"[offset] for offset in given])
        reader.offsets_committed(reader.committing_offsets("g", {T0: 2}))
        tale.final.groups["g"] = {T0: 2}
        assert tale.found() == expected


def test_a_member_is_given_records_of_what_it_owns_only() -> None:
    for back, expected in ((False, []), (True, ["unowned-poll"])):
        tale = stored("a", "b")
        reader = tale.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0], ["a"])
        if back:
            reader.revoked([T0])
        reader.polled(T0, [1], ["b"])
        assert tale.found() == expected


def test_sends_of_one_producer_are_stored_in_their_order() -> None:
    tale = Tale()
    shop, bank = tale.witness("shop"), tale.witness("bank")
    first = shop.sending("t", 0, value="a")
    second = shop.sending("t", 0, value="b")
    shop.stored(second, 0, 0)
    shop.stored(first, 0, 1)
    tale.send(bank, "c", 3)
    tale.ends([(0, "b"), (1, "a"), (3, "c")])
    assert tale.found() == ["nonmonotonic-send"]


def test_the_last_acknowledged_commit_is_what_a_group_has() -> None:
    for at_the_end, expected in ((2, []), (1, ["lost-group-offset"]), (None, ["lost-group-offset"])):
        tale = stored("a", "b")
        reader = tale.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        for offset in (1, 2):
            reader.offsets_committed(reader.committing_offsets("g", {T0: offset}))
        tale.final.groups["g"] = {} if at_the_end is None else {T0: at_the_end}
        assert tale.found() == expected


def test_a_commit_nobody_answered_may_take_effect_whenever_it_likes() -> None:
    for at_the_end in (1, 2):
        tale = stored("a", "b")
        reader = tale.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        reader.committing_offsets("g", {T0: 1})
        reader.offsets_committed(reader.committing_offsets("g", {T0: 2}))
        tale.final.groups["g"] = {T0: at_the_end}
        assert tale.found() == []


def test_an_offset_that_nobody_committed_must_not_be_seen() -> None:
    tale = stored("a", "b")
    reader = tale.consumer(group="g")
    reader.assigned([T0])
    reader.polled(T0, [0, 1], ["a", "b"])
    reader.offsets_refused(reader.committing_offsets("g", {T0: 2}))
    reader.offsets_seen("g", {T0: 2}, since_ms=tale.tick())
    assert tale.found() == ["lost-group-offset"]


def test_an_old_offset_seen_after_a_new_one_was_committed_is_lost() -> None:
    for looked_before, expected in ((True, []), (False, ["lost-group-offset"])):
        tale = stored("a", "b")
        reader = tale.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        reader.offsets_committed(reader.committing_offsets("g", {T0: 1}))
        early = tale.tick()
        reader.offsets_committed(reader.committing_offsets("g", {T0: 2}))
        reader.offsets_seen("g", {T0: 1}, since_ms=early if looked_before else tale.tick())
        assert tale.found() == expected


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    for end, seen, expected in (
        ("committed", 2, []),
        ("committed", None, ["lost-group-offset"]),
        ("aborted", None, []),
        ("aborted", 2, ["lost-group-offset"]),
        ("unknown", 2, []),
        ("unknown", None, []),
    ):
        tale = stored("a", "b")
        reader = tale.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        worker = tale.witness("worker")
        txn = worker.beginning("worker")
        worker.offsets_committed(worker.committing_offsets("g", {T0: 2}, txn=txn))
        if end == "aborted":
            worker.aborted(txn)
        else:
            worker.committing(txn)
        if end == "committed":
            worker.committed(txn)
        reader.offsets_seen("g", {T0: seen}, since_ms=tale.tick())
        assert tale.found() == expected, (end, seen)


def test_a_member_that_begins_below_what_was_committed_shows_that_it_is_lost() -> None:
    for first, expected in ((1, []), (0, ["lost-group-offset"])):
        tale = stored("a", "b")
        one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
        one.assigned([T0], 1)
        one.polled(T0, [0], ["a"])
        one.offsets_committed(one.committing_offsets("g", {T0: 1}))
        one.revoked([T0])
        two.assigned([T0], 2)
        for offset, value in list(enumerate(("a", "b")))[first:]:
            two.polled(T0, [offset], [value])
        assert tale.found() == expected


def test_a_member_may_begin_below_a_commit_that_nobody_has_heard_of() -> None:
    tale = stored("a", "b")
    one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
    one.assigned([T0], 1)
    one.polled(T0, [0], ["a"])
    one.committing_offsets("g", {T0: 1})
    one.revoked([T0])
    two.assigned([T0], 2)
    two.polled(T0, [0], ["a"])
    assert tale.found() == []


def test_a_commit_that_arrives_when_the_partition_is_another_members_must_not_take_effect() -> None:
    for committed_by_two, seen, expected in ((True, 1, ["lost-group-offset"]), (True, 2, []), (False, 1, [])):
        tale = stored("a", "b")
        one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
        one.assigned([T0], 1)
        one.polled(T0, [0], ["a"])
        one.committing_offsets("g", {T0: 1})
        two.assigned([T0], 2)
        two.polled(T0, [0, 1], ["a", "b"])
        if committed_by_two:
            two.offsets_committed(two.committing_offsets("g", {T0: 2}))
        two.offsets_seen("g", {T0: seen}, since_ms=tale.tick())
        assert tale.found() == expected


def test_a_partition_has_one_member_in_each_generation() -> None:
    for place, generation, expected in ((T1, 3, []), (T0, 4, []), (T0, 3, ["double-assignment"])):
        tale = Tale()
        one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
        one.assigned([T0], 3)
        two.assigned([place], generation)
        assert tale.found() == expected


def test_a_static_member_may_come_back_into_its_generation() -> None:
    tale = Tale()
    for _ in range(2):
        tale.consumer("one", group="g").assigned([T0], 3)
    assert tale.found() == []


def test_what_a_member_gave_back_may_go_to_another_in_the_same_generation() -> None:
    tale = Tale()
    one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
    one.assigned([T0, T1], 2)
    one.revoked([T1])
    one.assigned([], 3)
    two.assigned([T1], 3)
    assert tale.found() == []


def test_a_commit_for_a_partition_that_is_another_members_by_now_is_a_zombies() -> None:
    for acknowledged, back, expected in ((True, False, ["zombie-commit"]), (False, False, []), (True, True, [])):
        tale = stored("a", "b")
        one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
        one.assigned([T0], 1, [0])
        two.assigned([T0], 2, [0])
        if back:
            two.revoked([T0])
            one.assigned([T0], 3, [0])
        asked = one.committing_offsets("g", {T0: 0})
        if acknowledged:
            one.offsets_committed(asked)
        assert tale.found() == expected


def test_who_hears_late_of_an_old_generation_makes_nobody_a_zombie() -> None:
    tale = Tale()
    one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
    one.assigned([T0], 4)
    two.assigned([T0], 3)
    one.offsets_committed(one.committing_offsets("g", {T0: 1}))
    tale.final.groups["g"] = {T0: 1}
    assert tale.found() == []


def test_a_member_whose_client_does_not_tell_its_generation_is_no_zombie() -> None:
    tale = stored("a", "b")
    one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
    one.assigned([T0], 1, [0])
    one.revoked([T0])
    two.assigned([T0], positions=[0])
    two.offsets_committed(two.committing_offsets("g", {T0: 0}))
    assert tale.found() == []


def test_a_commit_under_way_while_the_partition_moves_is_no_zombies() -> None:
    tale = stored("a", "b")
    one, two = tale.consumer("one", group="g"), tale.consumer("two", group="g")
    one.assigned([T0], 1, [0])
    asked = one.committing_offsets("g", {T0: 0})
    two.assigned([T0], 2, [0])
    one.offsets_committed(asked)
    assert tale.found() == []
