"""The assignors: each partition goes to one subscribed member, in balance; sticky assignors avoid needless moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel._assignment.assignors import (
    ASSIGNORS,
    COOPERATIVE_STICKY,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    Assignments,
    Assignor,
    GroupMember,
    RangeAssignor,
    assignors_of,
    owners,
    rebalance_protocol,
)
from semel._assignment.protocol import decode_assignment, encode_assignment
from semel.structs import TopicPartition
from semel_protocol.consumer_protocol import Subscription, by_topic, decode_embedded, encode_embedded
from semel_protocol.errors import ProtocolError

ALL = list(ASSIGNORS.values())
TOPICS = ["a", "b", "c", "d"]
SOON = settings(max_examples=80, deadline=None)

counts_strategy = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
wants_strategy = st.lists(st.lists(st.sampled_from(TOPICS), unique=True, max_size=4), min_size=1, max_size=6)


def member(name: str, topics: str, owned: str = "", generation: int = 1, instance: str | None = None) -> GroupMember:
    """member("m", "a b", "a0 a1"): wants topics a and b, owns a-0 and a-1."""
    return GroupMember(
        member_id=name,
        group_instance_id=instance,
        topics=tuple(topics.split()),
        owned=partitions(owned),
        generation=generation,
    )


def partitions(text: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(word[0], int(word[1:])) for word in text.split())


def shown(assignments: Mapping[str, Sequence[TopicPartition]]) -> dict[str, str]:
    return {name: " ".join(f"{topic}{index}" for topic, index in given) for name, given in assignments.items()}


def members_wanting(wants: list[list[str]]) -> list[GroupMember]:
    return [GroupMember(member_id=f"m{i}", topics=tuple(topics)) for i, topics in enumerate(wants)]


def owning(members: list[GroupMember], assignments: Assignments, generation: int = 1) -> list[GroupMember]:
    """The same members in the next rebalance."""
    return [
        GroupMember(
            member_id=m.member_id, topics=m.topics, owned=tuple(assignments.get(m.member_id, ())), generation=generation
        )
        for m in members
    ]


def check_valid(members: list[GroupMember], counts: dict[str, int], assignments: Assignments) -> None:
    """Each subscribed partition is assigned once, to a member that subscribes to its topic."""
    assert sorted(assignments) == sorted(m.member_id for m in members)
    given = [(m, p) for m in members for p in assignments[m.member_id]]
    assert all(p.topic in m.topics for m, p in given)
    wanted = {
        TopicPartition(topic, index)
        for topic, count in counts.items()
        for index in range(count)
        if any(topic in m.topics for m in members)
    }
    assert sorted(p for _, p in given) == sorted(wanted)


def moves(before: Assignments, after: Assignments) -> int:
    """The partitions that moved although their owner stayed."""
    return sum(len(set(owned) - set(after[name])) for name, owned in before.items() if name in after)


@pytest.mark.parametrize("assignor", ALL, ids=lambda a: a.name)
@SOON
@given(wants=wants_strategy, counts=counts_strategy)
def test_every_wanted_partition_goes_to_one_member_that_wants_it(
    assignor: Assignor, wants: list[list[str]], counts: dict[str, int]
) -> None:
    members = members_wanting(wants)
    check_valid(members, counts, assignor.assign(members, counts))


@pytest.mark.parametrize("assignor", [ROUND_ROBIN, STICKY, COOPERATIVE_STICKY], ids=lambda a: a.name)
@SOON
@given(size=st.integers(1, 7), counts=counts_strategy)
def test_equal_subscriptions_give_counts_that_differ_by_at_most_one(
    assignor: Assignor, size: int, counts: dict[str, int]
) -> None:
    members = members_wanting([TOPICS] * size)
    sizes = [len(given) for given in assignor.assign(members, counts).values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("assignor", ALL, ids=lambda a: a.name)
@SOON
@given(wants=wants_strategy, counts=counts_strategy, rng=st.randoms(use_true_random=False))
def test_the_order_in_which_members_are_listed_does_not_matter(
    assignor: Assignor, wants: list[list[str]], counts: dict[str, int], rng: object
) -> None:
    members = members_wanting(wants)
    shuffled = members[:]
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assignor.assign(members, counts) == assignor.assign(shuffled, counts)


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    members = [member("y", "a b"), member("x", "a b"), member("z", "b")]
    assert shown(RANGE.assign(members, {"a": 3, "b": 4})) == {"x": "a0 a1 b0 b1", "y": "a2 b2", "z": "b3"}


def test_round_robin_skips_members_without_the_topic() -> None:
    members = [member("x", "a"), member("y", "a b"), member("z", "a b c")]
    assert shown(ROUND_ROBIN.assign(members, {"a": 1, "b": 2, "c": 3})) == {"x": "a0", "y": "b0", "z": "b1 c0 c1 c2"}


def test_static_members_are_placed_by_instance_id_and_before_dynamic_ones() -> None:
    before = [member("m-9", "a", instance="i1"), member("m-1", "a", instance="i2"), member("m-0", "a")]
    after = [member("m-3", "a", instance="i1"), member("m-1", "a", instance="i2"), member("m-0", "a")]
    assert shown(RANGE.assign(before, {"a": 3})) == {"m-9": "a0", "m-1": "a1", "m-0": "a2"}
    assert shown(RANGE.assign(after, {"a": 3}))["m-3"] == "a0", "a restart under a new member id moves nothing"


@SOON
@given(wants=wants_strategy, counts=counts_strategy)
def test_a_balanced_assignment_stays_as_it_is(wants: list[list[str]], counts: dict[str, int]) -> None:
    members = members_wanting(wants)
    first = STICKY.assign(members, counts)
    assert STICKY.assign(owning(members, first), counts) == first


@SOON
@given(wants=wants_strategy, counts=counts_strategy, seed=st.integers(0, 1000))
def test_no_single_move_could_balance_better(wants: list[list[str]], counts: dict[str, int], seed: int) -> None:
    members = members_wanting(wants)
    start = ROUND_ROBIN.assign(members[seed % len(members) :] or members, counts)
    result = STICKY.assign(owning(members, start), counts)
    check_valid(members, counts, result)
    for giver in members:
        for getter in members:
            could = any(p.topic in getter.topics for p in result[giver.member_id])
            if could:
                assert len(result[giver.member_id]) - len(result[getter.member_id]) <= 1


@SOON
@given(size=st.integers(2, 6), counts=counts_strategy)
def test_when_one_leaves_the_others_keep_all_they_had(size: int, counts: dict[str, int]) -> None:
    members = members_wanting([TOPICS] * size)
    before = STICKY.assign(members, counts)
    stayed = members[:-1]
    after = STICKY.assign(owning(stayed, before), counts)
    check_valid(stayed, counts, after)
    assert moves(before, after) == 0


@SOON
@given(size=st.integers(1, 6), counts=counts_strategy)
def test_when_one_joins_only_its_share_moves(size: int, counts: dict[str, int]) -> None:
    members = members_wanting([TOPICS] * (size + 1))
    before = STICKY.assign(members[:-1], counts)
    after = STICKY.assign(owning(members, before), counts)
    assert moves(before, after) == len(after[members[-1].member_id]) <= sum(counts.values()) // (size + 1) + 1


def test_a_chain_of_moves_is_found_where_no_single_one_helps() -> None:
    # x is rich in `a`, z is poor and wants only `b`: x gives `a` to y, y gives `b` to z.
    members = [member("x", "a", "a0 a1 a2"), member("y", "a b", "b0 b1"), member("z", "b")]
    result = STICKY.assign(members, {"a": 3, "b": 2})
    assert sorted(len(given) for given in result.values()) == [1, 2, 2]
    assert len(result["z"]) == 1


def test_partitions_that_vanished_or_are_no_longer_wanted_are_not_kept() -> None:
    members = [member("x", "b", "a0 a1"), member("y", "a b", "b7")]
    assert shown(STICKY.assign(members, {"a": 2, "b": 2})) == {"x": "b0 b1", "y": "a0 a1"}


def test_the_claim_of_the_latest_generation_counts_and_a_tie_for_none() -> None:
    members = [member("x", "a", "a0 a1", 3), member("y", "a", "a0", 4), member("z", "a", "a1", 3)]
    assert owners(members) == {TopicPartition("a", 0): "y", TopicPartition("a", 1): None}


def test_a_member_that_was_away_gets_back_what_it_had_in_an_earlier_generation() -> None:
    members = [member("x", "a", "a0 a3", 1), member("y", "a", "a0 a1 a2 a3 a4 a5", 2), member("z", "a", "a2 a5", 1)]
    assert shown(STICKY.assign(members, {"a": 6})) == {"x": "a0 a3", "y": "a1 a4", "z": "a2 a5"}


def test_kip429_a_partition_that_moves_is_unassigned_until_its_owner_revokes_it() -> None:
    members = [member("x", "a", "a0 a1 a2 a3"), member("y", "a")]
    first = COOPERATIVE_STICKY.assign(members, {"a": 4})
    assert shown(first) == {"x": "a0 a1", "y": ""}
    second = COOPERATIVE_STICKY.assign([member("x", "a", "a0 a1", 2), member("y", "a", "", 2)], {"a": 4})
    assert shown(second) == {"x": "a0 a1", "y": "a2 a3"}


def test_kip429_a_partition_that_two_members_claim_is_assigned_to_neither() -> None:
    members = [member("x", "a", "a0"), member("y", "a", "a0 a1")]
    first = COOPERATIVE_STICKY.assign(members, {"a": 2})
    assert TopicPartition("a", 0) not in first["x"] + first["y"]


@SOON
@given(
    wants=wants_strategy,
    changes=st.lists(st.tuples(wants_strategy, counts_strategy), min_size=1, max_size=4),
    counts=counts_strategy,
)
def test_cooperative_rounds_never_give_away_what_another_still_owns_and_settle(
    wants: list[list[str]], changes: list[tuple[list[list[str]], dict[str, int]]], counts: dict[str, int]
) -> None:
    members = members_wanting(wants)
    held: Assignments = {}
    generation = 0
    for new_wants, new_counts in [(wants, counts), *changes]:
        members = members_wanting(new_wants)
        # Before joining, members revoke topics to which they no longer subscribe.
        held = {m.member_id: [p for p in held.get(m.member_id, []) if p.topic in m.topics] for m in members}
        for _ in range(3):
            generation += 1
            given = COOPERATIVE_STICKY.assign(owning(members, held, generation), new_counts)
            owner = {p: name for name, owned in held.items() for p in owned}
            assert all(owner.get(p, name) == name for name, owned in given.items() for p in owned)
            settled = all(set(held[name]) <= set(given[name]) for name in held)
            held = given
            if settled:
                break
        assert settled, "no member had to revoke within three rounds"
        check_valid(members, new_counts, held)


def test_user_data_carries_what_eager_sticky_members_had() -> None:
    had = partitions("a0 b2")
    subscription = Subscription(topics=["a", "b"], user_data=STICKY.user_data(had, 7))
    seen = STICKY.member("x", None, decode_embedded(Subscription, encode_embedded(subscription)))
    assert (seen.owned, seen.generation) == (had, 7)


def test_user_data_is_byte_for_byte_kafkas() -> None:
    # StickyAssignor: [topic, [partitions]] then the generation; CooperativeStickyAssignor: the generation alone.
    assert STICKY.user_data(partitions("a1"), 5) == bytes.fromhex("00000001000161000000010000000100000005")
    assert COOPERATIVE_STICKY.user_data((), 5) == bytes.fromhex("00000005")
    assert RANGE.user_data((), 5) is None


def test_user_data_that_cannot_be_read_only_costs_stickiness() -> None:
    subscription = Subscription(topics=["a"], user_data=b"\xff\xff")
    assert STICKY.member("x", None, subscription).owned == ()
    assert COOPERATIVE_STICKY.member("x", None, subscription).generation == -1


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_every_version_are_read(version: int) -> None:
    whole = encode_embedded(
        Subscription(
            topics=["a"], user_data=b"u", owned_partitions=by_topic(partitions("a0")), generation_id=3, rack_id="r"
        )
    )
    size = {0: 14, 1: 29, 2: 33, 3: 36}[version]
    seen = decode_embedded(Subscription, version.to_bytes(2, "big") + whole[2:size])
    assert seen.topics == ["a"]
    assert seen.user_data == b"u"
    assert bool(seen.owned_partitions) == (version >= 1)
    assert seen.generation_id == (3 if version >= 2 else -1)
    assert seen.rack_id == ("r" if version >= 3 else None)


def test_a_newer_subscription_is_read_as_far_as_it_is_known() -> None:
    newer = bytes.fromhex("0009") + encode_embedded(Subscription(topics=["a"]))[2:] + b"more"
    assert decode_embedded(Subscription, newer).topics == ["a"]


def test_assignments_round_trip_and_no_bytes_mean_nothing() -> None:
    given = partitions("a0 a3 b1")
    assert decode_assignment(encode_assignment(given)) == given
    assert decode_assignment(b"") == ()


@given(data=st.binary(max_size=40))
@SOON
def test_foreign_payloads_raise_protocol_errors_only(data: bytes) -> None:
    for decode in (partial(decode_embedded, Subscription), decode_assignment):
        try:
            decode(data)
        except ProtocolError:
            pass


def test_strategies_are_named_given_or_classes() -> None:
    assert [a.name for a in assignors_of(["range", COOPERATIVE_STICKY])] == ["range", "cooperative-sticky"]
    assert isinstance(assignors_of([RangeAssignor])[0], RangeAssignor)
    for names in ("range", "range, cooperative-sticky", "org.apache.kafka.clients.consumer.RangeAssignor,sticky"):
        assert assignors_of(names)[0].name == "range"
        assert len(assignors_of(names)) == names.count(",") + 1
    for wrong in ([], ["nearest"], ["range", RangeAssignor], "", "nearest", "range,range", "range,"):
        with pytest.raises(ValueError, match="partition_assignment_strategy"):
            assignors_of(wrong)  # type: ignore[arg-type]


def test_cooperative_needs_all_strategies_to_be_cooperative() -> None:
    assert rebalance_protocol([COOPERATIVE_STICKY]) == "cooperative"
    assert rebalance_protocol([RANGE, COOPERATIVE_STICKY]) == "eager"
