"""DescribeUserScramCredentials (key 50): the mechanisms and iterations of users; never salts or keys. KIP-554.

RESOURCE_NOT_FOUND: there is no such user. DUPLICATE_RESOURCE: the request names the user twice.
"""

from __future__ import annotations

from collections import Counter

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseCredentialInfo,
    DescribeUserScramCredentialsResponseResult,
)

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.context import RequestContext
from semel_broker.security.user_store import UserStore


async def handle(
    request: DescribeUserScramCredentialsRequest, ctx: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """One row per user, in the order of the request."""
    users = ctx.broker.users
    asked = Counter(row.name for row in request.users) if request.users else Counter(users.names)
    rows = []
    slices = ctx.slices()
    for name, times in asked.items():
        rows.append(_row(users, name, times))
        if slices.is_over():
            await slices.next()
    return DescribeUserScramCredentialsResponse(results=rows)


def _row(users: UserStore, name: str, times: int) -> DescribeUserScramCredentialsResponseResult:
    row = DescribeUserScramCredentialsResponseResult(user=name)
    found = users.credentials(name)
    if times > 1:
        row.error_code = ErrorCode.DUPLICATE_RESOURCE
        row.error_message = f"the request names the user {name} twice"
    elif not found:
        row.error_code = ErrorCode.RESOURCE_NOT_FOUND
        row.error_message = f"there is no user {name} with SCRAM credentials"
    row.credential_infos = [
        DescribeUserScramCredentialsResponseCredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism, credential in sorted(found.items())
        if not row.error_code
    ]
    return row


NEEDS: Requirements = (on_cluster(Operation.DESCRIBE),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
