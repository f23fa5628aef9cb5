"""double-owner, stale-commit, epoch-regress, offset-regress, unread-commit, group-mismatch; and a fetch's filter."""

from __future__ import annotations

from math import inf

from sim.checkers.history_builder import T0, HistoryBuilder
from sim.final import Commit
from sim.history import Recorder

SESSION_MS = 50


class MemberEvents:
    """A member of group "g" whose id is its name: step by step."""

    def __init__(self, builder: HistoryBuilder, name: str) -> None:
        self.builder, self.recorder = builder, builder.recorder(name)
        self.name = name
        self.recorder.consuming("g", read_committed=True)

    def beats(self, epoch: int, *, sent: int | None = None, lasts_ms: float = SESSION_MS, error: str = "") -> None:
        since_ms = self.builder.clock_ms
        self.recorder.beaten(
            "g",
            self.name,
            since_ms=since_ms,
            sent_epoch=epoch if sent is None else sent,
            epoch=epoch,
            until_ms=-inf if error else since_ms + lasts_ms,
            error=error,
        )

    def gets(self, epoch: int) -> None:
        self.beats(epoch)
        self.recorder.assigned([T0], epoch)

    def gives_back(self) -> None:
        self.recorder.revoked([T0])

    def commits(self, offset: int, epoch: int, *, is_accepted: bool = True) -> None:
        op = self.recorder.committing_offsets("g", {T0: offset}, member_id=self.name, epoch=epoch)
        if is_accepted:
            self.recorder.offsets_committed(op)
        else:
            self.recorder.offsets_refused(op)


def two() -> tuple[HistoryBuilder, MemberEvents, MemberEvents]:
    builder = HistoryBuilder()
    return builder, MemberEvents(builder, "a"), MemberEvents(builder, "b")


def found(builder: HistoryBuilder) -> list[str]:
    builder.ends([])
    return builder.found()


def test_a_partition_given_before_it_was_given_back_has_two_owners() -> None:
    builder, one, other = two()
    one.gets(1)
    other.gets(2)
    one.gives_back()
    assert found(builder) == ["double-owner"]


def test_a_partition_that_was_given_back_has_one_owner() -> None:
    builder, one, other = two()
    one.gets(1)
    one.gives_back()
    other.gets(2)
    assert found(builder) == []


def test_a_member_whose_session_has_ended_by_its_own_clock_owns_nothing() -> None:
    builder, one, other = two()
    one.gets(1)
    builder.clock_ms += SESSION_MS
    other.gets(2)
    one.gives_back()
    assert found(builder) == []


def test_a_member_that_is_in_the_group_again_owns_what_it_had() -> None:
    builder, one, other = two()
    one.gets(1)
    builder.clock_ms += SESSION_MS
    one.beats(1)
    other.gets(2)
    assert found(builder) == ["double-owner"]


def test_a_commit_at_an_epoch_before_the_last_one_is_stale() -> None:
    for is_accepted in (True, False):
        builder, one, _ = two()
        one.gets(1)
        one.beats(2)
        one.commits(0, 1, is_accepted=is_accepted)
        one.commits(0, 2)
        builder.final.groups = {"g": {T0: 0}}
        assert found(builder) == (["stale-commit"] if is_accepted else [])


def test_a_commit_of_a_fenced_member_is_stale_until_it_joins_again() -> None:
    builder, one, _ = two()
    one.gets(1)
    one.beats(1, error="UNKNOWN_MEMBER_ID")
    one.beats(2, sent=0)
    one.commits(0, 2)
    builder.final.groups = {"g": {T0: 0}}
    assert found(builder) == []
    one.commits(0, 1)
    assert found(builder) == ["stale-commit"]


def test_epochs_that_go_back_are_found() -> None:
    builder, one, other = two()
    one.beats(3)
    other.beats(3, sent=0)
    assert found(builder) == []
    MemberEvents(builder, "c").beats(2, sent=0)
    assert found(builder) == ["epoch-regress"]


def test_the_epoch_of_one_member_never_goes_back() -> None:
    builder, one, _ = two()
    one.beats(3)
    one.beats(2)
    assert found(builder) == ["epoch-regress"]


def test_what_coordinators_took_back_or_changed_is_found() -> None:
    builder, _, _ = two()
    builder.final.regressed, builder.final.unfaithful = ["g went back"], ["g differs"]
    assert found(builder) == ["epoch-regress", "group-mismatch"]


def test_committed_offsets_that_go_back_in_the_log_are_found() -> None:
    builder, one, _ = two()
    one.gets(1)
    builder.final.commits = [Commit("g", T0, 5, 0), Commit("other", T0, 1, 1), Commit("g", T0, 4, 2)]
    assert found(builder) == ["offset-regress"]
    builder.final.commits = [Commit("g", T0, 4, 0), Commit("other", T0, 1, 1), Commit("g", T0, 5, 2)]
    assert found(builder) == []


def test_a_commit_past_records_that_no_member_read_is_found() -> None:
    builder, one, _ = two()
    writer: Recorder = builder.recorder("w")
    one.gets(1)
    builder.send(writer, "x", 0)
    builder.send(writer, "y", 1)
    one.recorder.polled(T0, [1], ["y"])
    one.commits(2, 1)
    builder.final.groups = {"g": {T0: 2}}
    builder.ends([(0, "x"), (1, "y")])
    assert "unread-commit" in builder.found()
