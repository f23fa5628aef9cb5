"""Transaction groups, which Spark's sinks use: the driver, the committed step, and the members of each."""

from __future__ import annotations

from typing import Any

from semel import Admin
from semel.diagnose import transaction_group_facts
from semel.errors import UnsupportedVersionError

from semel_console.query import QueryParameters

NOT_SERVED = (
    "These brokers have no transaction groups: they are Apache Kafka or another Kafka. There Spark's sink writes at "
    "least once."
)


async def sinks(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """Transaction groups with their members; a sentence when the brokers are not semel's."""
    try:
        found = await admin.describe_transaction_groups()
    except UnsupportedVersionError:
        return {"now_ms": now_ms, "groups": [], "problem": NOT_SERVED}
    return {"now_ms": now_ms, "groups": [transaction_group_facts(each) for each in found], "problem": None}
