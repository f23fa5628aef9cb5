"""The steps of one member towards its target assignment, without a group."""

from __future__ import annotations

import pytest
from semel_broker.groups.consumer.model import NOTHING, Current, MemberState, Place, Places
from semel_broker.groups.consumer.reconcile import reconcile

T = b"t" * 16
A, B, C = ((T, index) for index in range(3))
BOTH = Current(epoch=4, previous_epoch=3, assigned=frozenset({A, B}))


def step(
    current: Current, target: set[Place], owned: set[Place] | None, owners: dict[Place, str] | None = None
) -> Current:
    """A heartbeat of the member at assignment epoch 7."""
    says: Places | None = None if owned is None else frozenset(owned)
    return reconcile("me", current, frozenset(target), 7, owners or {}, says)


@pytest.mark.parametrize("owned", [None, {A, B}, {B}])
def test_what_the_member_may_own_is_revoked_at_its_old_epoch(owned: set[Place] | None) -> None:
    found = step(BOTH, {A, C}, owned)
    assert (found.state, found.epoch) == (MemberState.UNREVOKED, 4)
    assert (found.assigned, found.revoking) == ({A}, {B})


@pytest.mark.parametrize("owned", [set(), {A}])
def test_what_the_member_does_not_own_needs_no_revocation(owned: set[Place]) -> None:
    """The answer that assigned it was lost. The member would never acknowledge: its partitions do not change."""
    found = step(BOTH, {A, C}, owned)
    assert (found.state, found.epoch, found.previous_epoch) == (MemberState.STABLE, 7, 4)
    assert (found.assigned, found.revoking) == ({A, C}, NOTHING)


def test_of_the_next_revocation_too_only_what_the_member_owns_counts() -> None:
    current = Current(
        epoch=4, previous_epoch=4, state=MemberState.UNREVOKED, assigned=frozenset({A, B}), revoking=frozenset({C})
    )
    assert step(current, {A}, {A, B, C}) is current
    second = step(current, {A}, {A, B})
    assert (second.state, second.epoch, second.revoking) == (MemberState.UNREVOKED, 5, {B})
    assert step(current, {A}, {A}).state is MemberState.STABLE


def test_what_another_member_holds_still_waits() -> None:
    found = step(BOTH, {A, C}, {A}, {C: "other"})
    assert (found.state, found.epoch, found.assigned) == (MemberState.UNRELEASED, 7, {A})
