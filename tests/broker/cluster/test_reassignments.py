"""Reassignments: the request, the states of the partition, the end, and the cancellation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from broker.cluster.images import TOPIC, TOPIC_ID, ImageBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.cluster import reassignments, records
from semel_broker.cluster.elections import BrokerStates, unsettled
from semel_broker.cluster.image import StoredValue
from semel_broker.cluster.reassignments import PARTITIONS_PER_STEP, adding, check, finish, removing
from semel_broker.cluster.records import NO_LEADER, PartitionState, Reassignment, TopicRecord
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import ABSENT, Expect
from semel_protocol.errors import ErrorCode, KafkaError


def alter(sketch: ImageBuilder, targets: Mapping[int, Sequence[int] | None]) -> Step | None:
    step, refused = reassignments.alter(sketch.image, topic_of(sketch), targets)
    for error in refused.values():
        raise error
    return step


def topic_of(sketch: ImageBuilder) -> StoredValue[TopicRecord]:
    stored = sketch.image.topic(TOPIC)
    assert stored is not None
    return stored


def go(sketch: ImageBuilder, target: Sequence[int], index: int = 0) -> None:
    step = alter(sketch, {index: target})
    assert step is not None
    sketch.write([step])


def back(sketch: ImageBuilder, index: int = 0) -> None:
    step = alter(sketch, {index: None})
    assert step is not None
    sketch.write([step])


def end(sketch: ImageBuilder) -> int:
    places = [view.place for view in sketch.image.partitions()]
    return sketch.write(finish(sketch.image, BrokerStates.of(sketch.image), places))


@pytest.fixture
def five() -> ImageBuilder:
    """Brokers 1 to 5; a partition on 1 and 2, led by 1."""
    sketch = ImageBuilder()
    sketch.lives(1, 2, 3, 4, 5)
    sketch.topic([1, 2])
    return sketch


@pytest.mark.proves("leader-that-has-gone")
@pytest.mark.parametrize("way", ["there", "back"])
def test_the_replica_that_is_to_lead_has_to_be_live(five: ImageBuilder, way: str) -> None:
    go(five, [3, 4])
    five.state(1, 0, [1, 2, 3, 4])
    if way == "there":
        (step,) = finish(five.image, BrokerStates.of(five.image), [(TOPIC_ID, 0)])
        comes = 3
    else:
        five.state(3, 1, [1, 2, 3, 4])
        made = alter(five, {0: None})
        assert made is not None
        step, comes = made, 1
    assert Expect(records.broker_key(comes), BrokerStates.of(five.image).live[comes]) in step.expects
    five.dies(comes)
    with pytest.raises(AssertionError, match=records.broker_key(comes)):
        five.write([step])


def test_while_it_is_on_its_way_the_replicas_are_both_and_nothing_else_has_changed(five: ImageBuilder) -> None:
    go(five, [3, 2])
    view = five.view()
    assert list(view.replicas) == [3, 2, 1]
    assert view.state == PartitionState(1, 0, [1, 2])
    assert view.revision == ABSENT
    assert (adding(view), removing(view)) == ([3], [1])
    assert [moving.place for moving in five.image.reassignments()] == [(TOPIC_ID, 0)]


def test_it_ends_once_the_whole_target_is_in_sync(five: ImageBuilder) -> None:
    go(five, [3, 4])
    five.state(1, 0, [1, 2, 3])
    assert end(five) == 0
    five.state(1, 0, [1, 2, 3, 4])
    assert end(five) == 1
    view = five.view()
    assert list(view.replicas) == [3, 4]
    assert view.state == PartitionState(3, 1, [3, 4])
    assert view.reassignment is None
    assert end(five) == 0


def test_a_leader_that_stays_leads_on_in_its_epoch(five: ImageBuilder) -> None:
    go(five, [2, 1, 3])
    five.state(1, 4, [1, 2, 3])
    end(five)
    assert five.view().state == PartitionState(1, 4, [1, 2, 3])


def test_it_does_not_end_on_the_strength_of_an_isr_that_has_shrunk_meanwhile(five: ImageBuilder) -> None:
    go(five, [3, 4])
    five.state(1, 0, [1, 2, 3, 4])
    steps = finish(five.image, BrokerStates.of(five.image), [(TOPIC_ID, 0)])
    five.state(1, 0, [1, 2, 3])
    with pytest.raises(AssertionError):
        five.write(steps)


def test_fewer_replicas_need_no_replica_to_catch_up(five: ImageBuilder) -> None:
    go(five, [2])
    assert end(five) == 1
    assert list(five.view().replicas) == [2]
    assert five.view().state == PartitionState(2, 1, [2])


def test_another_order_alone_is_a_reassignment_too(five: ImageBuilder) -> None:
    go(five, [2, 1])
    assert end(five) == 1
    assert list(five.view().replicas) == [2, 1]
    assert five.view().state == PartitionState(1, 0, [1, 2])


def test_where_it_is_already_there_is_nothing_to_begin(five: ImageBuilder) -> None:
    assert alter(five, {0: [1, 2]}) is None
    go(five, [3, 4])
    assert alter(five, {0: [3, 4]}) is None


def test_it_does_not_end_while_no_target_replica_is_live(five: ImageBuilder) -> None:
    go(five, [3])
    five.state(1, 0, [1, 2, 3])
    five.dies(3)
    assert end(five) == 0
    five.write(unsettled(five.image.electable(), BrokerStates.of(five.image)))
    assert five.view().state == PartitionState(1, 0, [1, 2])
    assert end(five) == 0


def test_a_leaving_broker_of_the_target_is_not_made_leader_if_there_is_another(five: ImageBuilder) -> None:
    go(five, [3, 4])
    five.state(1, 0, [1, 2, 3, 4])
    five.leaves(3)
    end(five)
    assert five.view().state == PartitionState(4, 1, [3, 4])


def test_a_new_aim_keeps_what_there_was_in_the_beginning(five: ImageBuilder) -> None:
    go(five, [3, 4])
    go(five, [5])
    view = five.view()
    assert list(view.replicas) == [5, 3, 4, 1, 2]
    assert view.reassignment == Reassignment(target=[5], original=[1, 2])
    assert (adding(view), removing(view)) == ([5], [3, 4, 1, 2])
    back(five)
    assert list(five.view().replicas) == [1, 2]


# --- going back ---


def test_going_back_restores_the_replicas_and_drops_the_others_from_the_isr(five: ImageBuilder) -> None:
    go(five, [3, 4])
    five.state(1, 2, [1, 2, 3])
    back(five)
    view = five.view()
    assert list(view.replicas) == [1, 2]
    assert view.state == PartitionState(1, 2, [1, 2])
    assert view.reassignment is None


def test_going_back_takes_the_leadership_from_a_broker_that_was_new(five: ImageBuilder) -> None:
    go(five, [3, 2])
    five.state(3, 5, [3, 2])
    back(five)
    assert five.view().state == PartitionState(2, 6, [2])


@pytest.mark.proves("reassignment-loses-records")
def test_there_is_no_way_back_that_would_lose_records(five: ImageBuilder) -> None:
    go(five, [3, 4])
    five.state(3, 5, [3])
    with pytest.raises(KafkaError) as caught:
        alter(five, {0: None})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    five.state(NO_LEADER, 6, [2])
    five.dies(2)
    with pytest.raises(KafkaError) as caught:
        alter(five, {0: None})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_going_back_from_nowhere(five: ImageBuilder) -> None:
    with pytest.raises(KafkaError) as caught:
        alter(five, {0: None})
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


# --- what may be asked for ---


@pytest.mark.parametrize("target", [[], [1, 1], [9], [-1, 1]])
def test_a_target_that_cannot_be(five: ImageBuilder, target: list[int]) -> None:
    with pytest.raises(KafkaError) as caught:
        check(five.view(), target, five.image)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_replica_that_is_away_may_stay_one_but_not_become_one(five: ImageBuilder) -> None:
    five.dies(2, 3)
    check(five.view(), [1, 2], five.image)
    with pytest.raises(KafkaError, match="there is no broker 3 now; the brokers are \\[1, 4, 5\\]"):
        check(five.view(), [1, 3], five.image)


def test_kip860_the_number_of_replicas_may_be_kept_as_it_is(five: ImageBuilder) -> None:
    check(five.view(), [3, 4], five.image, may_change_factor=False)
    with pytest.raises(KafkaError) as caught:
        check(five.view(), [3, 4, 5], five.image, may_change_factor=False)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    go(five, [3, 4])
    check(five.view(), [3, 5], five.image, may_change_factor=False)


def test_reassignments_that_do_not_fit_one_transaction_end_in_several() -> None:
    sketch = ImageBuilder()
    sketch.lives(1, 2)
    sketch.topic(*[[1, 2]] * (PARTITIONS_PER_STEP + 3))
    for index in range(PARTITIONS_PER_STEP + 3):
        go(sketch, [2], index)
    assert end(sketch) == 1
    assert len(sketch.image.reassignments()) == 3
    assert end(sketch) == 1
    assert sketch.image.reassignments() == []


# --- whatever happens ---

NODES = (1, 2, 3, 4, 5)
targets = st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("go"), targets),
        st.tuples(st.just("back"), st.none()),
        st.tuples(st.just("catch up"), st.sampled_from(NODES)),
        st.tuples(st.just("die"), st.sampled_from(NODES)),
        st.tuples(st.just("live"), st.sampled_from(NODES)),
    ),
    max_size=30,
)


@pytest.mark.proves("reassignment-loses-records")
@settings(deadline=None)
@given(targets, moves)
def test_a_reassignment_makes_no_broker_leader_or_in_sync_that_lacks_records(
    first: list[int], moves: list[tuple[str, object]]
) -> None:
    sketch = ImageBuilder()
    sketch.lives(*NODES)
    sketch.topic(first)
    for move, about in moves:
        before = sketch.view()
        allowed = list(before.state.isr)
        if move == "go" and list(before.replicas) != about:
            assert isinstance(about, list)
            step, _ = reassignments.alter(sketch.image, topic_of(sketch), {0: about})
            sketch.write([] if step is None else [step])
        elif move == "back" and before.reassignment is not None:
            original, live = before.reassignment.original, BrokerStates.of(sketch.image).live
            if any(node_id in original and node_id in live for node_id in before.state.isr):
                back(sketch)
            else:
                with pytest.raises(KafkaError):
                    back(sketch)
        elif (
            move == "catch up" and isinstance(about, int) and before.state.leader in BrokerStates.of(sketch.image).live
        ):
            state = before.state
            if about in before.replicas and about not in state.isr and about in BrokerStates.of(sketch.image).live:
                sketch.state(state.leader, state.leader_epoch, [*state.isr, about])
                allowed.append(about)
        elif isinstance(about, int) and move == "die" and sketch.image.registration(about) is not None:
            sketch.dies(about)
        elif isinstance(about, int) and move == "live" and sketch.image.registration(about) is None:
            sketch.lives(about)
        brokers = BrokerStates.of(sketch.image)
        sketch.write(unsettled(sketch.image.electable(), brokers))
        end(sketch)
        sketch.write(unsettled(sketch.image.electable(), brokers))
        view = sketch.view()
        assert view.state.isr
        assert all(node_id in allowed for node_id in view.state.isr), (view, allowed)
        assert all(node_id in view.replicas for node_id in view.state.isr), view
        assert view.state.leader in (NO_LEADER, *view.state.isr)
        assert view.state.leader_epoch >= before.state.leader_epoch
        if view.state.leader not in (NO_LEADER, before.state.leader):
            assert view.state.leader_epoch > before.state.leader_epoch
        reassignment = view.reassignment
        if reassignment is not None:
            assert all(node_id in view.replicas for node_id in (*reassignment.target, *reassignment.original))


def test_only_one_of_two_concurrent_reassignments_succeeds(five: ImageBuilder) -> None:
    one = alter(five, {0: [3]})
    other = alter(five, {0: [4]})
    assert one is not None
    assert other is not None
    five.write([one])
    with pytest.raises(AssertionError):
        five.write([other])
    assert reassignments.adding(five.view()) == [3]
