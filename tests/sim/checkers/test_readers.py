"""poll-skip, nonmonotonic-poll, nonmonotonic-send, lost-group-offset, double-assignment, zombie-commit."""

from __future__ import annotations

import pytest

from sim.checkers.history_builder import T0, T1, HistoryBuilder
from sim.final import GroupGeneration, ReplicaLog


def stored(*values: str) -> HistoryBuilder:
    builder = HistoryBuilder()
    shop = builder.recorder("shop")
    for offset, value in enumerate(values):
        builder.send(shop, value, offset)
    builder.ends(list(enumerate(values)))
    return builder


def test_consecutive_polls_without_gaps_are_in_order() -> None:
    builder = stored("a", "b", "c")
    reader = builder.consumer()
    reader.assigned([T0], positions=[0])
    reader.polled(T0, [0], ["a"])
    reader.polled(T0, [1, 2], ["b", "c"])
    assert builder.found() == []


def test_a_record_jumped_over_is_a_skip() -> None:
    builder = stored("a", "b", "c")
    reader = builder.consumer()
    reader.polled(T0, [0], ["a"])
    reader.polled(T0, [2], ["c"])
    assert builder.found() == ["poll-skip"]


def test_a_record_between_the_first_position_and_the_first_poll_is_a_skip() -> None:
    builder = stored("a", "b")
    reader = builder.consumer()
    reader.assigned([T0], positions=[0])
    reader.polled(T0, [1], ["b"])
    assert builder.found() == ["poll-skip"]


def test_a_deleted_record_is_no_skip_even_if_it_came_back() -> None:
    for detail, expected in (("0:2", []), ("0:1", ["poll-skip"]), ("1:2", ["poll-skip"])):
        builder = stored("a", "b", "c")
        boss, reader = builder.recorder("boss"), builder.consumer()
        reader.polled(T0, [0], ["a"])
        boss.changed(boss.asking("delete-records", "t", detail))
        reader.polled(T0, [2], ["c"])
        assert builder.found() == expected


def test_a_record_deleted_by_retention_is_no_skip_even_if_it_came_back() -> None:
    for log_start, expected in ((2, []), (1, ["poll-skip"])):
        builder = HistoryBuilder(cleanup="delete")
        shop, reader = builder.recorder("shop"), builder.consumer()
        for offset, value in enumerate("abc"):
            builder.send(shop, value, offset)
        builder.ends(list(enumerate("abc")))
        builder.final.log_starts[T0] = log_start
        reader.polled(T0, [0], ["a"])
        reader.polled(T0, [2], ["c"])
        assert builder.found() == expected


def test_a_record_compacted_by_one_replica_is_no_skip_if_another_still_has_it() -> None:
    for skipped, replicas, expected in ((0, 3, []), (0, 1, ["poll-skip"]), (2, 3, []), (1, 3, ["poll-skip"])):
        builder = HistoryBuilder(cleanup="compact")
        shop, reader = builder.recorder("shop"), builder.consumer()
        for offset, (key, value) in enumerate([("x", "x0"), ("x", "x1"), ("y", None), ("z", "z3")]):
            builder.send(shop, value, offset, key=key)
        rows = [(0, "x0"), (1, "x1"), (2, None), (3, "z3")]
        given = [row for row in rows if row[0] != skipped]
        reader.assigned([T0], positions=[0])
        reader.polled(T0, [offset for offset, _ in given], [value for _, value in given])
        builder.ends(rows, keys={0: "x", 1: "x", 2: "y", 3: "z"})
        builder.final.replicas[T0] = [ReplicaLog(broker=f"broker-{number}") for number in range(replicas)]
        assert builder.found() == expected, skipped


def around_an_aborted_one(cleanup: str, *, read_committed: bool) -> HistoryBuilder:
    """A reader that gets "a" and "c", but not the aborted "b" between them."""
    builder = HistoryBuilder(cleanup=cleanup)
    shop = builder.recorder("shop")
    builder.transaction(shop, ("a", 0, 0))
    builder.transaction(shop, ("b", 0, 2), end="aborted")
    builder.transaction(shop, ("c", 0, 4))
    reader = builder.consumer(read_committed=read_committed)
    reader.polled(T0, [0], ["a"])
    reader.polled(T0, [4], ["c"])
    builder.ends([(0, "a"), (4, "c")], aborted=[(2, "b")], keys={0: "x", 2: "y", 4: "z"})
    return builder


def test_aborted_records_that_one_replica_has_compacted_are_no_skip_either() -> None:
    for replicas, expected in ((3, []), (1, ["poll-skip"])):
        builder = around_an_aborted_one("compact", read_committed=False)
        builder.final.replicas[T0] = [ReplicaLog(broker=f"broker-{number}") for number in range(replicas)]
        assert builder.found() == expected


def test_aborted_records_and_markers_are_no_skip_for_readers_of_committed_ones() -> None:
    for read_committed, expected in ((True, []), (False, ["poll-skip"])):
        assert around_an_aborted_one("delete", read_committed=read_committed).found() == expected


def test_a_record_twice_is_nonmonotonic_unless_the_partition_was_assigned_again() -> None:
    for again, expected in ((False, ["nonmonotonic-poll"]), (True, [])):
        builder = stored("a", "b")
        reader = builder.consumer()
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        if again:
            reader.assigned([T0], positions=[1])
        reader.polled(T0, [1], ["b"])
        assert builder.found() == expected


def test_a_group_must_not_commit_past_records_that_no_member_got() -> None:
    for given, expected in (([0, 1], []), ([1], ["poll-skip"])):
        builder = stored("a", "b")
        reader = builder.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, given, ["ab"[offset] for offset in given])
        reader.offsets_committed(reader.committing_offsets("g", {T0: 2}))
        builder.final.groups["g"] = {T0: 2}
        assert builder.found() == expected


def test_a_member_gets_records_of_its_own_partitions_only() -> None:
    for back, expected in ((False, []), (True, ["unowned-poll"])):
        builder = stored("a", "b")
        reader = builder.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0], ["a"])
        if back:
            reader.revoked([T0])
        reader.polled(T0, [1], ["b"])
        assert builder.found() == expected


def test_sends_of_one_producer_are_stored_in_their_order() -> None:
    builder = HistoryBuilder()
    shop, bank = builder.recorder("shop"), builder.recorder("bank")
    first = shop.sending("t", 0, value="a")
    second = shop.sending("t", 0, value="b")
    shop.stored(second, 0, 0)
    shop.stored(first, 0, 1)
    builder.send(bank, "c", 3)
    builder.ends([(0, "b"), (1, "a"), (3, "c")])
    assert builder.found() == ["nonmonotonic-send"]


def test_the_last_acknowledged_commit_is_what_a_group_has() -> None:
    for at_the_end, expected in ((2, []), (1, ["lost-group-offset"]), (None, ["lost-group-offset"])):
        builder = stored("a", "b")
        reader = builder.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        for offset in (1, 2):
            reader.offsets_committed(reader.committing_offsets("g", {T0: offset}))
        builder.final.groups["g"] = {} if at_the_end is None else {T0: at_the_end}
        assert builder.found() == expected


def test_an_unanswered_commit_may_take_effect_at_any_time() -> None:
    for at_the_end in (1, 2):
        builder = stored("a", "b")
        reader = builder.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        reader.committing_offsets("g", {T0: 1})
        reader.offsets_committed(reader.committing_offsets("g", {T0: 2}))
        builder.final.groups["g"] = {T0: at_the_end}
        assert builder.found() == []


def test_an_offset_that_was_never_committed_must_not_be_seen() -> None:
    builder = stored("a", "b")
    reader = builder.consumer(group="g")
    reader.assigned([T0])
    reader.polled(T0, [0, 1], ["a", "b"])
    reader.offsets_refused(reader.committing_offsets("g", {T0: 2}))
    reader.offsets_seen("g", {T0: 2}, since_ms=builder.tick())
    assert builder.found() == ["lost-group-offset"]


def test_an_old_offset_seen_after_a_new_one_was_committed_is_lost() -> None:
    for looked_before, expected in ((True, []), (False, ["lost-group-offset"])):
        builder = stored("a", "b")
        reader = builder.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        reader.offsets_committed(reader.committing_offsets("g", {T0: 1}))
        early = builder.tick()
        reader.offsets_committed(reader.committing_offsets("g", {T0: 2}))
        reader.offsets_seen("g", {T0: 1}, since_ms=early if looked_before else builder.tick())
        assert builder.found() == expected


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    for end, seen, expected in (
        ("committed", 2, []),
        ("committed", None, ["lost-group-offset"]),
        ("aborted", None, []),
        ("aborted", 2, ["lost-group-offset"]),
        ("unknown", 2, []),
        ("unknown", None, []),
    ):
        builder = stored("a", "b")
        reader = builder.consumer(group="g")
        reader.assigned([T0])
        reader.polled(T0, [0, 1], ["a", "b"])
        worker = builder.recorder("worker")
        txn = worker.beginning("worker")
        worker.offsets_committed(worker.committing_offsets("g", {T0: 2}, txn=txn))
        if end == "aborted":
            worker.aborted(txn)
        else:
            worker.committing(txn)
        if end == "committed":
            worker.committed(txn)
        reader.offsets_seen("g", {T0: seen}, since_ms=builder.tick())
        assert builder.found() == expected, (end, seen)


def test_a_member_that_begins_below_what_was_committed_shows_that_it_is_lost() -> None:
    for first, expected in ((1, []), (0, ["lost-group-offset"])):
        builder = stored("a", "b")
        one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
        one.assigned([T0], 1)
        one.polled(T0, [0], ["a"])
        one.offsets_committed(one.committing_offsets("g", {T0: 1}))
        one.revoked([T0])
        two.assigned([T0], 2)
        for offset, value in list(enumerate(("a", "b")))[first:]:
            two.polled(T0, [offset], [value])
        assert builder.found() == expected


def test_a_member_may_begin_below_a_commit_of_unknown_outcome() -> None:
    builder = stored("a", "b")
    one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
    one.assigned([T0], 1)
    one.polled(T0, [0], ["a"])
    one.committing_offsets("g", {T0: 1})
    one.revoked([T0])
    two.assigned([T0], 2)
    two.polled(T0, [0], ["a"])
    assert builder.found() == []


def test_a_commit_that_arrives_when_the_partition_is_another_members_must_not_take_effect() -> None:
    for committed_by_two, seen, expected in ((True, 1, ["lost-group-offset"]), (True, 2, []), (False, 1, [])):
        builder = stored("a", "b")
        one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
        one.assigned([T0], 1)
        one.polled(T0, [0], ["a"])
        one.committing_offsets("g", {T0: 1})
        two.assigned([T0], 2)
        two.polled(T0, [0, 1], ["a", "b"])
        if committed_by_two:
            two.offsets_committed(two.committing_offsets("g", {T0: 2}))
        two.offsets_seen("g", {T0: seen}, since_ms=builder.tick())
        assert builder.found() == expected


def test_a_partition_has_one_member_in_each_generation() -> None:
    for place, generation, expected in ((T1, 3, []), (T0, 4, []), (T0, 3, ["double-assignment"])):
        builder = HistoryBuilder()
        one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
        one.assigned([T0], 3)
        two.assigned([place], generation)
        assert builder.found() == expected


def test_a_static_member_may_come_back_into_its_generation() -> None:
    builder = HistoryBuilder()
    for _ in range(2):
        builder.consumer("one", group="g").assigned([T0], 3)
    assert builder.found() == []


def test_a_partition_given_back_may_go_to_another_member_in_the_same_generation() -> None:
    builder = HistoryBuilder()
    one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
    one.assigned([T0, T1], 2)
    one.revoked([T1])
    one.assigned([], 3)
    two.assigned([T1], 3)
    assert builder.found() == []


def test_a_commit_for_a_partition_of_another_member_is_a_zombies() -> None:
    for acknowledged, back, expected in ((True, False, ["zombie-commit"]), (False, False, []), (True, True, [])):
        builder = stored("a", "b")
        one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
        one.assigned([T0], 1, [0])
        two.assigned([T0], 2, [0])
        if back:
            two.revoked([T0])
            one.assigned([T0], 3, [0])
        asked = one.committing_offsets("g", {T0: 0})
        if acknowledged:
            one.offsets_committed(asked)
        assert builder.found() == expected


def test_an_old_generation_that_arrives_late_makes_no_zombie() -> None:
    builder = HistoryBuilder()
    one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
    one.assigned([T0], 4)
    two.assigned([T0], 3)
    one.offsets_committed(one.committing_offsets("g", {T0: 1}))
    builder.final.groups["g"] = {T0: 1}
    assert builder.found() == []


def test_a_member_whose_client_reports_no_generation_is_no_zombie() -> None:
    builder = stored("a", "b")
    one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
    one.assigned([T0], 1, [0])
    one.revoked([T0])
    two.assigned([T0], positions=[0])
    two.offsets_committed(two.committing_offsets("g", {T0: 0}))
    assert builder.found() == []


def test_a_commit_under_way_while_the_partition_moves_is_no_zombies() -> None:
    builder = stored("a", "b")
    one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
    one.assigned([T0], 1, [0])
    asked = one.committing_offsets("g", {T0: 0})
    two.assigned([T0], 2, [0])
    one.offsets_committed(asked)
    assert builder.found() == []


def test_a_former_member_commits_nothing_inside_a_transaction_with_any_outcome() -> None:
    for accepted, end, expected in (
        (True, "committed", ["zombie-commit"]),
        (True, "aborted", ["zombie-commit"]),
        (False, "aborted", []),
    ):
        builder = stored("a", "b")
        one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
        one.assigned([T0], 1, [0])
        two.assigned([T0], 2, [0])
        worker = builder.recorder("worker")
        txn = worker.beginning("worker")
        asked = worker.committing_offsets("g", {T0: 0}, txn=txn, consumer=one.client)
        if accepted:
            worker.offsets_committed(asked)
        (worker.committed if end == "committed" else worker.aborted)(txn)
        assert builder.found() == expected


@pytest.mark.parametrize(
    ("eras", "expected"),
    [
        ({("g", "a", 7): 1, ("g", "b", 7): 1}, ["double-assignment", "zombie-commit"]),
        ({("g", "a", 7): 1, ("g", "b", 7): 2}, ["zombie-commit"]),
        ({("g", "a", 7): 2, ("g", "b", 7): 1}, []),
        ({("g", "a", 7): 1}, []),
        ({}, []),
    ],
    ids=["one era", "the owner's is later", "the owner's is earlier", "one is not known", "none is known"],
)
def test_generations_of_a_group_of_both_protocols_are_compared_within_an_era(
    eras: dict[GroupGeneration, int], expected: list[str]
) -> None:
    builder = stored("a", "b")
    one, two = (builder.recorder(name) for name in ("one", "two"))
    one.consuming("g", read_committed=True, protocol="consumer")
    two.consuming("g", read_committed=True, protocol="classic")
    one.assigned([T0], 7, [0], member_id="a")
    two.assigned([T0], 7, [0], member_id="b")
    one.offsets_committed(one.committing_offsets("g", {T0: 0}))
    builder.final.eras = eras
    assert builder.found() == expected


def test_a_member_that_seeks_is_still_in_its_generation() -> None:
    builder = stored("a", "b")
    one, two = builder.consumer("one", group="g"), builder.consumer("two", group="g")
    one.assigned([T0], 1, [0])
    two.assigned([T0], 2, [0])
    one.assigned([T0], positions=[0])
    one.offsets_committed(one.committing_offsets("g", {T0: 0}))
    assert builder.found() == ["zombie-commit"]
