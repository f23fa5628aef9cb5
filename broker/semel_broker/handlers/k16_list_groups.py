"""ListGroups (key 16): the groups of this broker, by id.

v4 filters by state, v5 by type; names are compared without case.
"""

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, VisibleRowsRequirement
from semel_broker.context import RequestContext
from semel_broker.groups.group import Group


async def handle(request: ListGroupsRequest, ctx: RequestContext) -> ListGroupsResponse:
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    listed = [
        group
        for group in await ctx.broker.groups.groups()
        if (not types or group.membership.kind in types)
        and (not states or group.membership.state_name.lower() in states)
    ]
    return ListGroupsResponse(groups=await ctx.slices().each(listed, _row))


def _row(group: Group) -> ListGroupsResponseGroup:
    return ListGroupsResponseGroup(
        group_id=group.group_id,
        protocol_type=group.membership.protocol_type,
        group_state=group.membership.state_name,
        group_type=group.membership.kind,
    )


NEEDS: Requirements = (
    VisibleRowsRequirement(
        Operation.DESCRIBE, ResourceType.GROUP, "groups", lambda row: row.group_id, unless_cluster=Operation.DESCRIBE
    ),
)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
