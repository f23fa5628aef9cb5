"""DescribeClientQuotas (key 48): the quotas that a filter selects, by entity (KIP-546).

INVALID_REQUEST: a filter that means nothing, such as an ip beside a user. UNSUPPORTED_VERSION: an unknown type of
entity.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel_protocol.acls import Operation
from semel_protocol.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntity,
    DescribeClientQuotasResponseEntry,
    DescribeClientQuotasResponseValue,
)
from semel_protocol.quotas import QuotaEntity

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.context import RequestContext
from semel_broker.security.quotas.validation import filter_of


async def handle(request: DescribeClientQuotasRequest, ctx: RequestContext) -> DescribeClientQuotasResponse:
    wanted = filter_of(
        ((row.entity_type, row.match_type, row.match) for row in request.components), strict=request.strict
    )
    return DescribeClientQuotasResponse(
        entries=[_entry(entity, values) for entity, values in ctx.broker.quotas.find(wanted)]
    )


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> DescribeClientQuotasResponseEntry:
    return DescribeClientQuotasResponseEntry(
        entity=[
            DescribeClientQuotasResponseEntity(entity_type=kind, entity_name=name)
            for kind, name in entity.parts.items()
        ],
        values=[DescribeClientQuotasResponseValue(key=key, value=value) for key, value in sorted(values.items())],
    )


NEEDS: Requirements = (on_cluster(Operation.DESCRIBE_CONFIGS),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
