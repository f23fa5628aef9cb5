"""The access control entries of the cluster: kept in its store, followed by every broker, decided by its authorizer.

A change is answered when this broker's authorizer has it. The other brokers follow the store. There it is in force a
moment later, on open connections too.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Iterable, Sequence

from semel_protocol.acls import CLUSTER_NAME, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta
from semel_broker.cluster.records import ACLS_WRITTEN, acl_key, acl_record
from semel_broker.cluster.store import Change, Delete, Put, Store
from semel_broker.cluster.writes import SERIAL_CHANGES_MAX, catch_up, settle, write_serially
from semel_broker.security.authorizer import Authorizer
from semel_broker.world import Logger

ACLS_MAX = 100_000
"""Entries in a cluster."""


class AclStore:
    """One per broker with an authorizer."""

    def __init__(self, store: Store, feed: Feed, authorizer: Authorizer, log: Logger) -> None:
        self.authorizer = authorizer
        self._store, self._feed, self._log = store, feed, log
        self._followed: dict[str, Acl] = {}  # by key
        self._writing = Lock()  # of this broker's changes; those of others make them fail, to be tried again
        feed.listeners.append(self._follow)
        self._take(feed.image.acls)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another entry."""
        return len(self.authorizer.acls) >= ACLS_MAX

    async def catch_up(self) -> None:
        """Wait until all changes so far are in force here: there may be room again. Raises REQUEST_TIMED_OUT."""
        await catch_up(self._feed)

    async def settle(self) -> None:
        """Wait until all changes so far are in force here, and let those fail that the store would apply late: the
        entries to delete may be among them. Raises REQUEST_TIMED_OUT."""
        async with self._writing:
            await settle(self._store, self._feed, ACLS_WRITTEN)

    def find(self, wanted: AclFilter) -> list[Acl]:
        """The entries that the filter selects, in order. Raises INVALID_REQUEST for a filter with unknown parts."""
        unknown = (wanted.resource_type, wanted.pattern, wanted.operation, wanted.permission)
        if any(each == 0 for each in unknown):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the filter has a part that this broker does not know")
        return sorted(filter(wanted.matches, self.authorizer.acls))

    async def create(self, acls: Sequence[Acl]) -> None:
        """Store entries that `check` has accepted. One that exists already stays. Raises REQUEST_TIMED_OUT."""
        await self._write([Put(acl_key(acl), acl_record(acl)) for acl in acls])

    async def delete(self, acls: Iterable[Acl]) -> None:
        """Remove entries. Raises REQUEST_TIMED_OUT."""
        await self._write([Delete(acl_key(acl)) for acl in acls])

    def check(self, acl: Acl) -> None:
        """Raise INVALID_REQUEST for an entry that means nothing, POLICY_VIOLATION for one too many."""
        if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
            raise _invalid("give the type of the resource")
        if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise _invalid("an entry has the pattern LITERAL or PREFIXED")
        if acl.operation in (Operation.UNKNOWN, Operation.ANY):
            raise _invalid("give an operation; ALL stands for every one")
        if acl.permission not in (Permission.ALLOW, Permission.DENY):
            raise _invalid("an entry has the permission ALLOW or DENY")
        if not acl.name:
            raise _invalid("give the name of the resource; * stands for every one")
        if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
            raise _invalid(f"the only resource of type CLUSTER is {CLUSTER_NAME}")
        kind, colon, name = acl.principal.partition(":")
        if not (kind and colon and name):
            raise _invalid(f"{acl.principal!r} is not a principal such as User:alice")
        if not acl.host:
            raise _invalid("give the address of a host; * stands for every one")
        if self.is_full and acl not in self.authorizer.acls:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {ACLS_MAX} ACLs already; use prefixes")

    async def _write(self, changes: Sequence[Change]) -> None:
        for at in range(0, len(changes), SERIAL_CHANGES_MAX):
            async with self._writing:
                await write_serially(self._store, self._feed, ACLS_WRITTEN, changes[at : at + SERIAL_CHANGES_MAX])

    def _follow(self, delta: ImageDelta) -> None:
        if delta.acls:
            self._take(delta.acls)
            self._log.info("acls_changed", changed=len(delta.acls), acls=len(self.authorizer.acls))

    def _take(self, keys: Iterable[str]) -> None:
        """Make of the authorizer what the image says of these keys."""
        added, removed = [], []
        for key in keys:
            before, after = self._followed.pop(key, None), self._feed.image.acls.get(key)
            if after is not None:
                self._followed[key] = after
            if before == after:
                continue
            if before is not None:
                removed.append(before)
            if after is not None:
                added.append(after)
        self.authorizer.change(added=added, removed=removed)


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, what)
