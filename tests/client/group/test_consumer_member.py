"""The state of one member of the consumer protocol, without a broker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel._config.consumer import ConsumerConfig
from semel._group.consumer_member import NEXT, ConsumerMember, IdPartition, State, Subscribed
from semel._group.offsets import Membership
from semel_protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

T, U = b"t" * 16, b"u" * 16
PLACES = [(T, 0), (T, 1), (U, 0)]


def member(**settings: object) -> ConsumerMember:
    return ConsumerMember(ConsumerConfig(group_id="g", group_protocol="consumer", **settings), "made")  # type: ignore[arg-type]


def answer(epoch: int, places: Iterable[IdPartition] | None = None) -> ConsumerGroupHeartbeatResponse:
    rows = [ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=t, partitions=[n]) for t, n in places or ()]
    assignment = None if places is None else ConsumerGroupHeartbeatResponseAssignment(topic_partitions=rows)
    return ConsumerGroupHeartbeatResponse(
        member_id="made", member_epoch=epoch, heartbeat_interval_ms=100, assignment=assignment
    )


def beat(
    of: ConsumerMember, epoch: int, places: Iterable[IdPartition] | None = None, names: tuple[str, ...] = ("t",)
) -> ConsumerGroupHeartbeatRequest:
    """One answered heartbeat."""
    said = of.says(Subscribed(names))
    request = of.heartbeat(said, makes_own_id=True)
    of.answered(request, said, answer(epoch, places))
    return request


def test_every_state_is_in_the_table_and_can_be_left_and_reached() -> None:
    assert set(NEXT) == set(State)
    assert all(NEXT[state] for state in State if state is not State.STOPPED)
    assert {after for nexts in NEXT.values() for after in nexts} == set(State)


def test_the_first_heartbeat_says_everything_and_the_next_only_what_changed() -> None:
    one = member(client_rack="r", group_remote_assignor="range", rebalance_timeout_ms=7)
    one.join()
    first = beat(one, 1, [(T, 0)])
    assert (first.member_id, first.member_epoch) == ("made", 0)
    assert (first.rack_id, first.rebalance_timeout_ms, first.server_assignor) == ("r", 7, "range")
    assert (first.subscribed_topic_names, first.topic_partitions) == (["t"], [])
    assert one.state is State.RECONCILING
    one.own([(T, 0)])
    second = beat(one, 1)
    assert second.topic_partitions is not None
    assert [(row.topic_id, row.partitions) for row in second.topic_partitions] == [(T, [0])]
    assert (second.subscribed_topic_names, second.rack_id, second.rebalance_timeout_ms) == (None, None, -1)
    third = beat(one, 1)
    assert (third.topic_partitions, third.subscribed_topic_names) == (None, None)
    assert not one.is_due(Subscribed(("t",)))
    assert one.is_due(Subscribed(("u",)))


def test_what_is_assigned_is_named_as_owned_until_it_is_assigned_and_owned_no_more() -> None:
    one = member()
    one.join()
    beat(one, 1, [(T, 0)])
    assert one.is_due(Subscribed(("t",)))
    assert named(beat(one, 1)) == {(T, 0)}, "it may adopt it while this heartbeat is under way"
    one.own([(T, 0)])
    assert not one.is_due(Subscribed(("t",))), "the coordinator knows"
    beat(one, 2, [(T, 0), (U, 0)])
    assert named(beat(one, 2, [])) == {(T, 0), (U, 0)}
    assert named(beat(one, 2)) == {(T, 0)}, "it has not adopted the other"
    one.own([])
    assert named(beat(one, 2)) == set()
    assert not one.is_due(Subscribed(("t",)))


def named(request: ConsumerGroupHeartbeatRequest) -> set[IdPartition] | None:
    """The partitions that a heartbeat reports as owned; None: unchanged since the last one."""
    rows = request.topic_partitions
    return None if rows is None else {(row.topic_id, index) for row in rows for index in row.partitions}


def test_in_version_0_the_coordinator_chooses_the_member_id() -> None:
    one = member()
    one.join()
    said = one.says(Subscribed(("t",)))
    request = one.heartbeat(said, makes_own_id=False)
    assert (request.member_id, request.subscribed_topic_regex) == ("", None)
    given_one = answer(1, [])
    given_one.member_id = "given"
    one.answered(request, said, given_one)
    assert one.membership == Membership(1, "given")


def test_a_fenced_member_keeps_its_id_and_its_last_membership_for_commits_that_must_be_refused() -> None:
    one = member()
    one.join()
    beat(one, 4, [(T, 0)])
    one.own([(T, 0)])
    one.fence()
    assert (one.owned, one.target, one.epoch) == (frozenset(), frozenset(), 0)
    assert one.membership == one.transaction_membership == Membership(4, "made")
    assert one.fetching_membership is None
    one.join()
    assert beat(one, 6, []).member_id == "made"
    assert one.membership == one.fetching_membership == Membership(6, "made")


def test_an_answer_to_a_heartbeat_from_before_the_fence_changes_nothing() -> None:
    one = member()
    one.join()
    beat(one, 4, [(T, 0)])
    said = one.says(Subscribed(("t",)))
    late = one.heartbeat(said, makes_own_id=True)
    one.fence()
    one.join()
    one.answered(late, said, answer(5, [(T, 1)]))
    assert (one.state, one.epoch, one.target) == (State.JOINING, 0, frozenset())


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("s", -2)])
def test_a_static_member_leaves_for_a_while(instance: str | None, epoch: int) -> None:
    one = member(group_instance_id=instance)
    one.join()
    beat(one, 1, [])
    one.move(State.LEAVING)
    request = one.leave_request()
    assert request is not None
    assert (request.member_epoch, request.instance_id) == (epoch, instance)
    assert one.leave_request() is None, "it has left"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["answered", "request lost", "answer lost"]),
            st.sets(st.sampled_from(PLACES)),
            st.sampled_from(["t", "u"]),
        ),
        max_size=20,
    )
)
def test_after_an_answer_the_coordinator_has_all_of_the_member_whatever_was_lost_before(
    steps: list[tuple[str, set[IdPartition], str]],
) -> None:
    one = member()
    one.join()
    names: list[str] | None = None
    regex: str | None = None
    owned: frozenset[IdPartition] | None = None
    for number, (outcome, places, word) in enumerate(steps):
        if one.epoch:
            one.own(places)
        subscribed = Subscribed((word,)) if number % 2 else Subscribed(regex=word)
        said = one.says(subscribed)
        request = one.heartbeat(said, makes_own_id=True)
        if outcome != "request lost":
            if request.subscribed_topic_names is not None:
                names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
            if request.topic_partitions is not None:
                owned = frozenset((row.topic_id, index) for row in request.topic_partitions for index in row.partitions)
        if outcome != "answered":
            one.unanswered()
            assert one.is_due(subscribed)
            continue
        one.answered(request, said, answer(number + 1))
        assert not one.is_due(subscribed)
        assert (tuple(names or ()), regex, owned) == (subscribed.names, subscribed.regex, one.owned)
