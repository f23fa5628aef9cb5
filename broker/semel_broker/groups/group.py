"""PURE: One group of any kind: its members in the form of its kind, its offsets, and its lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, TypeVar

from semel_broker.coordination.engine import FifoLock
from semel_broker.groups.classic.group import ClassicMembership
from semel_broker.groups.offsets.model import GroupOffsets


class GroupMembership(Protocol):
    """The members of a group, and the state that its kind keeps of them."""

    kind: ClassVar[str]
    """The type of the group, as ListGroups shows it. It names the `Kind` that decides for the group."""

    @property
    def members(self) -> Mapping[str, object]:
        """The members by id."""

    @property
    def state_name(self) -> str:
        """The state of the group, as ListGroups shows it."""

    @property
    def protocol_type(self) -> str:
        """The protocol type of the group, as ListGroups shows it."""

    @property
    def generation_id(self) -> int:
        """The generation, or the epoch: it grows with each change of the members."""

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members, and none is about to join."""

    @property
    def is_blank(self) -> bool:
        """Whether nothing of the members is stored, and none is about to join."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    def unused_since_ms(self) -> int | None:
        """Wall time from when unused offsets age; -1: each from its commit; None: they do not age at present."""

    def topics_read(self) -> frozenset[str] | None:
        """The topics that members read; None: the broker cannot read their metadata."""

    def end(self, wall_ms: int) -> None:
        """The group is deleted: requests that still have this object are refused."""


M = TypeVar("M", bound=GroupMembership)


class Group:
    """One group. A group that has only offsets has the membership of a classic group without members.

    Requests whose decisions take time run one after the other, under the `lock`. `changing_to`: the records that make
    this a group of that kind are under way; until then no member changes. `after_change`: calls to make when
    that time is over, of code that cannot wait for the lock.
    """

    __slots__ = ("_lock", "after_change", "changing_to", "group_id", "membership", "offsets")

    def __init__(self, group_id: str, *, offsets: GroupOffsets | None = None) -> None:
        self.group_id = group_id
        self.membership: GroupMembership = ClassicMembership(group_id=group_id)
        self.offsets = GroupOffsets() if offsets is None else offsets
        self.changing_to = ""
        self.after_change: list[Callable[[], None]] = []
        self._lock: FifoLock | None = None

    def of(self, cls: type[M]) -> M | None:
        """The membership, if it is of this class; None: the group is of another kind."""
        return self.membership if isinstance(self.membership, cls) else None

    @property
    def serving_kind(self) -> str:
        """The kind that serves requests that change members: the one that the group is about to have, or has."""
        return self.changing_to or self.membership.kind

    @property
    def lock(self) -> FifoLock:
        """The lock, made when first needed: most groups of the classic protocol need none."""
        if self._lock is None:
            self._lock = FifoLock()
        return self._lock

    @property
    def is_disposable(self) -> bool:
        """Whether the group has nothing to keep: it never had a generation and has no offsets."""
        is_locked = self._lock is not None and self._lock.is_taken
        return self.membership.is_blank and not (is_locked or self.offsets)
