"""Brokers with users and an authorizer: pages show the data that the principal may see, and name the missing right."""

from __future__ import annotations

import pytest
from console.viewer import VIEWER, entry, seen_by, two_topics
from semel.admin import Operation, ResourceType
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.facts.rights import LEFT_OUT, NO_MOVES

pytestmark = [pytest.mark.real_time, pytest.mark.semel(security="scram"), pytest.mark.semel_only("users of its own")]


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
