"""Whether the brokers have an authorizer, so that resources may be hidden from the principal of a command."""

from __future__ import annotations

from semel import Admin
from semel.admin import AclFilter, ResourceType
from semel.errors import ClusterAuthorizationFailedError, SecurityDisabled, UnsupportedVersionError


async def has_authorizer(admin: Admin) -> bool:
    """Whether the brokers have an authorizer, as far as they say it."""
    try:
        return await may_list_acls(admin)
    except ClusterAuthorizationFailedError:
        return True


async def may_list_acls(admin: Admin) -> bool:
    """Whether there are access control entries to be listed. Raises ClusterAuthorizationFailedError without DESCRIBE on
    the cluster.
    """
    try:
        await admin.describe_acls(AclFilter(resource_type=ResourceType.CLUSTER))
    except (SecurityDisabled, UnsupportedVersionError):
        return False
    return True
