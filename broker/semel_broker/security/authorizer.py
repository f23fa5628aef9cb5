"""PURE: decides whether a principal may do an operation on a resource, as Kafka's StandardAuthorizer does.

In this order: a super user may do everything. An entry that denies the operation refuses it. An entry that allows the
operation, or one that implies it, allows it. A resource that no entry names is allowed if
`allow.everyone.if.no.acl.found` says so. Everything else is refused.

Decisions are cached. A change of the entries drops the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec
from semel_protocol.acls import (
    IMPLIED_BY,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

from semel_broker.config.principal_rules import ANONYMOUS_NAME

CACHED_MAX = 100_000
"""Cached decisions. A full cache is dropped: clients that ask for ever new names must not fill the memory."""


class Principal(msgspec.Struct, frozen=True, gc=False):
    """The sender of the requests of a connection. `name`: "User:alice"; `host`: its address."""

    name: str
    host: str

    @property
    def user(self) -> str:
        """The name without `User:`, for quotas."""
        return self.name.partition(":")[2]


ANONYMOUS = Principal(ANONYMOUS_NAME, "")
"""The principal of connections that are not authenticated; of a connection, with its host."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """`rule`: the entry that decided; None: `why` says what did."""

    is_allowed: bool
    why: str
    rule: Acl | None = None


class Patterns:
    """The entries for one type of resource, by the names of their patterns."""

    def __init__(self) -> None:
        self.literal: dict[str, list[Acl]] = {}
        self.prefixed: dict[str, list[Acl]] = {}
        self._lengths: dict[int, int] = {}  # of prefixes: how many names have it

    def add(self, acl: Acl) -> None:
        where = self._where(acl)
        if where is self.prefixed and acl.name not in where:
            self._lengths[len(acl.name)] = self._lengths.get(len(acl.name), 0) + 1
        where.setdefault(acl.name, []).append(acl)

    def remove(self, acl: Acl) -> None:
        where = self._where(acl)
        left = where[acl.name]
        left.remove(acl)
        if left:
            return
        del where[acl.name]
        if where is self.prefixed:
            self._lengths[len(acl.name)] -= 1
            if not self._lengths[len(acl.name)]:
                del self._lengths[len(acl.name)]

    def of(self, name: str) -> list[Acl]:
        """The entries whose pattern covers `name`."""
        found = [*self.literal.get(name, ()), *(self.literal.get(WILDCARD, ()) if name != WILDCARD else ())]
        for length in self._lengths:
            if length <= len(name):
                found += self.prefixed.get(name[:length], ())
        return found

    def _where(self, acl: Acl) -> dict[str, list[Acl]]:
        return self.prefixed if acl.pattern is PatternType.PREFIXED else self.literal


class Authorizer:
    """`super_users`: principals that may do everything. `allow_if_none`: `allow.everyone.if.no.acl.found`."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_none: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_none
        self._acls: set[Acl] = set()
        self._patterns: dict[ResourceType, Patterns] = {}
        self._cache: dict[tuple[str, str, int, int, str], Decision] = {}
        self.changes = 0
        """The number of changes of the entries so far."""

    @property
    def acls(self) -> Set[Acl]:
        """All entries."""
        return self._acls

    def change(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Add and remove entries. Costs no more than they are many, however many there are."""
        for acl in removed:
            if acl in self._acls:
                self._acls.remove(acl)
                self._patterns[acl.resource_type].remove(acl)
        for acl in added:
            if acl not in self._acls:
                self._acls.add(acl)
                self._patterns.setdefault(acl.resource_type, Patterns()).add(acl)
        self._cache.clear()
        self.changes += 1

    def allows(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the principal may do the operation on the resource."""
        return self.decide(principal, operation, kind, name).is_allowed

    def decide(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> Decision:
        """The decision, and what decided."""
        key = (principal.name, principal.host, operation, kind, name)
        known = self._cache.get(key)
        if known is None:
            if len(self._cache) >= CACHED_MAX:
                self._cache.clear()
            known = self._cache[key] = self._decide(principal, operation, kind, name)
        return known

    def allows_any(self, principal: Principal, operation: Operation, kind: ResourceType) -> bool:
        """Whether there can be a resource of the type on which the principal may do the operation (KIP-679).

        Kafka calls this authorizeByResourceType. An entry that allows counts unless a denial covers all of its names.
        """
        if principal.name in self._super_users:
            return True
        patterns = self._patterns.get(kind)
        if patterns is None:
            return self._allow_if_none
        denied = [acl for acl in self._of_type(patterns) if _speaks_of(acl, principal, (operation,), Permission.DENY)]
        if any(acl.name == WILDCARD and acl.pattern is PatternType.LITERAL for acl in denied):
            return False
        allowing = (operation, *IMPLIED_BY.get(operation, ()))
        for acl in self._of_type(patterns):
            if _speaks_of(acl, principal, allowing, Permission.ALLOW) and not _is_covered(acl, denied):
                return True
        return self._allow_if_none

    def _decide(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> Decision:
        if principal.name in self._super_users:
            return Decision(True, "super user")
        patterns = self._patterns.get(kind)
        found = [] if patterns is None else patterns.of(name)
        if not found:
            why = "no ACL for the resource, and allow.everyone.if.no.acl.found is "
            return Decision(self._allow_if_none, why + ("true" if self._allow_if_none else "false"))
        for acl in found:
            if _speaks_of(acl, principal, (operation,), Permission.DENY):
                return Decision(False, "denied", acl)
        allowing = (operation, *IMPLIED_BY.get(operation, ()))
        for acl in found:
            if _speaks_of(acl, principal, allowing, Permission.ALLOW):
                return Decision(True, "allowed", acl)
        return Decision(False, "no ACL allows it")

    @staticmethod
    def _of_type(patterns: Patterns) -> list[Acl]:
        return [acl for where in (patterns.literal, patterns.prefixed) for acls in where.values() for acl in acls]


def _speaks_of(acl: Acl, principal: Principal, operations: tuple[Operation, ...], permission: Permission) -> bool:
    return (
        acl.permission is permission
        and (acl.operation is Operation.ALL or acl.operation in operations)
        and acl.principal in (principal.name, WILDCARD_PRINCIPAL)
        and acl.host in (principal.host, WILDCARD)
    )


def _is_covered(acl: Acl, denials: Iterable[Acl]) -> bool:
    """Whether one denial covers every name that the entry allows."""
    for denial in denials:
        if denial.pattern is PatternType.PREFIXED:
            if acl.name.startswith(denial.name) and acl.name != WILDCARD:
                return True
        elif acl.pattern is PatternType.LITERAL and acl.name == denial.name:
            return True
    return False
