"""PURE: The interface of a kind of group. `shard` calls it for requests, `host` for records and deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from semel_protocol.errors import KafkaError
from semel_storage.internal_topics import Row

from semel_broker.groups.effects import ChangeRecords, Effects
from semel_broker.groups.group import Group
from semel_broker.groups.offsets.model import OffsetRecord
from semel_broker.groups.requests import Committer, Join, Joined, Sync, Synced, TimePoint
from semel_broker.scheduling.parting import Parting


class Kind(Protocol):
    """One kind of group in one shard. Each group that the kind gets has a membership of the kind.

    Its decisions are pure functions of the membership, the request and the time. Its requests of the classic protocol
    may come from groups of any kind; one that has no such members refuses them.
    """

    name: str
    """As `GroupMembership.kind`."""

    # --- life ---

    def resume(self, group: Group, grace_ms: int) -> None:
        """After a load: members continue, each with a full session timeout. `grace_ms`: for so long a former
        coordinator may still answer heartbeats."""

    def close(self, group: Group, error: KafkaError) -> Effects:
        """This broker no longer coordinates the group: answer all requests that wait with `error`."""

    async def finish(self) -> None:
        """Return once all tasks have ended."""

    # --- effects ---

    def records(self, group: Group, change: Any, now: TimePoint) -> ChangeRecords:
        """The records of a change."""

    def apply(self, group: Group, change: Any, now: TimePoint) -> Effects:
        """The records are durable: put the change into effect. Raises nothing."""

    def refuse(self, group: Group, change: Any, error: KafkaError, now: TimePoint) -> Effects:
        """The records could not be stored. Raises nothing."""

    def tombstones(self, group: Group) -> list[Row]:
        """The records that delete the group, without its offsets."""

    # --- time ---

    def due_ms(self, group: Group, member_id: str, now: TimePoint) -> int | None:
        """When the deadline of this member, or of the group (`GROUP`), passes, on the monotonic clock; None: never."""

    def expire(self, group: Group, member_id: str, now: TimePoint) -> Effects:
        """The deadline has passed."""

    # --- requests of members of the classic protocol ---

    async def join(self, group_id: str, ask: Join, parting: Parting) -> Joined:
        """JoinGroup. If the connection of `parting` is lost, the group does not wait for a new member. Raises
        KindChangedError: the kind that the group has now has to serve it."""

    async def sync(self, group: Group, ask: Sync) -> Synced:
        """SyncGroup."""

    def classic_heartbeat(self, group: Group, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Heartbeat."""

    async def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """LeaveGroup of one member. Raises KindChangedError as `join`."""

    # --- offsets ---

    def check_commit(self, group: Group, records: Sequence[OffsetRecord], by: Committer) -> None:
        """Whether `by` may commit offsets now (OffsetCommit)."""

    def check_commit_in_transaction(self, group: Group, by: Committer) -> None:
        """Whether `by` may commit offsets as part of a transaction (TxnOffsetCommit)."""

    def check_fetch(self, group: Group, member_id: str, epoch: int) -> None:
        """Whether this member may read offsets (OffsetFetch v9)."""
