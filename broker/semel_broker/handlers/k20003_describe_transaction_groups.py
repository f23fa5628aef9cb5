"""DescribeTransactionGroups (key 20003, of semel): the transaction groups of this coordinator, and their members.

Served: v0. Each broker answers for the groups that it coordinates. A name that is in no broker's answer is not that of
a group.
"""

from __future__ import annotations

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.messages.k20003_describe_transaction_groups import (
    DescribeTransactionGroupsRequest,
    DescribeTransactionGroupsResponse,
    DescribeTransactionGroupsResponseGroup,
    DescribeTransactionGroupsResponseMember,
)

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_each
from semel_broker.context import RequestContext
from semel_broker.handlers.k20001_begin_transaction_group import group_prefix
from semel_broker.txn.model.metadata import TransactionMetadata
from semel_broker.txn.transaction_groups import GroupListing


async def handle(request: DescribeTransactionGroupsRequest, ctx: RequestContext) -> DescribeTransactionGroupsResponse:
    found = await ctx.broker.transactions.groups.listing(request.groups)
    return DescribeTransactionGroupsResponse(groups=[_group(each) for each in found])


def _group(listing: GroupListing) -> DescribeTransactionGroupsResponseGroup:
    group = listing.group
    return DescribeTransactionGroupsResponseGroup(
        group=group.name,
        group_epoch=group.epoch,
        state=group.state.label,
        owner=group.owner,
        client_id=group.client.client_id,
        client_host=group.client.host,
        timeout_ms=group.timeout_ms,
        begin_time_ms=group.begin_ms,
        last_update_time_ms=group.last_update_ms,
        decided_token=group.decided_token,
        decided_epoch=group.decided_epoch,
        note=group.note,
        members=[_member(txn) for txn in listing.members],
    )


def _member(txn: TransactionMetadata) -> DescribeTransactionGroupsResponseMember:
    return DescribeTransactionGroupsResponseMember(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        group_epoch=txn.group_epoch,
        transaction_state=txn.state.label,
        transaction_start_time_ms=txn.start_ms,
    )


NEEDS: Requirements = (
    on_each(
        Operation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        DescribeTransactionGroupsRequest,
        group_prefix,
        lambda row: group_prefix(row.group),
    ),
)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
