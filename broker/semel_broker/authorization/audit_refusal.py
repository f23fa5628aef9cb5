"""PURE: refuses requests whose lines the audit log could not take, before anything is done (`audit.log.required`).

The requirements know how the response of each API refuses each of its resources. Here every resource is refused, with
errors that clients try again later: the trouble is the broker's, and it ends. A request that does more than to change
something is carried out without the change (`Administration.without_change`).
"""

from __future__ import annotations

from typing import Any, Final

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.schema import Message

from semel_broker.answers import CloseConnectionError
from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import Administration
from semel_broker.authorization.requirements import REFUSAL_OF, CheckSteps, Requirements, check_all
from semel_broker.context import RequestContext
from semel_broker.scheduling.turns import AT_ONCE

CODE_OF: Final = {
    REFUSAL_OF[ResourceType.TOPIC]: ErrorCode.KAFKA_STORAGE_ERROR,
    REFUSAL_OF[ResourceType.CLUSTER]: ErrorCode.KAFKA_STORAGE_ERROR,
    REFUSAL_OF[ResourceType.GROUP]: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    REFUSAL_OF[ResourceType.TRANSACTIONAL_ID]: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error code in place of that of a refusal by the authorizer."""
WHY: Final = "the broker's audit log cannot be written, and audit.log.required is set; try again later"


class NoAccess(Access):
    """Refuses everything that a request names. `rights`: decide about the rest; None: nothing is allowed."""

    __slots__ = ("_is_counted", "_rights")

    def __init__(self, rights: Access | None, ctx: RequestContext, api_key: int, request: Message) -> None:
        self.ctx, self.api_key, self.request, self.principal = ctx, api_key, request, ctx.principal
        self._rights, self._is_counted = rights, False

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """False. The request is counted as refused."""
        if not self._is_counted:
            self._is_counted = True
            self.ctx.broker.counters.security.refused_for_audit += 1
        return False

    def allows_quietly(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self._rights is not None and self._rights.allows_quietly(operation, kind, name)

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        return False

    def refusal(self, operation: Operation, kind: ResourceType, name: str) -> str:
        return WHY


def refusing(requirements: Requirements, request: Any, ctx: RequestContext, access: NoAccess) -> CheckSteps:
    """As `check_all`, with the error codes of this file in the response."""
    try:
        checked, answer, complete = yield from check_all(request, ctx, access, requirements)
    except CloseConnectionError:
        raise CloseConnectionError("audit_log_not_written") from None
    return checked, None if answer is None else _with_codes(answer), [*complete, _with_codes]


def refuse(
    key: int, administration: Administration, requirements: Requirements, request: Any, ctx: RequestContext
) -> Message | None:
    """The response to an administrative request that is refused. None: the handler runs, and changes nothing.

    Raises KafkaError for a request whose resources the requirements do not see.
    """
    if administration.without_change is not None:
        administration.without_change(request)
        ctx.broker.counters.security.refused_for_audit += 1
        return None
    _, answer, _ = AT_ONCE.run(refusing(requirements, request, ctx, NoAccess(None, ctx, key, request)))
    if answer is None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, WHY)
    return answer


def _with_codes(response: Any) -> Message:
    """The response with the codes of this file, and the reason where a row has a field for it."""
    for name in response.__struct_fields__:
        value = getattr(response, name)
        if isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    _with_codes(each)
        elif name.endswith("error_code") and value in CODE_OF:
            setattr(response, name, CODE_OF[value])
            if "error_message" in response.__struct_fields__:
                response.error_message = WHY
    made: Message = response
    return made
