"""The rights for requests about settings, and the lines of the audit for their changes."""

from __future__ import annotations

from typing import Any, Final

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.refusals import refused_row
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import AdministrativeChange, Codes
from semel_broker.authorization.requirements import (
    REFUSAL_OF,
    CheckedRequest,
    CustomRequirement,
    Steps,
    adding,
    on_each,
)
from semel_broker.context import RequestContext

CONFIG_RESOURCES = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}
"""Types of resources in requests about settings that have ACLs of their own; all others are settings of the cluster."""
EDITS: Final = ("is set", "follows its default", "gets elements", "loses elements")
"""By operation of IncrementalAlterConfigs."""


def on_resources(operation: Operation, request: type[Message]) -> CustomRequirement:
    """`operation` on the topic or the group, or on the cluster for a broker's settings."""
    form = on_each(operation, ResourceType.TOPIC, request)

    def steps(request: Any, ctx: RequestContext, access: Access) -> Steps:
        allowed, rows = [], []
        for asked in request.resources:
            yield 1
            kind = CONFIG_RESOURCES.get(asked.resource_type, ResourceType.CLUSTER)
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else asked.resource_name
            if access.allows(operation, kind, name):
                allowed.append(asked)
            else:
                rows.append(refused_row(form.row, asked, REFUSAL_OF[kind], access.refusal(operation, kind, name)))
        if not rows:
            return CheckedRequest(request)
        request.resources = allowed
        complete = adding(form.answers, rows)
        return CheckedRequest(request, None if allowed else complete(form.response()), [complete])

    kinds = ((ResourceType.TOPIC, "topics"), (ResourceType.GROUP, "groups"), (ResourceType.CLUSTER, "brokers"))
    return CustomRequirement([(operation, kind, name) for kind, name in kinds], steps)


def alterations(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    """The names of the settings. Their values may be secrets, so no line has them."""
    if request.validate_only:
        return []
    deeds = []
    for row in request.resources:
        kind = CONFIG_RESOURCES.get(row.resource_type, ResourceType.CLUSTER)
        right = (Operation.ALTER_CONFIGS, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else row.resource_name)
        changes = [f"{each.name} {_edit(each)}" for each in row.configs]
        if kind is ResourceType.CLUSTER:
            changes.insert(0, f"broker {row.resource_name}" if row.resource_name else "all brokers")
        deeds.append(
            AdministrativeChange(
                [right], (row.resource_type, row.resource_name), Operation.ALTER_CONFIGS, kind, right[2], changes
            )
        )
    return deeds


def _edit(row: Any) -> str:
    number = getattr(row, "config_operation", 0)
    return EDITS[number] if 0 <= number < len(EDITS) else f"has the unknown edit {number}"


def codes_of_resources(response: Any, deeds: list[AdministrativeChange]) -> Codes:
    return {(row.resource_type, row.resource_name): row.error_code for row in response.responses}
