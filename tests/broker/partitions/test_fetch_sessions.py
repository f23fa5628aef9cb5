"""Fetch sessions as data: which partitions a response contains, and the bounds of sessions."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.partitions.fetch_sessions import EVICTED_AFTER_S, FetchSession, FetchSessions
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import (
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
    FetchResponseTopic,
)

ALICE, BOB = "User:alice", "User:bob"


def topics(*places: tuple[str, int], offset: int = 0) -> list[FetchRequestTopic]:
    return [
        FetchRequestTopic(
            topic=name,
            partitions=[FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1)],
        )
        for name, index in places
    ]


class SessionClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def sessions(slots: int = 10, partitions: int = 100) -> tuple[FetchSessions, SessionClock]:
    clock = SessionClock()
    return FetchSessions(slots, partitions, Random(1), clock), clock


def code_of(found: FetchSessions, session_id: int, epoch: int, owner: str = ALICE) -> ErrorCode:
    try:
        found.used(session_id, epoch, owner, [], [])
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_session_is_its_principals() -> None:
    found, _ = sessions()
    made = found.create(ALICE, topics(("t", 0)))
    assert made is not None
    assert code_of(found, made.session_id, 1, BOB) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    found.remove(made.session_id, BOB)
    assert code_of(found, made.session_id, 1) is ErrorCode.NONE


def test_a_session_that_is_in_use_makes_no_room_and_an_old_one_does() -> None:
    found, clock = sessions(slots=2)
    old, used = found.create(ALICE, topics(("t", 0))), found.create(ALICE, topics(("t", 0)))
    assert old is not None
    assert used is not None
    clock.now = EVICTED_AFTER_S - 1
    assert code_of(found, used.session_id, 1) is ErrorCode.NONE
    assert found.create(BOB, topics(("t", 0))) is None
    clock.now = EVICTED_AFTER_S
    assert found.create(BOB, topics(("t", 0))) is not None
    assert code_of(found, old.session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code_of(found, used.session_id, 2) is ErrorCode.NONE
    assert found.evicted == 1


def test_partitions_of_all_sessions_are_bounded() -> None:
    found, _ = sessions(partitions=3)
    made = found.create(ALICE, topics(("t", 0), ("t", 1)))
    assert made is not None
    assert found.create(ALICE, topics(("t", 0), ("t", 1))) is None
    found.used(made.session_id, 1, ALICE, [], [FetchRequestForgottenTopic(topic="t", partitions=[1])])
    assert found.partition_count == 1
    assert found.create(ALICE, topics(("t", 0), ("t", 1))) is not None
    found.remove(made.session_id, ALICE)
    assert (found.partition_count, len(found)) == (2, 1)


def test_without_slots_there_are_no_sessions() -> None:
    found, _ = sessions(slots=0)
    assert found.create(ALICE, topics(("t", 0))) is None


PLACES = st.tuples(st.sampled_from("tu"), st.integers(0, 2))


@given(st.lists(st.tuples(PLACES, st.booleans(), st.integers(0, 9))))
def test_a_session_has_what_was_asked_for_last(steps: list[tuple[tuple[str, int], bool, int]]) -> None:
    session = FetchSession(1, ALICE, 0.0)
    wanted: dict[tuple[str, int], int] = {}
    for place, is_forgotten, offset in steps:
        if is_forgotten:
            session.update([], [FetchRequestForgottenTopic(topic=place[0], partitions=[place[1]])])
            wanted.pop(place, None)
        else:
            session.update(topics(place, offset=offset))
            wanted[place] = offset
        have = {
            (topic.topic, row.partition): row.fetch_offset for topic in session.topics() for row in topic.partitions
        }
        assert have == wanted
        assert session.count == len(wanted)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.booleans(), st.booleans())))
def test_a_row_is_left_out_only_if_the_client_knows_all_of_it(steps: list[tuple[int, int, int, bool, bool]]) -> None:
    session = FetchSession(1, ALICE, 0.0)
    session.update(topics(("t", 0)))
    known = (-1, -1, -1)
    for high, stable, start, has_records, has_error in steps:
        row = FetchResponsePartition(
            high_watermark=high,
            last_stable_offset=stable,
            log_start_offset=start,
            records=b"r" if has_records else b"",
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if has_error else 0,
        )
        news = session.news(FetchResponseTopic(topic="t", partitions=[row]))
        assert (news is None) is (known == (high, stable, start) and not has_records and not has_error)
        known = (high, stable, start)


def test_epochs_go_round_and_never_to_zero() -> None:
    found, _ = sessions()
    made = found.create(ALICE, topics(("t", 0)))
    assert made is not None
    made.epoch = 2**31 - 1
    assert code_of(found, made.session_id, 2**31 - 1) is ErrorCode.NONE
    assert made.epoch == 1


@pytest.mark.parametrize("epoch", [0, 2, -1])
def test_only_the_next_epoch_is_accepted(epoch: int) -> None:
    found, _ = sessions()
    made = found.create(ALICE, topics(("t", 0)))
    assert made is not None
    assert code_of(found, made.session_id, epoch) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
