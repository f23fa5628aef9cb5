"""The transitions of a group, one rule in each test, without a broker or a clock."""

import pytest
from broker.groups.group_state_driver import REBALANCE_MS, SESSION_MS, GroupStateDriver
from semel_broker.groups.classic.group import NEXT, GroupState
from semel_broker.groups.classic.state import AWAITED_MS
from semel_broker.groups.embedded import encoded_assignment
from semel_protocol.errors import ErrorCode, KafkaError
from support.embedded import encoded_subscription

ANY = GroupState


def test_transitions_are_those_of_the_table_and_no_others() -> None:
    for before in GroupState:
        for after in GroupState:
            room = GroupStateDriver()
            room.group.state = before
            if after in NEXT[before]:
                room.group.enter(after, 0)
                assert room.group.state is after
            else:
                with pytest.raises(AssertionError):
                    room.group.enter(after, 0)


def test_first_member_leads_and_sees_all_members() -> None:
    room = GroupStateDriver()
    joined = room.joined(room.join())
    assert (joined.generation_id, joined.leader, joined.protocol) == (1, joined.member_id, "range")
    assert [(m.member_id, m.metadata) for m in joined.members] == [(joined.member_id, b"range-metadata")]
    assert room.group.state is GroupState.COMPLETING_REBALANCE


def test_newcomer_starts_a_rebalance_that_ends_when_all_have_joined() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    newcomer = room.join()
    assert room.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer not in room.answers
    again = room.join(first)
    assert room.joined(again).generation_id == 2
    assert room.joined(again).leader == first
    assert room.joined(newcomer).members == ()
    assert {m.member_id for m in room.joined(again).members} == {first, room.joined(newcomer).member_id}


def test_followers_get_their_assignment_once_the_leaders_is_durable() -> None:
    room = GroupStateDriver()
    first = room.joined(room.join()).member_id
    second = room.join()
    room.join(first)
    other = room.joined(second).member_id
    room.hold = True
    follower = room.sync(other)
    leader = room.sync(first, {first: b"one", other: b"two", "stranger": b"three"})
    assert not {follower, leader} & set(room.answers)
    room.settle()
    assert (room.assignment(leader), room.assignment(follower)) == (b"one", b"two")
    assert room.group.state is GroupState.STABLE


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    room = GroupStateDriver()
    member = room.joined(room.join()).member_id
    assert room.assignment(room.sync(member, {})) == b""


def test_assignment_that_becomes_durable_after_the_next_rebalance_began_is_void() -> None:
    room = GroupStateDriver(hold=True)
    member = room.joined(room.join()).member_id
    sync = room.sync(member, {member: b"old"})
    newcomer = room.join()
    assert room.code(sync) is ErrorCode.REBALANCE_IN_PROGRESS
    room.settle()
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert newcomer not in room.answers


def test_assignment_that_cannot_be_stored_starts_the_generation_over() -> None:
    room = GroupStateDriver(hold=True)
    member = room.joined(room.join()).member_id
    sync = room.sync(member, {member: b"a"})
    room.refuse(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert room.code(sync) is ErrorCode.NOT_COORDINATOR
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert room.joined(room.join(member)).generation_id == 2


def test_follower_that_joins_again_unchanged_is_answered_at_once() -> None:
    room = GroupStateDriver()
    leader, follower = room.stable(2)
    generation = room.group.generation_id
    joined = room.joined(room.join(follower))
    assert (joined.generation_id, joined.leader, joined.members) == (generation, leader, ())
    assert room.group.state is GroupState.STABLE


def test_follower_that_joins_again_with_other_metadata_rebalances() -> None:
    room = GroupStateDriver()
    leader, follower = room.stable(2, protocols="range sticky")
    assert room.join(follower, protocols="sticky range") not in room.answers
    assert room.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_leader_that_joins_again_rebalances() -> None:
    room = GroupStateDriver()
    leader, follower = room.stable(2)
    assert room.join(leader) not in room.answers
    assert room.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_join_repeated_after_a_lost_answer_is_answered_with_the_same_generation() -> None:
    room = GroupStateDriver()
    first = room.joined(room.join())
    again = room.joined(room.join(first.member_id))
    assert again == first


def test_earlier_try_of_a_waiting_join_is_answered() -> None:
    room = GroupStateDriver()
    _, follower = room.stable(2)
    room.join()
    try_one = room.join(follower)
    try_two = room.join(follower)
    assert room.code(try_one) is ErrorCode.REBALANCE_IN_PROGRESS
    assert try_two not in room.answers


def test_sync_repeated_while_stable_gets_the_assignment_again() -> None:
    room = GroupStateDriver()
    _, follower = room.stable(2)
    assert room.assignment(room.sync(follower)) == follower.encode()


@pytest.mark.parametrize(
    ("protocols", "protocol_type"), [("sticky", "consumer"), ("range", "connect"), ("", "consumer"), ("range", "")]
)
def test_newcomer_without_a_common_protocol_is_refused(protocols: str, protocol_type: str) -> None:
    room = GroupStateDriver()
    room.stable(1)
    refused = room.join(protocols=protocols, protocol_type=protocol_type)
    assert room.code(refused) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.group.state is GroupState.STABLE


def test_protocol_that_most_prefer_among_the_common_ones_is_chosen() -> None:
    room = GroupStateDriver()
    first = room.joined(room.join(protocols="x range sticky")).member_id
    room.join(protocols="sticky range")
    room.join(protocols="sticky range")
    again = room.join(first, protocols="x range sticky")
    assert room.joined(again).protocol == "sticky"


def test_lone_member_may_change_its_protocol() -> None:
    room = GroupStateDriver()
    (member,) = room.stable(1)
    assert room.joined(room.join(member, protocols="sticky")).protocol == "sticky"


# --- member ids (KIP-394) ---


def test_kip394_newcomer_is_given_an_id_and_joins_with_it() -> None:
    room = GroupStateDriver()
    given = room.given_id(room.join(must_return=True))
    assert room.group.members == {}
    joined = room.joined(room.join(given, must_return=True))
    assert joined.member_id == given
    assert room.group.pending == {}


def test_kip394_rebalance_waits_for_those_sent_away_for_an_id() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    given = room.given_id(room.join(must_return=True))
    again = room.join(first)
    assert again not in room.answers
    room.join(given)
    assert len(room.joined(again).members) == 2


def test_kip394_unused_id_is_waited_for_only_a_moment_and_lapses_after_the_session_timeout() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    given, used_late = (room.given_id(room.join(must_return=True)) for _ in range(2))
    again = room.join(first)
    room.pass_time(AWAITED_MS - 1)
    assert again not in room.answers
    room.pass_time(1)
    assert room.joined(again).generation_id == 2
    room.sync(first, {})
    late = room.join(used_late)
    room.join(first)
    assert room.joined(late).generation_id == 3
    room.pass_time(SESSION_MS)
    assert room.code(room.join(given)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_does_not_wait_for_an_id_whose_connection_is_lost() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    asked = room.join(must_return=True)
    given = room.given_id(asked)
    again = room.join(first)
    room.lose(asked, given)
    assert room.joined(again).generation_id == 2
    room.sync(first, {})
    assert room.join(given) not in room.answers  # it is valid for a session timeout
    assert room.group.state is GroupState.PREPARING_REBALANCE
    room.lose(asked, given)
    assert given in room.group.members


def test_new_member_whose_connection_is_lost_is_not_part_of_the_generation() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    gone = room.join()
    again = room.join(must_return=True)
    given = room.given_id(again)
    waits = room.join(given)
    room.lose(gone)
    room.lose(waits)
    assert list(room.group.members) == [first]
    assert room.joined(room.join(first)).members[0].member_id == first
    room.sync(first, {})
    assert room.join(given) not in room.answers  # it comes back over another connection


def test_member_that_came_back_over_another_connection_is_not_lost_with_the_former_one() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    given = room.given_id(room.join(must_return=True))
    former = room.join(given)
    waits = room.join(given)
    room.lose(former)
    room.join(first)
    assert room.joined(waits).generation_id == 2


@pytest.mark.parametrize("instance", [None, "a"])
def test_member_of_a_generation_keeps_its_place_when_its_connection_is_lost(instance: str | None) -> None:
    room = GroupStateDriver()
    first = room.joined(room.join(instance=instance)).member_id
    room.sync(first, {})
    other = room.join()
    room.lose(again := room.join(first, instance=instance))
    assert {room.joined(again).generation_id, room.joined(other).generation_id} == {2}


def test_new_static_member_whose_connection_is_lost_leaves_nothing() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    room.lose(room.join(instance="a"))
    assert (room.group.static_members, list(room.group.members), room.group.pending) == ({}, [first], {})


def test_kip394_id_may_be_given_back() -> None:
    room = GroupStateDriver()
    given = room.given_id(room.join(must_return=True))
    assert room.leave(given) is ErrorCode.NONE
    assert room.group.is_blank


def test_kip394_static_member_is_admitted_directly() -> None:
    room = GroupStateDriver()
    assert room.joined(room.join(instance="s", must_return=True)).generation_id == 1


def test_kip394_given_id_does_not_admit_to_another_members_instance() -> None:
    room = GroupStateDriver()
    given = room.given_id(room.join(must_return=True))
    room.join(instance="s")
    assert room.code(room.join(given, instance="s")) is ErrorCode.FENCED_INSTANCE_ID
    assert room.code(room.join(given, instance="t")) is ErrorCode.UNKNOWN_MEMBER_ID


# --- refused requests ---


def test_stranger_is_unknown_everywhere() -> None:
    room = GroupStateDriver()
    room.stable(1)
    assert room.code(room.join("stranger")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.code(room.sync("stranger")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.heartbeat("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.leave("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.check_commit("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_other_generation_is_refused_everywhere() -> None:
    room = GroupStateDriver()
    (member,) = room.stable(1)
    for generation in (0, 2, -1):
        assert room.code(room.sync(member, generation=generation)) is ErrorCode.ILLEGAL_GENERATION
        assert room.heartbeat(member, generation=generation) is ErrorCode.ILLEGAL_GENERATION
        assert room.check_commit(member, generation) is ErrorCode.ILLEGAL_GENERATION


def test_commit_is_allowed_until_the_next_generation_begins() -> None:
    room = GroupStateDriver()
    (member,) = room.stable(1)
    generation = room.group.generation_id
    assert room.check_commit(member, generation) is ErrorCode.NONE
    room.join()
    assert room.check_commit(member, generation) is ErrorCode.NONE  # before it gives its partitions up
    room.join(member)
    assert room.check_commit(member, generation) is ErrorCode.ILLEGAL_GENERATION
    assert room.check_commit(member, generation + 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_simple_consumer_may_commit_only_while_there_are_no_members() -> None:
    room = GroupStateDriver()
    assert room.check_commit("", -1) is ErrorCode.NONE
    (member,) = room.stable(1)
    assert room.check_commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    room.leave(member)
    assert room.check_commit("", -1) is ErrorCode.NONE


def test_full_group_refuses_new_members() -> None:
    room = GroupStateDriver(size_max=2)
    first, _ = room.stable(2)
    assert room.code(room.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.group.state is GroupState.STABLE
    assert room.join(first) not in room.answers  # members may always come back


def test_id_given_out_that_finds_no_room_is_waited_for_no_longer() -> None:
    room = GroupStateDriver(size_max=2)
    (first,) = room.stable(1)
    given = room.given_id(room.join(must_return=True))
    second = room.join()
    again = room.join(first)
    assert second not in room.answers
    assert room.code(room.join(given)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.joined(again).generation_id == room.joined(second).generation_id == 2


# --- time ---


def test_silent_member_expires_and_the_others_rebalance() -> None:
    room = GroupStateDriver()
    leader, follower = room.stable(2)
    room.pass_time(SESSION_MS - 1)
    assert room.heartbeat(follower) is ErrorCode.NONE
    room.pass_time(1)
    assert list(room.group.members) == [follower]
    assert room.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = room.joined(room.join(follower))
    assert joined.leader == follower
    assert room.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_and_sync_keep_a_session_alive() -> None:
    room = GroupStateDriver()
    (member,) = room.stable(1)
    room.pass_time(SESSION_MS - 1)
    room.check_commit(member, 1)
    room.pass_time(SESSION_MS - 1)
    room.sync(member)
    room.pass_time(SESSION_MS - 1)
    assert room.heartbeat(member) is ErrorCode.NONE


def test_member_waiting_in_join_does_not_expire() -> None:
    room = GroupStateDriver()
    first, second = room.stable(2)
    again = room.join(first)
    while room.now_ms < 1_000 + SESSION_MS * 2:
        room.pass_time(SESSION_MS // 2)
        room.heartbeat(second)  # alive, but slow to join
    assert again not in room.answers
    assert first in room.group.members


def test_rebalance_timeout_leaves_the_late_behind() -> None:
    room = GroupStateDriver()
    first, second = room.stable(2)
    again = room.join(first)
    for _ in range(REBALANCE_MS // 5_000):
        assert again not in room.answers
        room.pass_time(5_000)
        room.heartbeat(second)
    assert [m.member_id for m in room.joined(again).members] == [first]
    assert room.code(room.join(second)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_new_leader_is_chosen_among_the_joined_members() -> None:
    room = GroupStateDriver()
    leader, follower = room.stable(2)
    newcomer = room.join()
    again = room.join(follower)
    for _ in range(REBALANCE_MS // 5_000):
        room.pass_time(5_000)
        room.heartbeat(leader)
    assert room.joined(again).leader == follower
    assert room.joined(newcomer).leader == follower


def test_member_that_never_syncs_is_put_out_after_the_rebalance_timeout() -> None:
    room = GroupStateDriver()
    first = room.joined(room.join()).member_id
    second = room.join()
    room.join(first)
    other = room.joined(second).member_id
    sync = room.sync(other)
    for _ in range(REBALANCE_MS // 5_000):
        room.pass_time(5_000)
        room.heartbeat(first)  # the leader lives, but does not assign
    assert room.code(sync) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(room.group.members) == [other]


def test_initial_delay_gathers_members_into_one_generation() -> None:
    room = GroupStateDriver(delay_ms=3_000)
    tokens = [room.join()]
    for _ in range(3):
        room.pass_time(2_000)
        tokens.append(room.join())
    assert not room.answers
    room.pass_time(2_999)
    assert not room.answers
    room.pass_time(1)
    assert {room.joined(token).generation_id for token in tokens} == {1}


def test_initial_delay_ends_with_the_rebalance_timeout_however_many_come() -> None:
    room = GroupStateDriver(delay_ms=3_000)
    first = room.join()
    for _ in range(REBALANCE_MS // 1_000):
        room.pass_time(1_000)
        room.join()
    assert len(room.joined(first).members) == REBALANCE_MS // 1_000


def test_initial_delay_does_not_hold_up_later_rebalances() -> None:
    room = GroupStateDriver(delay_ms=3_000)
    first = room.join()
    room.pass_time(3_000)
    newcomer = room.join()
    room.join(room.joined(first).member_id)
    assert room.joined(newcomer).generation_id == 2


def test_new_member_that_waits_for_five_minutes_is_removed() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    room.group.members[first].rebalance_timeout_ms = 3_600_000
    newcomer = room.join()
    for _ in range(61):
        room.pass_time(5_000)
        room.heartbeat(first)
    assert room.code(newcomer) is ErrorCode.UNKNOWN_MEMBER_ID


def test_shorter_session_of_a_rejoin_counts() -> None:
    room = GroupStateDriver()
    (first,) = room.stable(1)
    room.sync(room.joined(room.join(first, session_ms=1_000)).member_id)
    room.pass_time(1_000)
    assert room.group.members == {}


# --- leaving ---


def test_last_member_leaves_an_empty_group_of_the_next_generation() -> None:
    room = GroupStateDriver()
    (member,) = room.stable(1)
    assert room.leave(member) is ErrorCode.NONE
    assert (room.group.state, room.group.generation_id, room.group.leader) == (GroupState.EMPTY, 2, None)
    assert room.group.protocol_type == "consumer"
    assert room.joined(room.join()).generation_id == 3


def test_leaving_completes_a_rebalance_that_waited_for_it() -> None:
    room = GroupStateDriver()
    first, second = room.stable(2)
    again = room.join(first)
    assert room.leave(second) is ErrorCode.NONE
    assert len(room.joined(again).members) == 1


def test_leaving_answers_the_leavers_own_requests() -> None:
    room = GroupStateDriver()
    first, second = room.stable(2)
    again = room.join(first)
    assert room.leave(first) is ErrorCode.NONE
    assert room.code(again) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.group.leader == second


# --- static members (KIP-345) ---


def static_pair(room: GroupStateDriver) -> tuple[str, str]:
    """A stable group of the instances a (leader) and b."""
    first = room.joined(room.join(instance="a")).member_id
    second = room.join(instance="b")
    room.join(first, instance="a")
    other = room.joined(second).member_id
    room.sync(other)
    room.sync(first, {first: b"A", other: b"B"})
    return first, other


def test_kip345_restarted_member_gets_its_place_without_a_rebalance() -> None:
    room = GroupStateDriver()
    leader, follower = static_pair(room)
    joined = room.joined(room.join(instance="b"))
    assert joined.member_id != follower
    assert (joined.generation_id, joined.leader, joined.members) == (2, leader, ())
    assert room.heartbeat(leader) is ErrorCode.NONE
    assert room.assignment(room.sync(joined.member_id)) == b"B"


def test_kip345_old_incarnation_is_fenced() -> None:
    room = GroupStateDriver()
    _, follower = static_pair(room)
    room.join(instance="b")
    assert room.heartbeat(follower, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert room.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.leave(follower, "b") is ErrorCode.FENCED_INSTANCE_ID


def test_kip345_restarted_leader_gets_the_old_id_as_leader_so_that_it_does_not_assign() -> None:
    room = GroupStateDriver()
    leader, _ = static_pair(room)
    joined = room.joined(room.join(instance="a"))
    assert (joined.leader, joined.members) == (leader, ())
    assert room.group.leader == joined.member_id
    assert room.assignment(room.sync(joined.member_id)) == b"A"


def test_kip814_restarted_leader_skips_the_assignment() -> None:
    room = GroupStateDriver()
    static_pair(room)
    joined = room.joined(room.join(instance="a", may_skip=True))
    assert joined.leader == joined.member_id
    assert joined.skip_assignment
    assert len(joined.members) == 2


def test_kip345_takeover_counts_only_once_durable() -> None:
    room = GroupStateDriver()
    _, follower = static_pair(room)
    room.hold = True
    token = room.join(instance="b")
    assert token not in room.answers
    assert room.heartbeat(follower, instance="b") is ErrorCode.NONE
    room.settle()
    assert room.joined(token).generation_id == 2
    assert room.heartbeat(follower, instance="b") is ErrorCode.FENCED_INSTANCE_ID


def test_kip345_of_two_takeovers_at_once_the_later_wins() -> None:
    room = GroupStateDriver()
    static_pair(room)
    room.hold = True
    one, two = room.join(instance="b"), room.join(instance="b")
    room.settle()
    room.settle()
    winner, loser = room.joined(two).member_id, room.joined(one).member_id
    assert room.heartbeat(winner, instance="b") is ErrorCode.NONE
    assert room.heartbeat(loser, instance="b") is ErrorCode.FENCED_INSTANCE_ID


def test_kip345_takeover_overtaken_by_a_rebalance_joins_it() -> None:
    room = GroupStateDriver()
    leader, _ = static_pair(room)
    room.hold = True
    token = room.join(instance="b")
    room.join(leader, instance="a")
    room.settle()
    assert room.joined(token).generation_id == 3


def test_kip345_takeover_that_cannot_be_stored_changes_nothing() -> None:
    room = GroupStateDriver()
    _, follower = static_pair(room)
    room.hold = True
    token = room.join(instance="b")
    room.refuse(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert room.code(token) is ErrorCode.NOT_COORDINATOR
    assert room.heartbeat(follower, instance="b") is ErrorCode.NONE


def test_kip345_restart_with_another_protocol_rebalances() -> None:
    room = GroupStateDriver()
    member = room.joined(room.join(instance="a", protocols="range sticky")).member_id
    room.sync(member)
    assert room.joined(room.join(instance="a", protocols="sticky range")).generation_id == 2


def test_kip345_absent_member_keeps_its_seat_through_a_rebalance() -> None:
    room = GroupStateDriver()
    leader, absent = static_pair(room)
    again = room.join(leader, instance="a")
    for _ in range(REBALANCE_MS // 5_000):
        assert again not in room.answers
        room.pass_time(5_000)
        room.heartbeat(absent)
    assert {m.instance_id for m in room.joined(again).members} == {"a", "b"}
    room.sync(leader, {leader: b"A2", absent: b"B2"})
    assert room.assignment(room.sync(absent)) == b"B2"


def test_kip345_rebalance_that_no_present_member_joined_waits_on() -> None:
    room = GroupStateDriver()
    leader, follower = static_pair(room)
    dynamic = room.join()
    assert dynamic not in room.answers
    member_id = next(m for m in room.group.members if m not in (leader, follower))
    room.leave(member_id)
    for _ in range(2 * REBALANCE_MS // 5_000):
        room.pass_time(5_000)
        room.heartbeat(leader)
        room.heartbeat(follower)
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert set(room.group.members) == {leader, follower}


def test_kip345_removal_by_instance_id_alone() -> None:
    room = GroupStateDriver()
    leader, _ = static_pair(room)
    assert room.leave("", "b") is ErrorCode.NONE
    assert room.leave("", "b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(room.group.members) == [leader]


def test_kip345_takeover_during_a_rebalance_fences_the_waiting_incarnation() -> None:
    room = GroupStateDriver()
    leader, follower = static_pair(room)
    old = room.join(leader, instance="a")
    new = room.join(instance="a")
    assert room.code(old) is ErrorCode.FENCED_INSTANCE_ID
    room.join(follower, instance="b")
    assert room.joined(new).generation_id == 3


@pytest.mark.proves("takeover-of-a-static-member")
def test_kip345_a_stored_takeover_that_no_longer_fits_the_group_is_answered_with_the_error() -> None:
    """While the takeover is stored, a member joins that shares no assignor with the new incarnation.

    The error must reach the new incarnation alone. If `apply` raised it, the journal would refuse the rows of other
    groups, too, although they are durable.
    """
    room = GroupStateDriver()
    room.stable(1, instance="b", protocols="sticky range")
    room.hold = True
    takeover = room.join(instance="b", protocols="sticky")
    newcomer = room.join(protocols="range")
    room.settle()
    assert room.code(takeover) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert newcomer not in room.answers
    assert len(room.group.members) == 2


def owning(*partitions: int, topic: str = "t", subscribes: str = "t") -> bytes:
    """The metadata of a cooperative consumer that owns these partitions."""
    return encoded_subscription(1, [subscribes], [(topic, partition) for partition in partitions])


def given(*partitions: int) -> bytes:
    return encoded_assignment(1, [("t", partition) for partition in partitions])


def told_to_revoke(
    room: GroupStateDriver,
    metadata: bytes,
    assigned: bytes,
    newcomer_assigned: bytes = b"",
    protocol_type: str = "consumer",
) -> tuple[str, str]:
    """A static member joins with this metadata and is assigned less than it owned; another member is new."""
    static = room.joined(room.join(instance="a", metadata=owning(), protocol_type=protocol_type)).member_id
    room.sync(static, {static: given(0, 1, 2, 3)})
    newcomer = room.join(instance="b", metadata=owning(), protocol_type=protocol_type)
    room.join(static, instance="a", metadata=metadata, protocol_type=protocol_type)
    newcomer_id = room.joined(newcomer).member_id
    room.sync(newcomer_id)
    room.sync(static, {static: assigned, newcomer_id: newcomer_assigned})
    assert room.group.state is GroupState.STABLE
    return static, newcomer_id


def test_static_member_that_returns_amid_a_cooperative_rebalance_completes_it() -> None:
    """Partitions that its former incarnation was to revoke have no owner until the next generation."""
    room = GroupStateDriver()
    _, newcomer_id = told_to_revoke(room, owning(0, 1, 2, 3), given(0, 1))
    returned = room.join(instance="a", metadata=owning())
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert room.heartbeat(newcomer_id) is ErrorCode.REBALANCE_IN_PROGRESS
    room.join(newcomer_id, instance="b", metadata=owning())
    assert room.joined(returned).generation_id == 3


@pytest.mark.parametrize(
    ("metadata", "assigned", "newcomer_assigned"),
    [
        (owning(0, 1), given(0, 1), given(2, 3)),  # all that it owned is assigned to it
        (owning(0, 1, 2, 3), given(0, 1), given(2, 3)),  # an eager assignor has given the rest to another member
        (owning(), given(0, 1), given(2, 3)),
        (encoded_subscription(0, ["t"]), given(0, 1), given(2, 3)),
        (owning(0, topic="former"), given(0, 1), given(2, 3)),  # no member subscribes to that topic any more
        (b"unreadable", given(0, 1), given(2, 3)),
        (owning(0, 1, 2, 3), b"\0", given(2, 3)),
        (owning(0, 1, 2, 3), given(0, 1), b"\0"),
    ],
)
def test_static_member_returns_without_a_rebalance_if_nothing_was_to_be_revoked(
    metadata: bytes, assigned: bytes, newcomer_assigned: bytes
) -> None:
    room = GroupStateDriver()
    told_to_revoke(room, metadata, assigned, newcomer_assigned)
    room.joined(room.join(instance="a", metadata=owning()))
    assert (room.group.state, room.group.generation_id) == (GroupState.STABLE, 2)


def test_metadata_of_other_protocol_types_is_not_read() -> None:
    room = GroupStateDriver()
    told_to_revoke(room, owning(0, 1, 2, 3), given(0, 1), protocol_type="connect")
    room.joined(room.join(instance="a", metadata=owning(), protocol_type="connect"))
    assert (room.group.state, room.group.generation_id) == (GroupState.STABLE, 2)
