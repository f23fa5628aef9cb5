"""PURE: notes each refusal of the authorizer in the log, with a bound: a client in a loop must not fill it."""

from __future__ import annotations

from collections import OrderedDict

from semel_protocol.acls import Operation, ResourceType

from semel_broker.authorization.access import Access
from semel_broker.security.authorizer import Decision, Principal
from semel_broker.world import Logger

SEEN_MAX = 1_000
REPEAT_EVERY = 1_000
"""The same refusal is written again after this many times."""


class Refusals:
    """One per broker."""

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
