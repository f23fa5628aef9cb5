"""Brokers with users and an authorizer: pages show what the principal may see, and name the right that is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from console.shop import hang
from console.visitor import Visitor
from semel import Admin, NewTopic, Producer
from semel.admin import Acl, Operation, PatternType, Permission, ResourceType
from semel.cli.shared.client_settings import ClientSettings
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.facts.rights import LEFT_OUT, NO_MOVES
from semel_console.guard import Guard
from semel_console.link import ClusterLink

pytestmark = [pytest.mark.real_time, pytest.mark.semel(security="scram"), pytest.mark.semel_only("users of its own")]
SETTINGS = {"max_block_ms": 2_000, "request_timeout_ms": 2_000, "retry_backoff_ms": 20}
VIEWER = "viewer"


def entry(kind: ResourceType, name: str, operation: Operation) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, f"User:{VIEWER}", "*", operation, Permission.ALLOW)


async def two_topics(broker: EphemeralBroker, *acls: Acl) -> None:
    """The viewer has these rights. Both topics have a committed transaction of `shop`, orders-0 a hanging one."""
    settings = broker.client_settings()
    async with Admin(**settings) as admin:
        await admin.create_topics([NewTopic("orders", 1), NewTopic("secrets", 1)])
        await admin.create_acls(acls)
    async with Producer(**settings, transactional_id="shop") as shop, shop.transaction():
        for topic in ("orders", "secrets"):
            await shop.send(topic, b"one", partition=0)
    hang(broker)
    broker.create_user(VIEWER, "its password")


@asynccontextmanager
async def seen_by(broker: EphemeralBroker, user: str) -> AsyncIterator[Visitor]:
    def opened() -> AbstractAsyncContextManager[Admin]:
        return ClientSettings(broker.client_settings("semel", user), {}).admin(SETTINGS, quiet=True)

    link = ClusterLink(opened)
    visitor = Visitor(link, Guard(may_write=True))
    await visitor.enter()
    yield visitor
    await link.close()


async def test_a_principal_that_may_describe_one_topic_sees_that_one(semel_broker: EphemeralBroker) -> None:
    await two_topics(semel_broker, entry(ResourceType.TOPIC, "orders", Operation.DESCRIBE))
    async with seen_by(semel_broker, VIEWER) as visitor:
        assert [each["topic"] for each in (await visitor.facts("topics"))["topics"]] == ["orders"]
        overview = await visitor.facts("overview")
        assert overview["health"]["verdict"] == "healthy"
        assert list(overview["end_offsets"]) == ["orders"]
        (holder,) = overview["holders"]
        assert holder["verdict"] == "not shown"
        assert holder["sentences"] == [["why", "The transactions that are open in a topic need READ on the topic."]]
        topic = await visitor.facts("topic", topic="orders")
        assert topic["partitions"][0]["high_watermark"] > 0
        assert topic["partitions"][0]["size_bytes"] is None
        assert "DESCRIBE on the cluster" in topic["sizes_problem"]
        assert "DESCRIBE_CONFIGS" in topic["settings_problem"]
        assert (await visitor.facts("transactions"))["transactions"] == []
        assert (await visitor.facts("groups"))["groups"] == []
        assert (await visitor.facts("rights"))["notes"] == [LEFT_OUT, NO_MOVES]
        access = await visitor.facts("access")
        for part in ("users", "acls", "quotas"):
            assert "may not DESCRIBE" in access[part]["problem"]


@pytest.mark.parametrize(
    ("page", "right"),
    [
        ("topic?topic=secrets", "DESCRIBE on the topic"),
        ("ends?topic=secrets&partition=0", "DESCRIBE on the topic"),
        ("records?topic=orders&partition=0", "READ on the topic"),
        ("timeline?topic=orders&partition=0", "READ on the topic"),
        ("transaction?id=shop", "DESCRIBE on the transactional id"),
        ("group?group=billing", "DESCRIBE on the group"),
        ("broker?broker=0", "DESCRIBE_CONFIGS on the cluster"),
    ],
)
async def test_a_page_that_is_refused_names_the_right(semel_broker: EphemeralBroker, page: str, right: str) -> None:
    await two_topics(semel_broker, entry(ResourceType.TOPIC, "orders", Operation.DESCRIBE))
    async with seen_by(semel_broker, VIEWER) as visitor:
        answer = await visitor.get(f"/api/facts/{page}")
        assert answer.status == 403
        assert any(right in note for note in answer.json["error"]["notes"]), answer.body


async def test_a_transaction_may_be_hidden_instead_of_hanging(semel_broker: EphemeralBroker) -> None:
    rights = [entry(ResourceType.TOPIC, "orders", each) for each in (Operation.DESCRIBE, Operation.READ)]
    await two_topics(semel_broker, *rights)
    async with seen_by(semel_broker, VIEWER) as visitor:
        (holder,) = (await visitor.facts("overview"))["holders"]
        assert holder["verdict"] == "hanging"
        assert any("hidden from this principal" in text for _, text in holder["sentences"])
        timeline = await visitor.facts("timeline", topic="orders", partition=0)
        assert timeline["holders"][0]["sentences"][-1] == holder["sentences"][-1]
        refused = await visitor.post(
            "/api/do/abort-hanging", {"topic": "orders", "partition": 0, "producer_id": holder["producer_id"]}
        )
        assert refused.status == 403


async def test_a_super_user_sees_everything(semel_broker: EphemeralBroker) -> None:
    await two_topics(semel_broker)
    async with seen_by(semel_broker, "test") as visitor:
        topics = [each["topic"] for each in (await visitor.facts("topics"))["topics"] if not each["internal"]]
        assert topics == ["orders", "secrets"]
        assert [each["transactional_id"] for each in (await visitor.facts("transactions"))["transactions"]] == ["shop"]
        access = await visitor.facts("access")
        assert [each["user"] for each in access["users"]["rows"]] == ["test", VIEWER]
