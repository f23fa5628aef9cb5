"""PURE: Moves one member towards its target assignment, one step at each of its heartbeats (KIP-848).

STABLE      the target takes nothing and everything new is free  -> STABLE at the assignment epoch
STABLE      the target takes partitions                          -> UNREVOKED at the old epoch, without them
UNREVOKED   the member says that it no longer owns them          -> as from STABLE, at the next epoch
STABLE      something new is still held by another member        -> UNRELEASED at the assignment epoch
UNRELEASED  at each heartbeat: what has become free is given     -> UNRELEASED or STABLE
"""

from __future__ import annotations

from collections.abc import Mapping

from semel_broker.groups.consumer.model import NOTHING, Current, MemberState, TopicIdPartition, TopicIdPartitions


def reconcile(
    member_id: str,
    current: Current,
    target: TopicIdPartitions,
    assignment_epoch: int,
    owners: Mapping[TopicIdPartition, str],
    owned: TopicIdPartitions | None,
) -> Current:
    """The member's next current assignment; `current` itself if nothing changes.

    `owners`: partition -> the member that has it, or has yet to revoke it. `owned`: the partitions that the member says
    it owns; None: it does not say.
    """
    if current.state is MemberState.STABLE and current.epoch == assignment_epoch:
        return current
    if current.state is MemberState.UNREVOKED and (owned is None or owned & current.revoking):
        return current
    # Other members may get now what this one has revoked, so its commits at the present epoch are refused from now on.
    # A second revocation belongs to a newer target, so the next epoch is still below that of the target.
    epoch = current.epoch + 1 if current.state is MemberState.UNREVOKED else current.epoch
    kept = current.assigned & target
    if revoking := current.assigned - target:
        return current.enter(
            MemberState.UNREVOKED, previous_epoch=current.epoch, epoch=epoch, assigned=kept, revoking=revoking
        )
    assert kept <= target
    wanted = target - kept
    free = wanted
    if not owners.keys().isdisjoint(wanted):
        free = frozenset(place for place in wanted if owners.get(place, member_id) == member_id)
    assert epoch <= assignment_epoch, (member_id, epoch, assignment_epoch)
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    if state is current.state and current.epoch == assignment_epoch and not free:
        return current
    return current.enter(
        state, previous_epoch=current.epoch, epoch=assignment_epoch, assigned=kept | free, revoking=NOTHING
    )
