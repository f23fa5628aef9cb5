"""Users, access control entries and quotas, each as far as the principal of the console may see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from semel import Admin
from semel.errors import KafkaError

from semel_console.answers import words_of
from semel_console.query import QueryParameters


async def access(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """Three parts, each with rows or with the sentence why there are none."""

    async def users() -> list[dict[str, Any]]:
        found = await admin.describe_user_scram_credentials()
        return [
            {
                "user": name,
                "mechanisms": [each.mechanism.name.replace("_", "-") for each in described.scram_credential_infos],
            }
            for name, described in found.items()
        ]

    async def acls() -> list[dict[str, Any]]:
        return [
            {
                "principal": each.principal,
                "permission": each.permission.name.lower(),
                "operation": each.operation.name.lower().replace("_", " "),
                "resource_type": each.resource_type.name.lower().replace("_", " "),
                "resource": each.name,
                "pattern": each.pattern.name.lower(),
                "host": each.host,
            }
            for each in await admin.describe_acls()
        ]

    async def quotas() -> list[dict[str, Any]]:
        found = await admin.describe_client_quotas()
        return [
            {"entity": str(entity), "parts": entity.parts, "quotas": dict(values)} for entity, values in found.items()
        ]

    return {"users": await _part(users), "acls": await _part(acls), "quotas": await _part(quotas)}


async def _part(rows: Callable[[], Awaitable[list[dict[str, Any]]]]) -> dict[str, Any]:
    try:
        return {"rows": await rows(), "problem": None}
    except KafkaError as e:
        return {"rows": [], "problem": words_of(e)}
