"""What the principal of the console may see: whether the brokers have an authorizer, and what each page needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel import Admin
from semel.admin import AclFilter, ResourceType
from semel.errors import ClusterAuthorizationFailedError, SecurityDisabled, UnsupportedVersionError

from semel_console.query import Query

LEFT_OUT = (
    "The brokers have an authorizer: topics, groups and transactional ids that this principal may not DESCRIBE are "
    "left out."
)
NO_MOVES = "Partitions that are being moved are not marked: that needs DESCRIBE on the cluster."
MAYBE_HIDDEN = ["unless", "its transactional id is hidden from this principal: seeing it needs DESCRIBE on it"]
NEEDS_CONFIGS = "The settings of a topic need DESCRIBE_CONFIGS on the topic."
NEEDS: Mapping[str, str] = {
    "broker": "The settings of a broker need DESCRIBE_CONFIGS on the cluster.",
    "ends": "The offsets of a topic need DESCRIBE on the topic.",
    "export": "The records of a topic need READ on the topic.",
    "group": "A group needs DESCRIBE on the group and on its topics.",
    "records": "The records of a topic need READ on the topic.",
    "timeline": "The timeline of a topic is made of its batches, which need READ on the topic.",
    "topic": "A topic needs DESCRIBE on the topic.",
    "transaction": "A transactional id needs DESCRIBE on the transactional id.",
}
"""The right that a page needs, in words, by its name. Brokers do not say it in each answer."""


async def rights(admin: Admin, query: Query, now_ms: int) -> dict[str, Any]:
    """notes: sentences about what the pages leave out."""
    try:
        return {"notes": [LEFT_OUT] if await _asked(admin) else []}
    except ClusterAuthorizationFailedError:
        return {"notes": [LEFT_OUT, NO_MOVES]}


async def has_authorizer(admin: Admin) -> bool:
    """Whether the brokers have an authorizer, as far as they say it."""
    try:
        return await _asked(admin)
    except ClusterAuthorizationFailedError:
        return True


async def _asked(admin: Admin) -> bool:
    """Raises ClusterAuthorizationFailedError without DESCRIBE on the cluster."""
    try:
        await admin.describe_acls(AclFilter(resource_type=ResourceType.CLUSTER))
    except (SecurityDisabled, UnsupportedVersionError):
        return False
    return True
