"""The client's side of a fetch session: requests contain only changes, and no data is lost that a full fetch would
return.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel._consume.fetch_session import EPOCH_MAX, Ends, FetchSession, Wanted
from semel._subscription.subscription import TopicIdPartition
from semel_broker.handlers.k01_sessions import with_sessions
from semel_broker.partitions.fetch_sessions import FetchSessions
from semel_broker.scheduling.turns import AT_ONCE
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from support.at_once import at_once

LINK = object()


def tp(partition: int, topic: str = "t") -> TopicIdPartition:
    return TopicIdPartition(topic, partition)


def wanted(**offsets: int) -> Wanted:
    """`t0=5`: partition 0 of topic t at offset 5."""
    places = {TopicIdPartition(name[0], int(name[1:])): offset for name, offset in offsets.items()}
    return {place: row_of(place, offset) for place, offset in places.items()}


def row_of(place: TopicIdPartition, offset: int) -> FetchRequestPartition:
    return FetchRequestPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=100)


def filled(session: FetchSession, rows: Wanted, link: object = LINK, *, is_by_id: bool = False) -> FetchRequest:
    request = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=0, topics=[])
    session.fill(request, rows, link, is_by_id=is_by_id)
    return request


def named(request: FetchRequest) -> dict[str, dict[int, int]]:
    return {topic.topic: {row.partition: row.fetch_offset for row in topic.partitions} for topic in request.topics}


def forgotten(request: FetchRequest) -> dict[str, list[int]]:
    return {topic.topic: topic.partitions for topic in request.forgotten_topics_data}


def answer(session_id: int, **watermarks: int) -> FetchResponse:
    rows = [
        FetchResponseTopic(
            topic=name[0],
            partitions=[FetchResponsePartition(partition_index=int(name[1:]), high_watermark=end)],
        )
        for name, end in watermarks.items()
    ]
    return FetchResponse(session_id=session_id, responses=rows)


def begun() -> FetchSession:
    """A session 7 with partitions t0, t1 and u0; its next epoch is 1."""
    session = FetchSession()
    request = filled(session, wanted(t0=0, t1=0, u0=0))
    assert (request.session_id, request.session_epoch) == (0, 0)
    session.answered(answer(7, t0=10, t1=11, u0=12))
    return session


def watermark(session: FetchSession, place: TopicIdPartition) -> int | None:
    ends = session.ends(place)
    return None if ends is None else ends.high_watermark


def test_the_first_fetch_names_all_partitions_and_the_next_ones_the_changes() -> None:
    session = FetchSession()
    assert named(filled(session, wanted(t0=0, t1=0, u0=0))) == {"t": {0: 0, 1: 0}, "u": {0: 0}}
    session.answered(answer(7, t0=10, t1=11, u0=12))
    request = filled(session, wanted(t0=0, t1=3, u1=0))
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert (named(request), forgotten(request)) == ({"t": {1: 3}, "u": {1: 0}}, {"u": [0]})
    session.answered(answer(7))
    request = filled(session, wanted(t0=0, t1=3, u1=0))
    assert (request.session_epoch, named(request), forgotten(request)) == (2, {}, {})


@pytest.mark.parametrize("field", ["current_leader_epoch", "fetch_offset", "last_fetched_epoch", "partition_max_bytes"])
def test_a_partition_with_any_change_is_named(field: str) -> None:
    session = begun()
    rows = wanted(t0=0, t1=0, u0=0)
    setattr(rows[tp(1)], field, 99)
    assert list(named(filled(session, rows))) == ["t"]


def test_partitions_that_are_left_out_keep_their_offsets() -> None:
    session = begun()
    filled(session, wanted(t0=0, t1=0, u0=0))
    session.answered(answer(7, t1=20))
    assert [watermark(session, place) for place in (tp(0), tp(1), tp(0, "u"))] == [10, 20, 12]


def test_a_forgotten_partition_has_no_offsets_until_it_is_sent_again() -> None:
    session = begun()
    filled(session, wanted(t0=0))
    session.answered(answer(7))
    assert session.ends(tp(1)) is None
    assert named(filled(session, wanted(t0=0, t1=0))) == {"t": {1: 0}}


def test_an_error_of_a_partition_drops_its_offsets() -> None:
    session = begun()
    filled(session, wanted(t0=0, t1=0, u0=0))
    failed = answer(7, t1=11)
    failed.responses[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    session.answered(failed)
    assert (watermark(session, tp(0)), session.ends(tp(1))) == (10, None)


def test_a_row_that_was_not_asked_for_is_not_kept() -> None:
    session = begun()
    filled(session, wanted(t0=0))
    session.answered(answer(7, t1=99))
    assert session.ends(tp(1)) is None


def test_without_a_session_at_the_broker_every_fetch_is_full_and_asks_for_one() -> None:
    session = FetchSession()
    for _ in range(3):
        request = filled(session, wanted(t0=0, t1=0))
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {"t": {0: 0, 1: 0}})
        session.answered(answer(0, t0=10, t1=11))
        assert watermark(session, tp(1)) == 11


def test_a_session_that_the_broker_ends_with_an_answer_begins_again() -> None:
    session = begun()
    filled(session, wanted(t0=0, t1=0, u0=0))
    session.answered(answer(0, t0=10))
    request = filled(session, wanted(t0=0, t1=0, u0=0))
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == {"t": {0: 0, 1: 0}, "u": {0: 0}}


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_a_lost_session_is_replaced_at_once(code: ErrorCode, session_id: int) -> None:
    session = begun()
    filled(session, wanted(t0=0))
    assert session.refused(code)
    request = filled(session, wanted(t0=0, t1=0))
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert (named(request), forgotten(request)) == ({"t": {0: 0, 1: 0}}, {})


def test_a_refused_full_fetch_is_not_repeated_at_once() -> None:
    """A broker that refuses full fetches with such a code must not get them without a pause."""
    session = FetchSession()
    filled(session, wanted(t0=0))
    assert not session.refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def test_another_error_of_the_whole_fetch_is_not_the_sessions() -> None:
    session = begun()
    filled(session, wanted(t0=0))
    assert not session.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert filled(session, wanted(t0=0)).session_epoch == 0


def test_a_request_without_an_answer_ends_the_session() -> None:
    session = begun()
    filled(session, wanted(t0=5, t1=0, u0=0))
    request = filled(session, wanted(t0=5, t1=0, u0=0))
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert named(request) == {"t": {0: 5, 1: 0}, "u": {0: 0}}


def test_a_new_connection_begins_anew_and_ends_the_old_session() -> None:
    session = begun()
    request = filled(session, wanted(t0=0, t1=0, u0=0), object())
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert named(request) == {"t": {0: 0, 1: 0}, "u": {0: 0}}


def test_after_the_last_epoch_comes_the_first() -> None:
    session = begun()
    session._epoch = EPOCH_MAX
    assert filled(session, wanted(t0=0)).session_epoch == EPOCH_MAX
    session.answered(answer(7))
    assert filled(session, wanted(t0=0)).session_epoch == 1


def test_a_topic_that_is_created_again_is_another_partition() -> None:
    session = FetchSession()
    old, new = TopicIdPartition("t", 0, b"a" * 16), TopicIdPartition("t", 0, b"b" * 16)
    filled(session, {old: row_of(old, 20)}, is_by_id=True)
    response = answer(7)
    response.responses = [FetchResponseTopic(topic_id=old.topic_id, partitions=[FetchResponsePartition()])]
    assert [(place, row.partition_index) for place, row in session.rows(response)] == [(old, 0)]
    session.answered(response)
    request = filled(session, {new: row_of(new, 0)}, is_by_id=True)
    assert [topic.topic_id for topic in request.topics] == [new.topic_id]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [old.topic_id]
    assert (session.ends(old), session.ends(new)) == (None, None)


def test_a_row_of_a_topic_id_that_was_not_asked_for_is_left_out() -> None:
    session = FetchSession()
    place = TopicIdPartition("t", 0, b"a" * 16)
    filled(session, {place: row_of(place, 0)}, is_by_id=True)
    response = answer(7)
    response.responses = [FetchResponseTopic(topic_id=b"c" * 16, partitions=[FetchResponsePartition()])]
    session.answered(response)
    assert list(session.rows(response)) == []


def test_a_session_by_name_ends_before_one_by_id_begins() -> None:
    """A broker refuses a session that names topics in two ways."""
    session = begun()
    place = TopicIdPartition("t", 0, b"a" * 16)
    request = filled(session, {place: row_of(place, 0)}, is_by_id=True)
    assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (7, 0, [])


# --- against the broker's side

PLACES = [TopicIdPartition(topic, index) for topic in "tu" for index in range(3)]
"""By name."""
IDS = {b"a" * 16: "t", b"b" * 16: "t", b"c" * 16: "u"}
"""Two topics have the name `t`, one after the other."""
ID_PLACES = [TopicIdPartition(topic, index, topic_id) for topic_id, topic in IDS.items() for index in range(2)]


class FetchedPartitions:
    """Partitions of one broker: (high watermark, log start, error code) of each; a full fetch answers with them."""

    def __init__(self, slots: int, *, is_by_id: bool) -> None:
        self.ends = dict.fromkeys(ID_PLACES if is_by_id else PLACES, (5, 0, 0))
        self.sessions = FetchSessions(slots, 100, Random(1), lambda: 0.0)
        self.asked: Wanted = {}
        self._handle = with_sessions(self._fetch)
        self._ctx: Any = SimpleNamespace(
            api_version=13 if is_by_id else 12,
            broker=SimpleNamespace(fetch_sessions=self.sessions),
            principal=SimpleNamespace(name="User:a"),
            slices=lambda is_long: AT_ONCE,
        )

    def answer(self, request: FetchRequest) -> FetchResponse:
        try:
            found = cast("FetchResponse", at_once(self._handle(request, self._ctx)))
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        return found

    async def _fetch(self, request: FetchRequest, _: object) -> FetchResponse:
        self.asked = {self._place(topic, row.partition): row for topic in request.topics for row in topic.partitions}
        return FetchResponse(
            responses=[
                FetchResponseTopic(
                    topic="" if topic.topic_id in IDS else topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[self._row(self._place(topic, row.partition)) for row in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _place(self, topic: FetchRequestTopic, partition: int) -> TopicIdPartition:
        return TopicIdPartition(IDS.get(topic.topic_id, topic.topic), partition, topic.topic_id)

    def _row(self, place: TopicIdPartition) -> FetchResponsePartition:
        end, start, code = self.ends[place]
        return FetchResponsePartition(
            partition_index=place.partition,
            error_code=code,
            high_watermark=-1 if code else end,
            last_stable_offset=-1 if code else end,
            log_start_offset=-1 if code else start,
            records=self.records(place),
        )

    def records(self, place: TopicIdPartition) -> bytes:
        end, _, code = self.ends[place]
        return b"" if code else b"%d" % end * (end > self.asked[place].fetch_offset)

    def end_sessions(self) -> None:
        for session_id in list(self.sessions._sessions):
            self.sessions.remove(session_id, "User:a")


def steps(places: list[TopicIdPartition]) -> st.SearchStrategy[Any]:
    place = st.sampled_from(places)
    truth = st.tuples(st.integers(5, 9), st.integers(0, 2), st.sampled_from([0, 0, 6]))
    return st.one_of(
        st.tuples(st.just("change"), place, truth),
        st.tuples(st.just("want"), st.dictionaries(place, st.integers(0, 9), min_size=1)),
        st.tuples(st.just("lose"), st.booleans()),
        st.tuples(st.sampled_from(["reconnect", "evict", "fetch", "fetch"])),
    )


@pytest.mark.parametrize("is_by_id", [False, True])
@given(st.integers(0, 1), st.data())
def test_a_session_knows_what_a_full_fetch_would_bring(is_by_id: bool, slots: int, data: st.DataObject) -> None:
    places = ID_PLACES if is_by_id else PLACES
    taken = data.draw(st.lists(steps(places), max_size=30))
    truth, session = FetchedPartitions(slots, is_by_id=is_by_id), FetchSession()
    offsets, link = dict.fromkeys(places, 0), object()
    for kind, *rest in [*taken, ("fetch",)]:
        rows = {place: row_of(place, offset) for place, offset in offsets.items()}
        match kind:
            case "change":
                truth.ends[rest[0]] = rest[1]
            case "want":
                offsets = rest[0]
            case "reconnect":
                link = object()
            case "evict":
                truth.end_sessions()
            case "lose":
                request = filled(session, rows, link, is_by_id=is_by_id)
                if rest[0]:
                    truth.answer(request)  # the answer is lost, not the request
            case "fetch":
                response = truth.answer(filled(session, rows, link, is_by_id=is_by_id))
                if response.error_code:
                    assert session.refused(response.error_code)
                    response = truth.answer(filled(session, rows, link, is_by_id=is_by_id))
                assert not response.error_code
                session.answered(response)
                assert truth.asked == rows
                for place in rows:
                    end, start, code = truth.ends[place]
                    assert session.ends(place) == (None if code else Ends(end, end, start))
                brought = {place: bytes(row.records or b"") for place, row in session.rows(response)}
                assert {place: brought.get(place, b"") for place in rows} == {
                    place: truth.records(place) for place in rows
                }
