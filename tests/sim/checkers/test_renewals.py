"""mixed-topics, renewal-skip, foreign-commit."""

from __future__ import annotations

import pytest
from semel_protocol.schema import ZERO_UUID

from sim.checkers.history_builder import HistoryBuilder
from sim.events import identified
from sim.final import Commit
from sim.history import Recorder

FIRST_ID, SECOND_ID = bytes([1] * 16), bytes([2] * 16)
FIRST, SECOND = identified("n", FIRST_ID), identified("n", SECOND_ID)
N0 = ("n", 0)


def two_topics(*, stays: bool = True) -> HistoryBuilder:
    """Three records in partition 0 of each of two topics with the name "n": a0 to a2, b0 to b2."""
    builder = HistoryBuilder()
    boss, shop = builder.recorder("boss"), builder.recorder("shop")
    for topic, letter in ((FIRST, "a"), (SECOND, "b")):
        boss.renewed(topic, 1)
        for offset in range(3):
            builder.send(shop, f"{letter}{offset}", offset, topic=topic, idempotent=False)
    boss.renewed(SECOND, 1, stays=stays)
    builder.ends([(offset, f"b{offset}") for offset in range(3)], place=N0)
    return builder


def give(reader: Recorder, letter: str, *offsets: int, group: str = "") -> None:
    reader.given(group, N0, offsets, [f"{letter}{offset}" for offset in offsets])


def test_a_consumer_may_read_one_topic_after_the_other_and_the_former_one_again_from_where_it_was() -> None:
    builder = two_topics()
    reader = builder.recorder("reader")
    give(reader, "a", 0, 1)
    give(reader, "b", 0)
    give(reader, "a", 2)
    give(reader, "b", 1, 2)
    reader.read_through("", SECOND, [3])
    assert builder.found() == []


def test_a_record_at_another_offset_or_in_another_partition_or_of_unknown_origin_is_misplaced() -> None:
    for offset, partition, value in ((1, 0, "a0"), (0, 1, "a0"), (0, 0, "never sent")):
        builder = two_topics()
        builder.recorder("reader").given("g", ("n", partition), [offset], [value])
        assert "mixed-topics" in builder.found()


def test_a_record_without_acknowledgement_has_one_place() -> None:
    for second, expected in ((3, []), (4, ["mixed-topics"])):
        builder = two_topics()
        builder.send(builder.recorder("shop"), "a3", topic=FIRST, idempotent=False)
        reader, other = builder.recorder("reader"), builder.recorder("reader")
        give(reader, "a", 0, 1, 2, 3)
        give(other, "a", 0, 1, 2)
        other.given("", N0, [second], ["a3"])
        assert [name for name in builder.found() if name != "renewal-skip"] == expected


def test_a_record_of_a_former_topic_in_the_last_one_is_misplaced() -> None:
    for value, expected in (("b2", []), ("a2", ["mixed-topics"])):
        builder = two_topics()
        builder.ends([(0, "b0"), (1, "b1"), (2, value)], place=N0)
        assert builder.found() == expected


@pytest.mark.parametrize("group", ["", "g"])
def test_a_record_jumped_over_is_a_skip(group: str) -> None:
    for offsets in ((0, 2), (1, 2)):
        builder = two_topics()
        give(builder.recorder("reader"), "b", *offsets, group=group)
        assert builder.found() == ["renewal-skip"]


def test_the_members_of_a_group_read_a_topic_together_and_another_consumer_does_not_count() -> None:
    for group, expected in (("g", []), ("h", ["renewal-skip"])):
        builder = two_topics()
        give(builder.recorder("one"), "b", 2, group="g")
        give(builder.recorder("two"), "b", 0, 1, group=group)
        assert builder.found() == expected


def test_without_a_group_no_record_is_read_twice_by_one_consumer() -> None:
    for group, expected in (("g", []), ("", ["renewal-skip"])):
        builder = two_topics()
        reader = builder.recorder("reader")
        give(reader, "a", 0, 1, group=group)
        give(reader, "b", 0, group=group)
        give(reader, "a", 0, 1, group=group)
        assert builder.found() == expected
    builder = two_topics()
    give(builder.recorder("reader"), "a", 0, 1)
    give(builder.recorder("reader"), "a", 0, 1)
    assert builder.found() == []


@pytest.mark.parametrize("group", ["", "g"])
def test_a_topic_that_was_read_to_its_end_was_read_whole(group: str) -> None:
    for offsets, end, expected in (((0, 1, 2), 3, []), ((0, 1), 3, ["renewal-skip"]), ((0, 1), 2, ["renewal-skip"])):
        builder = two_topics()
        reader = builder.recorder("reader")
        give(reader, "b", *offsets, group=group)
        reader.read_through(group, SECOND, [end])
        assert builder.found() == expected


def test_a_committed_offset_is_not_above_what_the_group_got_of_that_topic() -> None:
    for offset, expected in ((None, []), (2, []), (3, ["foreign-commit"])):
        builder = two_topics()
        member = builder.recorder("member")
        give(member, "a", 0, 1, 2, group="g")
        give(member, "b", 0, 1, group="g")
        builder.recorder("settle").committed_by_id("g", SECOND, [offset])
        assert builder.found() == expected


def test_no_offset_in_the_log_of_commits_is_above_what_the_group_got_of_that_topic() -> None:
    for topic_id, offset, expected in (
        (FIRST_ID, 3, []),
        (ZERO_UUID, 3, []),
        (SECOND_ID, 1, []),
        (SECOND_ID, 3, ["foreign-commit"]),
    ):
        builder = two_topics()
        member = builder.recorder("member")
        give(member, "a", 0, 1, 2, group="g")
        give(member, "b", 0, group="g")
        builder.final.commits = [Commit("g", N0, offset, 0, topic_id), Commit("other", N0, 7, 1, topic_id)]
        assert builder.found() == expected
