"""The rights of the console's principal: whether the brokers have an authorizer, and what each page needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel import Admin
from semel.diagnose import may_list_acls
from semel.errors import ClusterAuthorizationFailedError

from semel_console.query import QueryParameters

LEFT_OUT = (
    "The brokers have an authorizer: topics, groups and transactional ids that this principal may not DESCRIBE are "
    "left out."
)
NO_MOVES = "Partitions that are being moved are not marked: that needs DESCRIBE on the cluster."
NEEDS_CONFIGS = "The settings of a topic need DESCRIBE_CONFIGS on the topic."
NEEDS: Mapping[str, str] = {
    "broker": "The settings of a broker need DESCRIBE_CONFIGS on the cluster.",
    "ends": "The offsets of a topic need DESCRIBE on the topic.",
    "export": "The records of a topic need READ on the topic.",
    "group": "A group needs DESCRIBE on the group and on its topics.",
    "records": "The records of a topic need READ on the topic.",
    "search": "The records of a topic need READ on the topic.",
    "timeline": "The timeline of a topic is made of its batches, which need READ on the topic.",
    "topic": "A topic needs DESCRIBE on the topic.",
    "transaction": "A transactional id needs DESCRIBE on the transactional id.",
}
"""The right that a page needs, in words, by its name. Brokers do not say it in each answer."""


async def rights(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """notes: sentences about what the pages leave out."""
    try:
        return {"notes": [LEFT_OUT] if await may_list_acls(admin) else []}
    except ClusterAuthorizationFailedError:
        return {"notes": [LEFT_OUT, NO_MOVES]}
