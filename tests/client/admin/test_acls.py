"""Access control entries through the Admin, against a broker with an authorizer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from semel.admin import Acl, AclFilter, Admin, Operation, PatternType, Permission, ResourceType
from semel.errors import ClusterAuthorizationFailedError, InvalidRequestError, SecurityDisabled
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.semel(
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    ),
]


def acl(name: str, operation: Operation = Operation.READ, pattern: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, "User:alice", "*", operation, Permission.ALLOW)


@pytest.fixture
async def admin(semel_broker: EphemeralBroker) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as made:
        yield made


@pytest.mark.semel_only("needs an authorizer; the tests of semel acl run on one of Kafka")
async def test_entries_are_stored_once_described_and_deleted(admin: Admin) -> None:
    entries = [acl("flights"), acl("fl", Operation.WRITE, PatternType.PREFIXED), acl("delays")]
    await admin.create_acls(entries)
    await admin.create_acls(entries[:1])
    assert await admin.describe_acls() == sorted(entries)
    match = AclFilter(ResourceType.TOPIC, "flights", PatternType.MATCH)
    assert await admin.describe_acls(match) == sorted(entries[:2])
    assert await admin.delete_acls([match]) == sorted(entries[:2])
    assert await admin.describe_acls() == [acl("delays")]


@pytest.mark.semel_only("needs an authorizer; the tests of semel acl run on one of Kafka")
async def test_more_entries_than_a_transaction_of_the_store_holds(admin: Admin) -> None:
    entries = [acl(f"topic-{number}") for number in range(300)]
    await admin.create_acls(entries)
    assert len(await admin.describe_acls()) == 300
    assert len(await admin.delete_acls([AclFilter()])) == 300


@pytest.mark.semel_only("needs an authorizer; the tests of semel acl run on one of Kafka")
async def test_an_entry_that_means_nothing_is_refused_and_the_others_are_stored(admin: Admin) -> None:
    wrong = Acl(
        ResourceType.CLUSTER, "flights", PatternType.LITERAL, "User:alice", "*", Operation.ALTER, Permission.ALLOW
    )
    with pytest.raises(InvalidRequestError, match="the only resource of type CLUSTER is kafka-cluster"):
        await admin.create_acls([wrong, acl("flights")])
    assert await admin.describe_acls() == [acl("flights")]


@pytest.mark.semel_only("needs an authorizer; the tests of semel acl run on one of Kafka")
@pytest.mark.semel(settings={"super.users": "User:root"})
async def test_without_the_right_they_are_refused(semel_broker: EphemeralBroker) -> None:
    async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as admin:
        for call in (admin.describe_acls(), admin.create_acls([acl("t")]), admin.delete_acls([AclFilter()])):
            with pytest.raises(ClusterAuthorizationFailedError):
                await call


async def test_without_an_authorizer_the_error_says_what_to_set() -> None:
    with EphemeralBroker() as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            with pytest.raises(SecurityDisabled, match=r"authorizer\.class\.name"):
                await admin.describe_acls()
