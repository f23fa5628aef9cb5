"""PURE: the rights of one connection's principal, and the log lines of what was refused."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from semel_protocol.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Operation,
    ResourceType,
    add_command,
    bits_of,
    refusal,
)
from semel_protocol.schema import Message

from semel_broker.answers import CloseConnectionError
from semel_broker.context import RequestContext
from semel_broker.security.authorizer import Authorizer, Decision, Principal
from semel_broker.world import Logger

Note = Callable[["Access", Operation, ResourceType, str, Decision], None]
"""Called for each decision about something that a request names."""

SEEN_MAX = 1_000
REPEAT_EVERY = 1_000
"""The same refusal is written again after this many times."""


class Access:
    """The present rights of the sender of a request. `note`: gets each refusal of something that the request names.

    `permitted`: gets what is allowed, if it is to be noted, too.
    """

    __slots__ = ("_authorizer", "_note", "_permitted", "api_key", "ctx", "principal", "request")

    def __init__(
        self,
        authorizer: Authorizer,
        ctx: RequestContext,
        api_key: int,
        request: Message,
        note: Note,
        permitted: Note | None = None,
    ) -> None:
        self._authorizer, self._note, self._permitted = authorizer, note, permitted
        self.ctx, self.api_key, self.request = ctx, api_key, request
        self.principal = ctx.principal

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the principal may; a refusal is noted.

        Raises CloseConnectionError instead of a refusal while the broker has no session: the right may have been given
        meanwhile, and clients do not try again what was refused.
        """
        decision = self._authorizer.decide(self.principal, operation, kind, name)
        if not decision.is_allowed:
            registration = self.ctx.broker.registration
            if registration is not None and not registration.is_valid():
                raise CloseConnectionError("rights_out_of_date", resource=f"{kind.name}:{name}")
            self._note(self, operation, kind, name, decision)
        elif self._permitted is not None:
            self._permitted(self, operation, kind, name, decision)
        return decision.is_allowed

    def allows_quietly(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """As `allows`, for what the request does not name: leaving a row out is no refusal."""
        return self._authorizer.allows(self.principal, operation, kind, name)

    def refusal(self, operation: Operation, kind: ResourceType, name: str) -> str:
        """The sentences for a client that was refused. They do not say which ACL decided."""
        command = add_command(self.principal.name, operation, kind, name)
        return refusal(f"{self.principal.name} from {self.principal.host}", operation, kind, name, command)

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether there can be a resource of the type on which the principal may do the operation."""
        return self._authorizer.allows_any(self.principal, operation, kind)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the principal may do, as bits 1 << operation (KIP-430)."""
        return bits_of(each for each in OPERATIONS_OF[kind] if self.allows_quietly(each, kind, name))


class Refusals:
    """Notes each refusal of the authorizer in the log, with a bound: a client in a loop must not fill it."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._seen: OrderedDict[tuple[Principal, Operation, ResourceType, str], int] = OrderedDict()

    def note(self, access: Access, operation: Operation, kind: ResourceType, name: str, decision: Decision) -> None:
        """Write the refusal, unless the same one was written a short while ago."""
        principal = access.principal
        key = (principal, operation, kind, name)
        count = self._seen.pop(key, 0) + 1
        self._seen[key] = count
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        if count % REPEAT_EVERY == 1:
            self._log.warning(
                "not_authorized",
                principal=principal.name,
                host=principal.host,
                operation=operation.name,
                resource=f"{kind.name}:{name}",
                why=str(decision.rule) if decision.rule is not None else decision.why,
                times=count,
            )
