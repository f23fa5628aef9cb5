"""PURE: access control entries in Kafka's numbers: resources, patterns, operations, permissions (KIP-11, KIP-290)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from enum import IntEnum

import msgspec

WILDCARD = "*"
"""As the name of a literal pattern: every resource of the type. As host: every address."""
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only resource of type CLUSTER."""


class ResourceType(IntEnum):
    """The type of resource that an entry protects."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an entry's name is compared with the name of a resource. MATCH, in filters only: every entry that applies."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation on a resource. ALL stands for every operation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """DENY overrules ALLOW."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: dict[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}
"""The operations that exist for a type of resource; an entry may also name ALL."""
NOT_ASKED = -2147483648
"""The field of authorized operations in a response whose request did not ask for them (KIP-430)."""


def bits_of(operations: Iterable[Operation]) -> int:
    """Authorized operations as in a response (KIP-430): bits 1 << operation."""
    return sum(1 << each for each in operations)


def every_operation(kind: ResourceType) -> int:
    """All operations of a type of resource, as bits: what a client may do without an authorizer."""
    return bits_of(OPERATIONS_OF[kind])


IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""An entry that allows one of these operations also allows the key. Denials imply nothing."""


class Acl(msgspec.Struct, frozen=True, order=True):
    """One access control entry. `principal`: "User:alice", or "User:*" for all. `host`: an address, or "*"."""

    resource_type: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        how = "" if self.pattern is PatternType.LITERAL else f"{self.pattern.name.lower()} "
        return (
            f"{self.permission.name} {self.operation.name} on {self.resource_type.name} {how}{self.name!r} "
            f"to {self.principal} from {self.host}"
        )


class AclFilter(msgspec.Struct, frozen=True):
    """Matches entries. None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether the filter selects this entry. The pattern MATCH selects every entry that applies to the name."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._selects_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _selects_name(self, acl: Acl) -> bool:
        if self.pattern is PatternType.MATCH:
            return self.name is None or applies(acl, self.name)
        return self.pattern in (PatternType.ANY, acl.pattern) and self.name in (None, acl.name)


def applies(acl: Acl, name: str) -> bool:
    """Whether the entry's pattern covers the resource of that name."""
    if acl.pattern is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


OPTION_OF = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}
"""The options of `semel acl` that name a resource."""
ADD_COMMAND = "semel acl add"


def add_command(principal: str, operation: Operation, kind: ResourceType, name: str) -> str:
    """The command that allows an operation."""
    allowed = operation.name.lower().replace("_", "-")
    words = [*ADD_COMMAND.split(), "--principal", principal, "--allow", allowed]
    words += [OPTION_OF[kind], name] if kind in OPTION_OF else ["--cluster"]
    return shlex.join(words)


def refusal(sender: str, operation: Operation, kind: ResourceType, name: str, command: str) -> str:
    """The sentences about a missing right. `sender`: the principal, perhaps with its host; `command`: what gives it."""
    return f"{sender} may not {operation.name} {kind.name} {name!r}. An administrator can allow it: {command}"
