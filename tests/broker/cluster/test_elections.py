"""The elected leader and the in-sync replicas in every situation of the table in `elections.py`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from broker.cluster.images import TOPIC_ID, ImageBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.cluster import elections, records
from semel_broker.cluster.elections import BrokerStates, elect, leave, preferred, settled, unsettled
from semel_broker.cluster.image import PartitionView
from semel_broker.cluster.records import NO_LEADER, PartitionState
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import Expect, Listing, Put, StoreEntry
from semel_protocol.errors import ErrorCode, KafkaError


def state_of(sketch: ImageBuilder) -> tuple[int, int, list[int]]:
    state = sketch.view().state
    return state.leader, state.leader_epoch, list(state.isr)


def settle(sketch: ImageBuilder) -> tuple[int, int, list[int]]:
    """The state that the controller would write for this partition."""
    sketch.write(elections.unsettled(sketch.image.electable(), BrokerStates.of(sketch.image)))
    assert not list(unsettled(sketch.image.partitions(), BrokerStates.of(sketch.image)))
    return state_of(sketch)


def give_back(sketch: ImageBuilder) -> Iterator[Step]:
    return preferred(sketch.image.electable(), BrokerStates.of(sketch.image))


def admit(sketch: ImageBuilder, node_id: int, *, is_synced: bool = False) -> None:
    kept = sketch.image.registration(node_id)
    assert kept is not None
    sketch.put(f"{records.ADMISSIONS}{node_id}", records.BrokerAdmission(kept.revision, is_synced))


@pytest.fixture
def three() -> ImageBuilder:
    """Brokers 1, 2, 3; one partition on all of them, led by 1."""
    sketch = ImageBuilder()
    sketch.lives(1, 2, 3)
    sketch.topic([1, 2, 3])
    return sketch


# --- disks that hang ---


def test_where_another_replica_is_in_sync_a_broker_whose_disk_hangs_neither_leads_nor_follows(
    three: ImageBuilder,
) -> None:
    three.hangs(1)
    assert settle(three) == (2, 1, [2, 3])
    assert not list(give_back(three))
    three.hangs(3)
    assert settle(three) == (2, 1, [2])
    three.hangs(2)
    assert settle(three) == (2, 1, [2]), "no other replica has all records"


def test_where_all_disks_hang_nothing_changes(three: ImageBuilder) -> None:
    for node_id in (1, 2, 3):
        three.hangs(node_id)
    assert settle(three) == (1, 0, [1, 2, 3])
    three.hangs(2, False)
    assert settle(three) == (2, 1, [2]), "the first disk that continues"


def test_the_only_replica_leads_on_while_its_disk_hangs(three: ImageBuilder) -> None:
    three.topic([1], name="single", topic_id="single")
    three.hangs(1)
    settle(three)
    view = three.image.partition("single", 0)
    assert view is not None
    assert (view.state.leader, view.state.isr) == (1, [1])


def test_a_broker_may_lead_again_after_its_disk_hung(three: ImageBuilder) -> None:
    three.hangs(1)
    assert settle(three) == (2, 1, [2, 3])
    three.hangs(1, False)
    assert settle(three) == (2, 1, [2, 3]), "it joins again when it has caught up"
    three.state(2, 1, [2, 3, 1])
    three.write(give_back(three))
    assert state_of(three) == (1, 2, [2, 3, 1])


@pytest.mark.parametrize("unclean", [False, True])
def test_a_requested_election_leaves_a_disk_that_hangs(three: ImageBuilder, unclean: bool) -> None:
    three.hangs(1)
    three.write([elect(three.image, (TOPIC_ID, 0), unclean=unclean)])
    assert state_of(three) == (2, 1, [2, 3])
    if not unclean:
        with pytest.raises(KafkaError, match=r"broker 1, the preferred leader of .*, has a disk that hangs") as caught:
            elect(three.image, (TOPIC_ID, 0), unclean=False)
        assert caught.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("unclean", [False, True])
def test_a_requested_election_says_why_it_stays_with_a_disk_that_hangs(three: ImageBuilder, unclean: bool) -> None:
    three.state(1, 4, [1])
    three.hangs(1)
    with pytest.raises(KafkaError, match="Its disk hangs, and no other replica is in sync") as caught:
        elect(three.image, (TOPIC_ID, 0), unclean=unclean)
    assert caught.value.code is ErrorCode.ELECTION_NOT_NEEDED


def test_an_unclean_election_prefers_a_disk_that_does_not_hang(three: ImageBuilder) -> None:
    three.state(NO_LEADER, 4, [1])
    three.dies(1)
    three.hangs(2)
    three.write([elect(three.image, (TOPIC_ID, 0), unclean=True)])
    assert state_of(three) == (3, 5, [3])


def test_a_hang_does_not_outlive_the_registration_that_has_told_it(three: ImageBuilder) -> None:
    three.hangs(1)
    three.registers(1)
    assert not three.image.hangs(1)
    assert not BrokerStates.of(three.image).hanging


# --- damaged replicas ---


@pytest.mark.proves("one-bad-directory")
def test_a_broker_neither_leads_nor_follows_a_partition_whose_files_it_cannot_use(three: ImageBuilder) -> None:
    three.lives(1, offline={TOPIC_ID: [0]})
    assert settle(three) == (2, 1, [2, 3])
    assert not list(give_back(three))
    three.dies(2, 3)
    assert settle(three) == (NO_LEADER, 2, [2, 3])
    three.lives(3)
    assert settle(three) == (3, 3, [3])


def test_the_only_replica_in_sync_stays_in_the_isr_until_its_files_are_repaired(three: ImageBuilder) -> None:
    three.state(1, 4, [1])
    three.lives(1, offline={TOPIC_ID: [0]})
    assert settle(three) == (NO_LEADER, 5, [1])
    with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
        elections.elect(three.image, (TOPIC_ID, 0), unclean=False)
    step = elections.elect(three.image, (TOPIC_ID, 0), unclean=True)
    assert step.facts["leader"] == 2
    three.lives(1)
    assert settle(three) == (1, 6, [1])


def test_a_damaged_replica_of_another_partition_changes_nothing(three: ImageBuilder) -> None:
    three.lives(1, offline={TOPIC_ID: [1], "another": [0]})
    assert settle(three) == (1, 0, [1, 2, 3])


def test_a_partition_that_goes_offline_while_its_broker_runs_is_led_by_another_replica_in_sync(
    three: ImageBuilder,
) -> None:
    three.goes_offline(1, {TOPIC_ID: [0]})
    assert three.image.is_offline(1, (TOPIC_ID, 0))
    assert not three.image.is_offline(1, (TOPIC_ID, 1))
    assert settle(three) == (2, 1, [2, 3])
    three.goes_offline(3, {TOPIC_ID: [0]})
    assert settle(three) == (2, 1, [2])
    three.goes_offline(2, {TOPIC_ID: [0]})
    assert settle(three) == (NO_LEADER, 2, [2]), "no replica outside of the ISR is elected"


def test_offline_partitions_do_not_outlive_the_registration_that_has_named_them(three: ImageBuilder) -> None:
    three.goes_offline(1, {TOPIC_ID: [0]})
    three.lives(1)
    assert not BrokerStates.of(three.image).offline
    three.lives(1, offline={TOPIC_ID: [1]})
    assert BrokerStates.of(three.image).offline == {1: {TOPIC_ID: [1]}}
    three.goes_offline(1, {TOPIC_ID: [0, 1]})
    assert BrokerStates.of(three.image).offline == {1: {TOPIC_ID: [0, 1]}}
    kept = three.image.registration(1)
    assert kept is not None
    remains = StoreEntry(records.broker_key(1), msgspec.json.encode(kept.value), kept.revision)
    three.image.replace(Listing([remains], three.image.revision + 1))
    assert BrokerStates.of(three.image).offline == {1: {TOPIC_ID: [1]}}, "the key was removed"


# --- deaths ---


def test_a_dead_leader_is_followed_by_the_next_replica_in_sync_and_leaves_the_isr(three: ImageBuilder) -> None:
    three.dies(1)
    assert settle(three) == (2, 1, [2, 3])


def test_a_dead_follower_leaves_the_isr_and_the_epoch_stays(three: ImageBuilder) -> None:
    three.dies(2)
    assert settle(three) == (1, 0, [1, 3])


def test_a_replica_that_is_not_in_sync_is_not_elected(three: ImageBuilder) -> None:
    three.state(1, 4, [1, 3])
    three.dies(1)
    assert settle(three) == (3, 5, [3])


@pytest.mark.proves("last-replica-in-sync")
def test_the_last_replica_in_sync_leads_again_in_a_new_epoch_when_it_is_back(three: ImageBuilder) -> None:
    three.state(2, 7, [2])
    three.dies(2)
    assert settle(three) == (NO_LEADER, 8, [2])
    three.lives(2)
    assert settle(three) == (2, 9, [2])


def test_a_partition_of_one_replica_keeps_its_leader_and_epoch_while_the_broker_is_down() -> None:
    sketch = ImageBuilder()
    sketch.lives(1, 2)
    sketch.topic([1])
    sketch.dies(1)
    assert settle(sketch) == (1, 0, [1])
    sketch.registers(1)
    assert settle(sketch) == (1, 0, [1])


def test_a_leaderless_partition_of_one_replica_is_led_when_the_broker_is_back() -> None:
    sketch = ImageBuilder()
    sketch.topic([1])
    sketch.state(NO_LEADER, 4, [1])
    assert settle(sketch) == (NO_LEADER, 4, [1])
    sketch.lives(1)
    assert settle(sketch) == (1, 5, [1])


def test_all_of_an_isr_that_die_at_once_may_come_back_in_any_order(three: ImageBuilder) -> None:
    three.lives(1, 2, 3, is_synced=True)
    three.dies(1, 2, 3)
    assert settle(three) == (NO_LEADER, 1, [1, 2, 3])
    three.registers(3)
    assert settle(three) == (NO_LEADER, 1, [1, 2, 3])
    admit(three, 3, is_synced=True)
    assert settle(three) == (3, 2, [3])


@pytest.mark.proves("replica-that-may-lack-records")
def test_a_replica_that_may_have_lost_records_is_not_preferred_to_one_that_has_not(three: ImageBuilder) -> None:
    three.dies(1, 2, 3)
    assert settle(three) == (NO_LEADER, 1, [1, 2, 3])
    three.registers(3)  # it does not sync, and the way it died is not known
    assert settle(three) == (NO_LEADER, 1, [1, 2])
    admit(three, 3)
    assert settle(three) == (NO_LEADER, 1, [1, 2])
    three.registers(1)
    assert settle(three) == (NO_LEADER, 1, [2])
    three.registers(2)
    assert settle(three) == (NO_LEADER, 1, [2])
    admit(three, 2)
    assert settle(three) == (2, 2, [2])


@pytest.mark.proves("replica-that-may-lack-records")
def test_a_broker_is_judged_by_the_durability_of_its_previous_registration(three: ImageBuilder) -> None:
    three.dies(1, 2, 3)
    three.registers(1, is_synced=True)
    assert settle(three) == (NO_LEADER, 1, [2, 3])


# --- reboots ---


@pytest.mark.proves("rebooted-broker")
def test_a_restarted_broker_loses_its_leaderships_before_it_is_admitted(three: ImageBuilder) -> None:
    three.registers(1)  # its end was not noticed
    assert settle(three) == (2, 1, [2, 3])
    admit(three, 1)
    assert settle(three) == (2, 1, [2, 3])


def test_a_restarted_follower_leaves_the_isr_before_it_is_admitted(three: ImageBuilder) -> None:
    three.registers(3)
    assert settle(three) == (1, 0, [1, 2])


def test_a_restarted_sole_member_of_the_isr_leads_in_a_new_epoch(three: ImageBuilder) -> None:
    three.state(1, 3, [1])
    three.registers(1)
    assert settle(three) == (NO_LEADER, 4, [1])
    admit(three, 1)
    assert settle(three) == (1, 5, [1])


# --- leaving ---


def test_a_leaving_leader_is_succeeded_and_stays_in_the_isr_until_it_is_gone(three: ImageBuilder) -> None:
    three.leaves(1)
    assert [view.place for view in leave(three.image, 1)] == [(TOPIC_ID, 0)]
    assert settle(three) == (2, 1, [1, 2, 3])
    assert leave(three.image, 1) == []
    three.dies(1)
    assert settle(three) == (2, 1, [2, 3])


def test_a_leaving_leader_keeps_partitions_that_no_other_broker_can_lead(three: ImageBuilder) -> None:
    three.state(1, 2, [1])
    three.leaves(1)
    assert leave(three.image, 1) == []
    assert settle(three) == (1, 2, [1])


def test_no_leader_changes_when_all_brokers_leave(three: ImageBuilder) -> None:
    for node_id in (1, 2, 3):
        three.leaves(node_id)
    assert settle(three) == (1, 0, [1, 2, 3])
    assert leave(three.image, 1) == []


def test_a_leaving_broker_is_elected_only_as_a_last_resort(three: ImageBuilder) -> None:
    three.leaves(2)
    three.dies(1)
    assert settle(three) == (3, 1, [2, 3])
    three.dies(3)
    assert settle(three) == (2, 2, [2])


def test_an_announced_shutdown_does_not_outlive_its_registration(three: ImageBuilder) -> None:
    three.leaves(1)
    three.lives(1)
    assert not BrokerStates.of(three.image).leaving


# --- preferred leaders ---


def test_the_preferred_leader_gets_its_partition_back_once_it_is_in_sync(three: ImageBuilder) -> None:
    three.state(2, 1, [2, 3])
    assert three.write(give_back(three)) == 0
    three.state(2, 1, [2, 3, 1])
    assert three.write(give_back(three)) == 1
    assert state_of(three) == (1, 2, [2, 3, 1])
    assert three.write(give_back(three)) == 0


def test_no_preferred_leader_is_elected_while_it_leaves_or_there_is_no_leader(three: ImageBuilder) -> None:
    three.state(2, 1, [1, 2, 3])
    three.leaves(1)
    assert three.write(give_back(three)) == 0
    three.lives(1)
    three.state(NO_LEADER, 2, [1, 2, 3])
    assert three.write(give_back(three)) == 0


# --- asked for by an operator ---


def refusal(sketch: ImageBuilder, *, unclean: bool = False, index: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        elections.elect(sketch.image, (TOPIC_ID, index), unclean=unclean)
    return caught.value.code


def test_elect_leaders_makes_the_preferred_replica_leader(three: ImageBuilder) -> None:
    three.state(2, 1, [1, 2, 3])
    three.write([elections.elect(three.image, (TOPIC_ID, 0), unclean=False)])
    assert state_of(three) == (1, 2, [1, 2, 3])


def test_elect_leaders_names_the_reason_of_a_refusal(three: ImageBuilder) -> None:
    assert refusal(three, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(three) is ErrorCode.ELECTION_NOT_NEEDED
    assert refusal(three, unclean=True) is ErrorCode.ELECTION_NOT_NEEDED
    three.state(2, 1, [2, 3])
    assert refusal(three) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    three.dies(1, 2, 3)
    settle(three)
    assert refusal(three) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert refusal(three, unclean=True) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_an_unclean_election_leaves_the_isr_only_if_no_member_of_it_is_live(three: ImageBuilder) -> None:
    three.state(1, 1, [1])
    three.dies(1)
    settle(three)
    three.write([elections.elect(three.image, (TOPIC_ID, 0), unclean=True)])
    assert state_of(three) == (2, 3, [2])
    three.state(NO_LEADER, 4, [3])
    three.write([elections.elect(three.image, (TOPIC_ID, 0), unclean=True)])
    assert state_of(three) == (3, 5, [3])


@pytest.mark.proves("rebooted-broker")
def test_an_election_holds_only_for_the_registration_that_was_seen(three: ImageBuilder) -> None:
    three.dies(1)
    (step,) = unsettled(three.image.electable(), BrokerStates.of(three.image))
    assert Expect(records.broker_key(2), three.revisions[records.broker_key(2)]) in step.expects
    three.lives(2)  # it boots at that moment
    with pytest.raises(AssertionError):
        three.write([step])


# --- whatever happens ---

NODES = (1, 2, 3, 4)


@st.composite
def situations(draw: st.DrawFn) -> tuple[PartitionView, BrokerStates]:
    replicas = draw(st.permutations(NODES).map(list))[: draw(st.integers(1, 4))]
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    leader = draw(st.sampled_from([*isr, NO_LEADER]))
    live = {node_id: 10 + node_id for node_id in NODES if draw(st.booleans())}
    leaving = {node_id: None for node_id in live if draw(st.booleans())}
    may_lack_records = {node_id: None for node_id in NODES if node_id not in live and draw(st.booleans())}
    state = PartitionState(leader, draw(st.integers(0, 9)), isr)
    view = PartitionView(topic="t", topic_id=TOPIC_ID, index=0, replicas=replicas, state=state, revision=5)
    return view, BrokerStates(live, leaving, may_lack_records)


@pytest.mark.proves("last-replica-in-sync")
@settings(deadline=None)
@given(situations())
def test_only_isr_members_are_elected_and_each_change_of_leader_raises_the_epoch(
    situation: tuple[PartitionView, BrokerStates],
) -> None:
    view, brokers = situation
    before, after = view.state, settled(view, brokers)
    assert after.isr
    assert all(node_id in before.isr for node_id in after.isr)
    assert after.leader in (NO_LEADER, before.leader, *before.isr)
    if after.leader != NO_LEADER:
        assert after.leader in after.isr
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader)
    if after.leader != before.leader and after.leader != NO_LEADER:
        assert after.leader in brokers.live


@settings(deadline=None)
@given(situations())
def test_a_partition_has_a_leader_whenever_a_live_broker_is_in_sync(
    situation: tuple[PartitionView, BrokerStates],
) -> None:
    view, brokers = situation
    after = settled(view, brokers)
    present = [node_id for node_id in view.state.isr if node_id in brokers.live]
    if present:
        assert after.leader in brokers.live
        assert after.isr == present
    if any(node_id not in brokers.leaving for node_id in present):
        assert after.leader not in brokers.leaving


@settings(deadline=None)
@given(situations())
def test_settled_is_idempotent_and_changes_no_more_than_needed(
    situation: tuple[PartitionView, BrokerStates],
) -> None:
    view, brokers = situation
    after = settled(view, brokers)
    again = PartitionView(topic="t", topic_id=TOPIC_ID, index=0, replicas=view.replicas, state=after, revision=6)
    assert settled(again, brokers) is after
    leads_well = view.state.leader in brokers.live and view.state.leader not in brokers.leaving
    if leads_well and all(node_id in brokers.live for node_id in view.state.isr):
        assert after is view.state


@settings(deadline=None)
@given(situations())
def test_an_elected_preferred_leader_is_live_in_sync_and_stays(
    situation: tuple[PartitionView, BrokerStates],
) -> None:
    view, brokers = situation
    for step in preferred([view], brokers):
        (change,) = step.changes
        assert isinstance(change, Put)
        after = msgspec.json.decode(change.value, type=PartitionState)
        assert after.leader == view.replicas[0]
        assert after.isr == view.state.isr
        assert after.leader_epoch == view.state.leader_epoch + 1
        assert after.leader in after.isr
        assert after.leader in brokers.live
        assert after.leader not in brokers.leaving
