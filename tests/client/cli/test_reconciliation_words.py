"""The text for the remaining steps of a member of the consumer protocol (KIP-848), from descriptions made here."""

from __future__ import annotations

import pytest
from semel.admin import ConsumerGroupDescription, MemberDescription
from semel.diagnose.reconciliation import blocks_of, steps_of, words
from semel.structs import TopicPartition

EPOCH = 7


def member(name: str, epoch: int, assigned: str, target: str) -> MemberDescription:
    """assigned, target: numbers of partitions of `flights`, such as "0 1"."""
    return MemberDescription(
        member_id=name,
        client_id="c",
        client_host="h",
        assignment=places(assigned),
        target_assignment=places(target),
        member_epoch=epoch,
    )


def places(numbers: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("flights", int(each)) for each in numbers.split())


def group(*members: MemberDescription, epoch: int = EPOCH) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        "g", "Reconciling", "consumer", "uniform", 0, members, "consumer", group_epoch=epoch, assignment_epoch=EPOCH
    )


def said(found: ConsumerGroupDescription) -> list[str]:
    return [words(steps) for steps in steps_of(found).values()]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ((("a", 7, "0 1", "0 1"),), ["up to date"]),
        ((("a", 6, "0 1", "0 1"),), ["has to confirm epoch 7 with its next heartbeat"]),
        ((("a", 6, "0 1", "0"),), ["has to give up flights 1"]),
        ((("a", 7, "", "0 2"),), ["gets flights 0, 2 with its next heartbeat"]),
        (
            (("a", 6, "0 1 2", "0"), ("b", 7, "", "1"), ("c", 7, "", "2")),
            [
                "has to give up flights 1-2",
                "waits for flights 1, which a has not given up yet",
                "waits for flights 2, which a has not given up yet",
            ],
        ),
        (
            (("a", 6, "0", "0"), ("b", 7, "", "1")),
            ["has to give up flights 1", "waits for flights 1, which a has not given up yet"],
        ),
        (
            (("a", 6, "0", "0"), ("b", 5, "2", "2"), ("c", 7, "", "1")),
            [
                "may have to give up flights 1",
                "may have to give up flights 1",
                "waits for flights 1, which a or b has not given up yet",
            ],
        ),
        (
            (("a", 0, "", "0"), ("b", 7, "", "1")),
            ["gets flights 0 with its next heartbeat", "gets flights 1 with its next heartbeat"],
        ),
        (
            (("a", -2, "0", "0"), ("b", 7, "", "1"), ("c", -2, "", "")),
            ["away; flights 0 wait for it until its session ends", "gets flights 1 with its next heartbeat", "away"],
        ),
    ],
)
def test_what_members_have_to_do(members: tuple[tuple[str, int, str, str], ...], expected: list[str]) -> None:
    assert said(group(*(member(*each) for each in members))) == expected


def test_a_group_without_an_assignment_for_its_epoch_has_members_that_wait() -> None:
    assert said(group(member("a", 7, "0", "0"), epoch=8)) == ["waits for the assignment of epoch 8"]


def test_a_partition_that_a_member_away_holds_blocks_the_member_that_waits() -> None:
    (block,) = blocks_of(group(member("a", -2, "0 1", "0"), member("b", 7, "", "1")))
    assert (block.partitions, block.holders, block.waits) == (places("1"), ("a",), "b")


def test_classic_groups_have_no_steps() -> None:
    classic = ConsumerGroupDescription("g", "Stable", "consumer", "range", 0, (MemberDescription("m", "c", "h"),))
    assert (steps_of(classic), blocks_of(classic)) == ({}, [])
