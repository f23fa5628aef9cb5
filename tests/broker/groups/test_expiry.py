"""The offsets that have expired (KIP-211), and the topics that a group reads."""

from __future__ import annotations

import pytest
from broker.members import subscription
from semel_broker.groups.classic.group import ClassicMember, ClassicMembership, GroupState
from semel_broker.groups.group import Group
from semel_broker.groups.offsets.expiry import expired_offsets
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord

RETENTION_MS = 1_000


def group_with(state: GroupState, protocol_type: str, *, since_ms: int = 0, metadata: bytes = b"") -> Group:
    """A group of that state with an offset of topic t, committed at 100."""
    group = Group("g")
    members = ClassicMembership(
        group_id="g", state=state, protocol_type=protocol_type, protocol="range", since_ms=since_ms
    )
    group.membership = members
    group.offsets.apply(OffsetRecord("t", 0, CommittedOffset(1, commit_timestamp_ms=100)))
    if state is not GroupState.EMPTY:
        members.add(
            ClassicMember(
                member_id="m",
                instance_id=None,
                client_id="c",
                client_host="/h",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                protocol_type=protocol_type,
                protocols=(("range", metadata),),
            )
        )
    return group


def expired(group: Group, now_ms: int) -> bool:
    doomed = expired_offsets(group, now_ms, RETENTION_MS)
    assert all(record == OffsetRecord("t", 0, None) for record in doomed)
    return bool(doomed)


def test_offsets_of_a_simple_consumer_age_from_their_commit() -> None:
    group = group_with(GroupState.EMPTY, "")
    assert not expired(group, 1_099)
    assert expired(group, 1_100)


def test_offsets_of_an_empty_group_age_from_when_it_became_empty() -> None:
    group = group_with(GroupState.EMPTY, "consumer", since_ms=5_000)
    assert not expired(group, 5_999)
    assert expired(group, 6_000)


def test_commit_after_the_group_became_empty_counts_too() -> None:
    group = group_with(GroupState.EMPTY, "consumer", since_ms=50)
    assert not expired(group, 1_099)
    assert expired(group, 1_100)


def test_offsets_that_members_read_do_not_age() -> None:
    assert not expired(group_with(GroupState.STABLE, "consumer", metadata=subscription("x", "t")), 1_000_000)


def test_offsets_of_topics_that_members_no_longer_read_age_from_their_commit() -> None:
    group = group_with(GroupState.STABLE, "consumer", metadata=subscription("x"))
    assert not expired(group, 1_099)
    assert expired(group, 1_100)


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0", b"\0\0\xff\xff\xff\xff", subscription("x")[:7], b"\0\0\0\0\0\1\xff\xff", b"\0\0\0\0\0\1\0\1\xff"],
)
def test_member_that_cannot_be_understood_reads_everything(metadata: bytes) -> None:
    group = group_with(GroupState.STABLE, "consumer", metadata=metadata)
    assert not expired(group, 1_000_000)
    assert group.membership.topics_read() is None


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_nothing_expires_during_a_rebalance(state: GroupState) -> None:
    assert not expired(group_with(state, "consumer", metadata=subscription("x")), 1_000_000)


def test_nothing_expires_while_members_of_another_kind_are_there() -> None:
    assert not expired(group_with(GroupState.STABLE, "connect"), 1_000_000)


def test_expiry_that_the_committer_asked_for_wins() -> None:
    group = Group("g")
    group.offsets.apply(OffsetRecord("t", 0, CommittedOffset(1, commit_timestamp_ms=0, expire_timestamp_ms=5_000)))
    assert not expired(group, 4_999)
    assert expired(group, 5_000)
