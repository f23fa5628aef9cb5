"""Puts the audit around the handlers of administrative requests: one line for each operation, with its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.schema import Message

from semel_broker.authorization.administration import Administration, AdministrativeChange
from semel_broker.authorization.audit_log import AuditLog, rule_of, transactional_id_of
from semel_broker.authorization.audit_refusal import refuse
from semel_broker.authorization.requirements import REFUSAL_OF, Requirements
from semel_broker.context import Handler, RequestContext
from semel_broker.security.authorizer import Authorizer

NO_AUTHORIZER = "no authorizer"
REFUSALS = frozenset(REFUSAL_OF.values())


class PermittedOperation(msgspec.Struct, frozen=True):
    """A deed that the authorizer allows, and the rule that allows it."""

    deed: AdministrativeChange
    rule: str


def audited(
    handlers: Mapping[int, Handler],
    administrations: Mapping[int, Administration],
    needs: Mapping[int, Requirements],
    audit: AuditLog,
    authorizer: Authorizer | None,
) -> dict[int, Handler]:
    """The handlers, those of administrative requests inside the audit. `authorizer` None: everything is allowed."""
    return {
        key: _audited(key, handler, administrations[key], needs[key], audit, authorizer)
        if key in administrations
        else handler
        for key, handler in handlers.items()
    }


def _audited(
    key: int,
    handler: Handler,
    administration: Administration,
    requirements: Requirements,
    audit: AuditLog,
    authorizer: Authorizer | None,
) -> Handler:
    async def handle(request: Any, ctx: RequestContext) -> Message | None:
        permitted = [
            PermittedOperation(deed, rule)
            for deed in administration.deeds(request, ctx)
            if (rule := _rule(deed, ctx, authorizer)) is not None
        ]
        if not permitted:
            return await handler(request, ctx)
        transactional_id = transactional_id_of(request)
        if audit.is_behind():
            refused = refuse(key, administration, requirements, request, ctx)
            return await handler(request, ctx) if refused is None else refused
        response, error = None, None
        try:
            response = await handler(request, ctx)
        except KafkaError as refusal:
            error = refusal.code
            raise
        except BaseException:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            raise
        finally:
            _write(key, administration, audit, ctx, permitted, transactional_id, response, error)
        return response

    return handle


def _rule(deed: AdministrativeChange, ctx: RequestContext, authorizer: Authorizer | None) -> str | None:
    """The rule that allows a deed; None: it is refused, and the refusal has a line of its own."""
    if authorizer is None:
        return NO_AUTHORIZER
    for operation, kind, name in deed.rights:
        decision = authorizer.decide(ctx.principal, operation, kind, name)
        if decision.is_allowed:
            return rule_of(decision)
    return None


def _write(
    key: int,
    administration: Administration,
    audit: AuditLog,
    ctx: RequestContext,
    permitted: list[PermittedOperation],
    transactional_id: str | None,
    response: Any,
    error: ErrorCode | None,
) -> None:
    codes = {} if response is None else administration.codes(response, [each.deed for each in permitted])
    whole = error if error is not None else getattr(response, "error_code", 0)
    for each in permitted:
        deed = each.deed
        code = codes.get(deed.key, whole)
        if code in REFUSALS and not administration.refuses_itself:
            continue  # another right was missing, which has a line of its own
        audit.administered(
            ctx,
            key,
            deed.operation,
            deed.kind,
            deed.name,
            rule=each.rule,
            error=ErrorCode(code).name,
            changes=deed.changes,
            transactional_id=transactional_id,
        )
