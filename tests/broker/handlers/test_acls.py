"""Access control lists: SECURITY_DISABLED in every case where Kafka without an authorizer answers it."""

from __future__ import annotations

import pytest
from broker.harness import Wire
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k29_describe_acls import DescribeAclsRequest
from semel_protocol.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestCreation
from semel_protocol.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])
ANY = 1


@VERSIONS
async def test_acls_are_described_as_disabled(wire: Wire, version: int) -> None:
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = await wire.call(request, version)
    assert (response.error_code, response.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert response.error_message


@VERSIONS
async def test_each_acl_to_be_created_is_refused_in_a_result_of_its_own(wire: Wire, version: int) -> None:
    one = CreateAclsRequestCreation(
        resource_type=2, resource_name="t", principal="User:x", host="*", operation=3, permission_type=3
    )
    for count in (0, 1, 3):
        response = await wire.call(CreateAclsRequest(creations=[one] * count), version)
        assert [row.error_code for row in response.results] == [ErrorCode.SECURITY_DISABLED] * count
        assert all(row.error_message for row in response.results)


@VERSIONS
async def test_each_filter_of_acls_to_be_deleted_is_refused_in_a_result_of_its_own(wire: Wire, version: int) -> None:
    one = DeleteAclsRequestFilter(
        resource_type_filter=2,
        resource_name_filter="t",
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    for count in (0, 1, 3):
        response = await wire.call(DeleteAclsRequest(filters=[one] * count), version)
        rows = response.filter_results
        assert [(row.error_code, row.matching_acls) for row in rows] == [(ErrorCode.SECURITY_DISABLED, [])] * count
        assert all(row.error_message for row in rows)
