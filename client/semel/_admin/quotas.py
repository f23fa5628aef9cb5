"""Quotas of clients: describe and alter. Any broker answers; the others follow within a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel_protocol.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)
from semel_protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
    AlterClientQuotasResponse,
)
from semel_protocol.quotas import ANY_MATCH, DEFAULT_MATCH, EXACT, QuotaEntity, QuotaFilter, SpecialEntity

from semel._net.calls import CallOutcomes, Calls
from semel._net.connection import Connection
from semel._net.retry import Deadline

Quotas = dict[QuotaEntity, dict[str, float]]


async def describe_client_quotas(calls: Calls, wanted: QuotaFilter, timeout_ms: float | None) -> Quotas:
    outcomes: CallOutcomes[QuotaFilter, Quotas] = CallOutcomes([wanted], lambda each: "describing quotas")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        request = DescribeClientQuotasRequest(
            components=[_component(kind, part) for kind, part in wanted.parts.items()], strict=wanted.strict
        )
        answer: DescribeClientQuotasResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            outcomes.refused(wanted, answer.error_code, answer.error_message)
            return
        found = {_entity(row): {each.key: each.value for each in row.values} for row in answer.entries or ()}
        outcomes.succeeded(wanted, dict(sorted(found.items(), key=lambda each: each[0].order)))

    return (await calls.on_controller(attempt, outcomes, what="describing quotas", timeout_ms=timeout_ms))[wanted]


async def alter_client_quotas(
    calls: Calls,
    alterations: Mapping[QuotaEntity, Mapping[str, float | None]],
    timeout_ms: float | None,
    *,
    validate_only: bool,
) -> None:
    outcomes: CallOutcomes[QuotaEntity, None] = CallOutcomes(alterations, lambda each: f"altering quotas of {each}")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        entries = [_entry(entity, alterations[entity]) for entity in outcomes.open]
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        answer: AlterClientQuotasResponse = await calls.request(connection, request, deadline)
        for row in answer.entries:
            if row.error_code:
                outcomes.refused(_entity(row), row.error_code, row.error_message)
            else:
                outcomes.succeeded(_entity(row), None)

    await calls.on_controller(attempt, outcomes, what="altering quotas", timeout_ms=timeout_ms)


def _component(kind: str, part: str | SpecialEntity) -> DescribeClientQuotasRequestComponent:
    if isinstance(part, str):
        return DescribeClientQuotasRequestComponent(entity_type=kind, match_type=EXACT, match=part)
    match_type = ANY_MATCH if part is SpecialEntity.ANY else DEFAULT_MATCH
    return DescribeClientQuotasRequestComponent(entity_type=kind, match_type=match_type, match=None)


def _entry(entity: QuotaEntity, changes: Mapping[str, float | None]) -> AlterClientQuotasRequestEntry:
    return AlterClientQuotasRequestEntry(
        entity=[
            AlterClientQuotasRequestEntity(entity_type=kind, entity_name=name) for kind, name in entity.parts.items()
        ],
        ops=[
            AlterClientQuotasRequestOp(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in changes.items()
        ],
    )


def _entity(row: Any) -> QuotaEntity:
    """The entity of a row of either response: their fields have the same names."""
    return QuotaEntity.of_parts({part.entity_type: part.entity_name for part in row.entity})
