"""The subscription, assignment and committable positions of a consumer, without a broker."""

from __future__ import annotations

import re

import pytest
from client.consuming import tp
from semel._subscription.subscription import FORMER_TOPICS_MAX, Reset, Subscription
from semel.errors import IllegalStateError
from semel.structs import Metadata, PartitionMetadata, TopicMetadata
from semel_protocol.schema import ZERO_UUID

OLD, NEW = b"o" * 16, b"n" * 16


def metadata(*names: str) -> Metadata:
    return Metadata(
        brokers={},
        topics={
            name: TopicMetadata(name, (PartitionMetadata(name, 0, 0),), is_internal=name.startswith("__"))
            for name in names
        },
    )


def assigned(*positions: int) -> Subscription:
    """Partitions of topic `t` that stand at these positions."""
    subscription = Subscription()
    subscription.subscribe_topics(["t"], None)
    subscription.assign([tp(index) for index in range(len(positions))])
    for index, position in enumerate(positions):
        subscription.state(tp(index)).seek(position)
    return subscription


def hand_out(subscription: Subscription, partition: int, count: int) -> None:
    state = subscription.state(tp(partition))
    assert state.position is not None
    state.position += count
    subscription.handed_out.append(state)


def test_a_pattern_matches_from_the_start_and_leaves_internal_topics_out_unless_told() -> None:
    known = metadata("in.a", "in.b", "out.in.c", "__in")
    for exclude, expected in ((True, ("in.a", "in.b")), (False, ("__in", "in.a", "in.b"))):
        subscription = Subscription(exclude_internal_topics=exclude)
        subscription.subscribe_pattern(re.compile("in|__"), None)
        assert subscription.wanted_topics(known) == expected


def test_a_topic_named_twice_is_wanted_once() -> None:
    subscription = Subscription()
    subscription.subscribe_topics(["b", "a", "b"], None)
    assert subscription.wanted_topics(metadata()) == ("b", "a")


def test_a_kept_partition_keeps_its_state_and_a_reassigned_one_does_not() -> None:
    subscription = assigned(5, 7)
    kept, dropped = subscription.state(tp(0)), subscription.state(tp(1))
    subscription.assign([tp(0), tp(2)])
    assert subscription.state(tp(0)) is kept
    assert not subscription.in_charge(dropped)
    subscription.assign([tp(0), tp(1)])
    assert not subscription.in_charge(dropped), "a new assignment of the same partition has a new state"
    assert subscription.state(tp(1)).position is None
    with pytest.raises(IllegalStateError, match="t-2"):
        subscription.state(tp(2))


def test_records_in_hand_are_consumed_only_when_the_application_comes_back() -> None:
    subscription = assigned(0, 0)
    hand_out(subscription, 0, 10)
    assert subscription.state(tp(0)).in_hand
    assert subscription.to_commit() == {tp(0): 0, tp(1): 0}
    subscription.mark_consumed()
    assert not subscription.state(tp(0)).in_hand
    assert subscription.to_commit([tp(0)]) == {tp(0): 10}


def test_a_committed_offset_is_not_committed_again() -> None:
    subscription = assigned(4)
    subscription.state(tp(0)).committed = 4
    assert subscription.to_commit() == {}
    hand_out(subscription, 0, 1)
    subscription.mark_consumed()
    assert subscription.to_commit() == {tp(0): 5}


def test_after_a_seek_or_a_lost_position_no_record_is_in_hand() -> None:
    subscription = assigned(0)
    state = subscription.state(tp(0))
    hand_out(subscription, 0, 3)
    state.seek(100)
    assert (state.position, state.consumed, state.buffer.fetch_offset) == (100, 100, 100)
    state.lose_position(Reset.EARLIEST)
    subscription.mark_consumed()
    assert (state.position, state.reset) == (None, Reset.EARLIEST)
    assert subscription.to_commit() == {}


def test_holding_a_partition_keeps_what_may_be_committed() -> None:
    subscription = assigned(0)
    state = subscription.state(tp(0))
    hand_out(subscription, 0, 3)
    state.hold()
    assert state.in_hand
    subscription.mark_consumed()
    assert subscription.to_commit() == {tp(0): 3}


def metadata_of(topic_id: bytes) -> Metadata:
    """Topic `t` of two partitions has this id."""
    partitions = (PartitionMetadata("t", 0, 0), PartitionMetadata("t", 1, 0))
    return Metadata(brokers={}, topics={"t": TopicMetadata("t", partitions, topic_id=topic_id)})


def reading(topic_id: bytes, *positions: int) -> Subscription:
    subscription = assigned(*positions)
    assert subscription.follow(metadata_of(topic_id)) == []
    return subscription


def test_the_first_topic_id_belongs_to_the_positions_found_before_it() -> None:
    subscription = assigned(5)
    state = subscription.state(tp(0))
    assert subscription.follow(metadata_of(OLD)) == []
    assert subscription.in_charge(state)
    assert (state.topic_id, state.topic_in_hand, state.position) == (OLD, OLD, 5)


def test_a_topic_that_is_created_again_has_a_state_without_a_position() -> None:
    subscription = reading(OLD, 5, 7)
    old = subscription.state(tp(1))
    old.paused = old.held = True
    assert subscription.follow(metadata_of(NEW)) == [tp(0), tp(1)]
    assert not subscription.in_charge(old)
    new = subscription.state(tp(1))
    assert (new.topic_id, new.position, new.reset, new.paused, new.held) == (NEW, None, Reset.COMMITTED, True, True)
    assert subscription.to_commit() == {}
    assert subscription.follow(metadata_of(NEW)) == []


@pytest.mark.proves("lagging-broker-and-a-deleted-topic")
def test_a_broker_that_lags_behind_costs_no_position() -> None:
    """Its metadata contains the deleted topic once more, after records of the new one were read."""
    subscription = reading(OLD, 5)
    for topic_id, position in ((NEW, None), (OLD, 5), (NEW, 30), (OLD, 5), (NEW, 30)):
        subscription.follow(metadata_of(topic_id))
        state = subscription.state(tp(0))
        assert (state.topic_id, state.position, state.buffer.fetch_offset) == (topic_id, position, position)
        if position is None:
            state.seek(30)


def test_only_the_last_topics_of_a_name_are_remembered() -> None:
    subscription = reading(OLD, 5)
    for number in range(FORMER_TOPICS_MAX + 1):
        subscription.follow(metadata_of(bytes([number + 1]) * 16))
    subscription.follow(metadata_of(OLD))
    assert subscription.state(tp(0)).position is None
    assert len(subscription._former[tp(0)]) == FORMER_TOPICS_MAX


def test_a_dropped_partition_forgets_its_former_topics() -> None:
    subscription = reading(OLD, 5)
    subscription.follow(metadata_of(NEW))
    subscription.assign([])
    subscription.assign([tp(0)])
    subscription.follow(metadata_of(OLD))
    assert subscription.state(tp(0)).position is None


def test_brokers_that_tell_no_topic_id_change_nothing() -> None:
    subscription = reading(OLD, 5)
    assert subscription.follow(metadata_of(ZERO_UUID)) == []
    assert subscription.follow(metadata()) == []
    assert subscription.state(tp(0)).position == 5


def test_records_in_hand_are_of_the_old_topic_until_the_application_gets_others() -> None:
    subscription = reading(OLD, 5)
    subscription.state(tp(0)).hand_out(9)
    subscription.follow(metadata_of(NEW))
    state = subscription.state(tp(0))
    assert (state.topic_id, state.topic_in_hand) == (NEW, OLD)
    state.seek(0)
    assert state.topic_in_hand == OLD, "the consumer has found the position, not the application"
    state.hand_out(1)
    assert state.topic_in_hand == NEW


def test_a_partition_that_is_assigned_with_another_topic_id_has_a_new_state() -> None:
    subscription = Subscription()
    subscription.subscribe_topics(["t"], None)
    subscription.assign([tp(0), tp(1)], {tp(0): OLD, tp(1): OLD})
    kept, dropped = subscription.state(tp(0)), subscription.state(tp(1))
    subscription.assign([tp(0), tp(1)], {tp(0): OLD, tp(1): NEW})
    assert subscription.in_charge(kept)
    assert not subscription.in_charge(dropped)
    assert subscription.state(tp(1)).topic_id == NEW


def test_without_a_group_a_partition_that_the_new_topic_does_not_have_keeps_its_position() -> None:
    """A broker that lags behind names the old topic once more, which has more partitions."""
    subscription = reading(OLD, 5, 7)
    subscription.assign_all([tp(0)])
    assert subscription.follow(metadata_of(NEW)) == [tp(0)]
    subscription.assign_all([tp(0), tp(1)])
    assert subscription.follow(metadata_of(OLD)) == [tp(0)]
    assert [subscription.state(tp(index)).position for index in (0, 1)] == [5, 7]
    assert subscription.state(tp(1)).buffer.fetch_offset == 7


def test_a_position_that_was_put_aside_does_not_outlive_the_subscription() -> None:
    subscription = reading(OLD, 5, 7)
    subscription.assign_all([tp(0)])
    subscription.unsubscribe()
    subscription.subscribe_topics(["t"], None)
    subscription.assign_all([tp(0), tp(1)])
    subscription.follow(metadata_of(OLD))
    assert [subscription.state(tp(index)).position for index in (0, 1)] == [None, None]
