"""PURE: the text of an error for a missing right: principal, operation, resource, and the command that allows it.

semel's brokers send most of it where the protocol has a field for a text. Other answers, and other brokers, have the
error code alone: then the client names what it knows.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from semel_protocol.acls import ADD_COMMAND, CLUSTER_NAME, Operation, ResourceType, add_command, refusal
from semel_protocol.errors import ErrorCode

KIND_OF: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ResourceType.TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ResourceType.GROUP,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ResourceType.TRANSACTIONAL_ID,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ResourceType.CLUSTER,
}
UNKNOWN_PRINCIPAL: Final = "User:NAME"
_SAID = re.compile(r"(?P<sender>(?P<principal>User:.+) from \S+) may not [A-Z_]+ [A-Z_]+ ")


class NeededRight(msgspec.Struct, frozen=True, kw_only=True):
    """The right that a request needs. principal: of the client; None: it does not know its own, as with a certificate.

    operation: READ for a consumer, which then may DESCRIBE, too; WRITE for a producer. The names: of the resources.
    """

    principal: str | None
    operation: Operation
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None

    def explained(self, code: ErrorCode, context: str) -> str:
        """The text of the error `code`, which a broker has answered. context: what was attempted, and the broker's own
        words."""
        kind = KIND_OF.get(code)
        name = None if kind is None else self._name_of(kind)
        if kind is None or name is None:
            return context
        said = _SAID.search(context)
        if said is None and ADD_COMMAND in context:
            return context
        principal = self.principal if said is None else said["principal"]
        sender = principal or "this client" if said is None else said["sender"]
        is_reader = kind is ResourceType.GROUP and self.operation is Operation.WRITE  # a producer that commits offsets
        operation = Operation.READ if is_reader else self.operation
        command = add_command(principal or UNKNOWN_PRINCIPAL, operation, kind, name)
        if principal is None:
            command += " (the broker's log has the principal: not_authorized)"
        attempted = context if said is None else context[: said.start()].rstrip(": ")
        return f"{attempted}: {refusal(sender, operation, kind, name, command)}"

    def _name_of(self, kind: ResourceType) -> str | None:
        match kind:
            case ResourceType.TOPIC:
                return self.topic
            case ResourceType.GROUP:
                return self.group
            case ResourceType.TRANSACTIONAL_ID:
                return self.transactional_id
            case _:
                return CLUSTER_NAME if self.operation in CLUSTER_OPERATIONS else None


CLUSTER_OPERATIONS: Final = (Operation.ALTER, Operation.DESCRIBE, Operation.IDEMPOTENT_WRITE)
