"""DeleteGroups (key 42): delete groups without members and their offsets; answered once durable (KIP-229)."""

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k42_delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseResult,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, codes_by, deed_on
from semel_broker.authorization.requirements import Requirements, on_each
from semel_broker.context import RequestContext


async def handle(request: DeleteGroupsRequest, ctx: RequestContext) -> DeleteGroupsResponse:
    results = []
    slices = ctx.slices()
    for group_id in dict.fromkeys(request.groups_names):
        if slices.is_over():
            await slices.next()
        code, message = ErrorCode.NONE, None
        try:
            await (await ctx.broker.groups.shard_of_known(group_id)).delete_group(group_id)
        except KafkaError as error:
            code, message = error.code, error.message
        results.append(DeleteGroupsResponseResult(group_id=group_id, error_code=code, error_message=message))
    return DeleteGroupsResponse(results=results)


# --- rights and audit ----------------------------------------------------------------------------------------


def _deletions(request: DeleteGroupsRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    return [deed_on(Operation.DELETE, ResourceType.GROUP, name) for name in request.groups_names]


NEEDS: Requirements = (on_each(Operation.DELETE, ResourceType.GROUP, DeleteGroupsRequest),)
AUDIT = Administration(_deletions, codes_by("results", "group_id"))
