"""Topics, groups, entries, users and quotas are managed from the page: the dry run changes nothing and says everything,
a deletion needs the typed name, and the broker's audit log has each change without its secrets.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from console.conftest import SETTINGS
from console.shop import open_shop, read_some
from console.viewer import VIEWER, seen_by, two_topics
from console.visitor import Visitor
from semel import Admin
from semel._command_line.client_settings import ClientSettings
from semel.errors import SaslAuthenticationFailed
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.guard import ConsoleGuard
from semel_console.link import ClusterLink
from semel_console.writes import WRITES
from support.processes import BrokerProcess

pytestmark = pytest.mark.real_time
SECRET = "correct horse battery"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MARKER = pytest.mark.semel(security="scram")
BODIES: dict[str, dict[str, Any]] = {
    "abort-hanging": {"topic": "orders", "partition": 0, "producer_id": 7},
    "abort-transaction": {"transactional_id": "shop"},
    "add-acl": {"principal": "User:bob", "resource_type": "topic", "resource": "orders", "operations": ["read"]},
    "add-partitions": {"topic": "orders", "total": 9},
    "alter-quotas": {"entity": {"user": "bob"}, "quotas": {"producer_byte_rate": 1000}},
    "alter-topic": {"topic": "orders", "settings": {"retention.ms": "60000"}},
    "change-password": {"user": "bob", "password": SECRET},
    "create-topic": {"name": "orders"},
    "create-user": {"user": "bob", "password": SECRET},
    "delete-group": {"group": "billing", "typed": "billing"},
    "delete-topic": {"topic": "orders", "typed": "orders"},
    "delete-user": {"user": "bob", "typed": "bob"},
    "produce-record": {"topic": "orders", "value": "x"},
    "purge-topic": {"topic": "orders", "typed": "orders"},
    "remove-acl": {"principal": "User:bob", "resource_type": "topic", "resource": "orders", "operations": ["read"]},
    "reset-offsets": {"group": "billing", "to": "earliest"},
}


async def planned(visitor: Visitor, name: str, **body: Any) -> Any:
    """The answer of a dry run."""
    answer = await visitor.post(f"/api/do/{name}", body)
    assert answer.status == 200, answer.body
    assert answer.json["text"] is None
    return answer.json


async def done(visitor: Visitor, name: str, **body: Any) -> str:
    """The text of a change that was made."""
    answer = await visitor.post(f"/api/do/{name}", {**body, "dry_run": False})
    assert answer.status == 200, answer.body
    return str(answer.json["text"])


async def refused(visitor: Visitor, name: str, **body: Any) -> str:
    answer = await visitor.post(f"/api/do/{name}", body)
    assert 400 <= answer.status < 500, answer.body
    return answer.error


@pytest.mark.parametrize("name", sorted(WRITES))
async def test_without_write_no_request_made_by_hand_changes_anything(name: str) -> None:
    def never() -> Any:
        raise AssertionError("a refused request must not reach the cluster")

    guard = ConsoleGuard(may_write=False)
    visitor = Visitor(ClusterLink(never), guard, producing=never)
    await visitor.enter()
    assert visitor.write_token == ""
    for token in (guard.write_token, ""):
        for dry_run in ({}, {"dry_run": False}):
            visitor.write_token = token
            answer = await visitor.post(f"/api/do/{name}", {**BODIES[name], **dry_run})
            assert answer.status == 403
            assert "--write" in answer.error


@pytest.mark.parametrize("name", sorted(WRITES))
async def test_with_write_a_request_without_the_pages_token_or_of_another_origin_changes_nothing(name: str) -> None:
    def never() -> Any:
        raise AssertionError("a refused request must not reach the cluster")

    visitor = Visitor(ClusterLink(never), ConsoleGuard(may_write=True), producing=never)
    await visitor.enter()
    path = f"/api/do/{name}"
    assert (await visitor.post(path, BODIES[name], x_semel_write_token="0" * 48)).status == 403
    assert (await visitor.post(path, BODIES[name], origin="http://127.0.0.1:9999")).status == 403
    assert (await visitor.post(path, BODIES[name], content_type="text/plain")).status == 415
    assert (await visitor.get(path)).status == 405
    visitor.cookie = None
    assert (await visitor.post(path, BODIES[name])).status == 401


async def test_a_topic_is_deleted_after_its_name_was_typed(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    found = await planned(visitor, "delete-topic", topic="orders")
    assert "orders is deleted, with 2 partitions and about" in found["changes"][0]
    assert "billing" in found["changes"][1]
    for typed in ("", "order", "ORDERS"):
        said = await refused(visitor, "delete-topic", topic="orders", dry_run=False, typed=typed)
        assert "nothing was deleted" in said
    assert [each["topic"] for each in (await visitor.facts("topics"))["topics"] if each["topic"] == "orders"]
    assert "orders is deleted" in await done(visitor, "delete-topic", topic="orders", typed="orders")
    assert not [each for each in (await visitor.facts("topics"))["topics"] if each["topic"] == "orders"]
    assert "no topic 'orders'" in await refused(visitor, "delete-topic", topic="orders")


async def test_a_purge_deletes_what_was_shown_and_keeps_newer_records(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders", 2)
    for partition in (0, 0, 0, 1):
        await visitor.post("/api/do/produce-record", {"topic": "orders", "partition": partition, "value": "old"})
    first = await planned(visitor, "purge-topic", topic="orders", before="2", partitions=[0])
    assert first["changes"] == ["orders-0: offsets 0 to 1 are deleted (2)."]
    found = await planned(visitor, "purge-topic", topic="orders")
    assert found["exact"] == {"keep": {"0": 3, "1": 1}}
    assert [each["start_offset"] for each in (await visitor.facts("topic", topic="orders"))["partitions"]] == [0, 0]
    await visitor.post("/api/do/produce-record", {"topic": "orders", "partition": 1, "value": "new"})
    assert "nothing was deleted" in await refused(visitor, "purge-topic", topic="orders", dry_run=False)
    text = await done(visitor, "purge-topic", topic="orders", typed="orders", **found["exact"])
    assert text == "The topic now begins: orders-0 from 3, orders-1 from 1"
    partitions = (await visitor.facts("topic", topic="orders"))["partitions"]
    assert [(each["start_offset"], each["high_watermark"]) for each in partitions] == [(3, 3), (1, 2)]
    assert "ends at offset" in await refused(visitor, "purge-topic", topic="orders", before="99")
    assert "before" in await refused(visitor, "purge-topic", topic="orders", before="yesterday")


async def test_settings_are_checked_shown_changed_and_taken_back(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders")

    async def retention() -> Any:
        settings = (await visitor.facts("topic", topic="orders"))["settings"]
        return next((each["value"], each["is_default"]) for each in settings if each["name"] == "retention.ms")

    body = {"topic": "orders", "settings": {"retention.ms": "60000"}}
    before = await retention()
    found = await planned(visitor, "alter-topic", **body)
    assert found["changes"] == [f"retention.ms: {before[0]} becomes 60000."]
    assert await retention() == before
    await done(visitor, "alter-topic", **body)
    assert await retention() == ("60000", False)
    back = {"topic": "orders", "unset": ["retention.ms"]}
    assert (await planned(visitor, "alter-topic", **back))["changes"] == ["retention.ms: 60000 becomes its default."]
    await done(visitor, "alter-topic", **back)
    assert await retention() == before
    for wrong, word in (
        ({"settings": {"retention.ms": "soon"}}, "retention.ms"),
        ({"settings": {"retention.sm": "1"}}, "retention.sm"),
        ({"unset": ["retention.sm"]}, "retention.sm"),
        ({"settings": {"retention.ms": "1"}, "unset": ["retention.ms"]}, "both"),
        ({}, "nothing to change"),
    ):
        assert word in await refused(visitor, "alter-topic", topic="orders", **wrong)


async def test_partitions_are_added_and_never_removed(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    semel_broker.create_topic("orders", 2)
    found = await planned(visitor, "add-partitions", topic="orders", total=5)
    assert found["changes"] == ["orders has 2 partitions, and gets 3 more."]
    assert len((await visitor.facts("topic", topic="orders"))["partitions"]) == 2
    assert await done(visitor, "add-partitions", topic="orders", total=5) == "orders has 5 partitions"
    assert len((await visitor.facts("topic", topic="orders"))["partitions"]) == 5
    for total in (5, 1, 0):
        assert "partition" in (await refused(visitor, "add-partitions", topic="orders", total=total)).lower()


async def test_a_group_is_deleted_unless_it_has_members(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    consumer = await read_some(semel_broker.bootstrap_servers, "stock")
    assert "Stop them first" in (await planned(visitor, "delete-group", group="stock"))["notes"][-1]
    said = await refused(visitor, "delete-group", group="stock", dry_run=False, typed="stock")
    assert "members" in said
    await consumer.stop()
    found = await planned(visitor, "delete-group", group="billing")
    assert "orders-0 (4)" in found["changes"][1]
    assert "typed" in await refused(visitor, "delete-group", group="billing", dry_run=False, typed="stock")
    assert await done(visitor, "delete-group", group="billing", typed="billing") == "billing is deleted"
    assert "billing" not in [each["group"] for each in (await visitor.facts("groups"))["groups"]]
    assert "group" in (await refused(visitor, "delete-group", group="billing")).lower()


@MARKER
@pytest.mark.semel_only("users of its own")
async def test_entries_are_added_and_removed_one_by_one(semel_broker: EphemeralBroker) -> None:
    await two_topics(semel_broker)
    body = {**BODIES["add-acl"], "operations": ["read", "describe configs"]}
    async with seen_by(semel_broker, "test") as visitor:

        async def operations() -> list[str]:
            return [each["operation"] for each in (await visitor.facts("access"))["acls"]["rows"]]

        found = await planned(visitor, "add-acl", **body)
        assert found["changes"][0] == "Added: ALLOW READ on TOPIC 'orders' to User:bob from *."
        assert await operations() == []
        assert await done(visitor, "add-acl", **body) == "2 entries added"
        assert "already" in (await planned(visitor, "add-acl", **body))["notes"][0]
        one = {**body, "operations": ["READ"]}
        assert len((await planned(visitor, "remove-acl", **one))["changes"]) == 1
        assert "typed" in await refused(visitor, "remove-acl", **one, dry_run=False)
        assert await done(visitor, "remove-acl", **one, typed="User:bob") == "1 entry removed"
        assert await operations() == ["describe configs"]
        assert "no such entry" in await refused(visitor, "remove-acl", **one)
        for wrong, words in (
            ({"operations": ["fly"]}, "describe configs"),
            ({"operations": []}, "name an operation"),
            ({"operations": ["idempotent write"]}, "on a topic"),
            ({"resource_type": "planet"}, "transactional id"),
            ({"pattern": "match"}, "prefixed"),
            ({"permission": "any"}, "allow, deny"),
            ({"principal": "bob"}, "bob"),
        ):
            assert words in await refused(visitor, "add-acl", **{**body, **wrong, "dry_run": False})


@MARKER
@pytest.mark.semel_only("users of its own")
async def test_users_are_created_get_new_passwords_and_are_deleted(semel_broker: EphemeralBroker) -> None:
    async def log_in(password: str) -> None:
        settings = {**semel_broker.client_settings(), "sasl_plain_username": "bob", "sasl_plain_password": password}
        async with Admin(**settings) as admin:
            await admin.describe_cluster()

    async with seen_by(semel_broker, "test") as visitor:
        body = {"user": "bob", "password": SECRET}
        assert "SCRAM-SHA-512" in (await planned(visitor, "create-user", **body))["changes"][0]
        assert "no user" in await refused(visitor, "change-password", **body)
        assert "is empty" in await refused(visitor, "create-user", user="bob")
        assert "is created" in await done(visitor, "create-user", **body)
        assert "exists already" in await refused(visitor, "create-user", **body)
        await log_in(SECRET)
        newer = {"user": "bob", "password": f"{SECRET} staple"}
        await planned(visitor, "change-password", **newer)
        await log_in(SECRET)
        await done(visitor, "change-password", **newer)
        with pytest.raises(SaslAuthenticationFailed):
            await log_in(SECRET)
        await log_in(newer["password"])
        assert "entries" in (await planned(visitor, "delete-user", user="bob"))["notes"][0]
        assert "typed" in await refused(visitor, "delete-user", user="bob", dry_run=False)
        assert "is deleted" in await done(visitor, "delete-user", user="bob", typed="bob")
        assert [each["user"] for each in (await visitor.facts("access"))["users"]["rows"]] == ["test"]


async def test_quotas_are_set_and_removed_of_names_and_of_defaults(visitor: Visitor) -> None:
    for entity, words in (
        ({"user": "alice"}, "user alice"),
        ({"user": None, "client-id": "etl"}, "user <default>, client-id etl"),
    ):
        body = {"entity": entity, "quotas": {"producer_byte_rate": 1_000_000.0}}
        found = await planned(visitor, "alter-quotas", **body)
        assert found["changes"] == [f"{words}: producer_byte_rate = no quota becomes 1,000,000."]
        assert (await visitor.facts("access"))["quotas"]["rows"] == []
        await done(visitor, "alter-quotas", **body)
        assert (await visitor.facts("access"))["quotas"]["rows"] == [
            {"entity": words, "parts": entity, "quotas": {"producer_byte_rate": 1_000_000.0}}
        ]
        gone = {"entity": entity, "quotas": {"producer_byte_rate": None}}
        assert "no quota" in (await planned(visitor, "alter-quotas", **gone))["changes"][0]
        assert "typed" in await refused(visitor, "alter-quotas", **gone, dry_run=False)
        await done(visitor, "alter-quotas", **gone, typed=words)
        assert (await visitor.facts("access"))["quotas"]["rows"] == []
    for wrong, word in (
        ({"entity": {"planet": "mars"}}, "planet"),
        ({"entity": {}}, "name a user"),
        ({"quotas": {}}, "a quota"),
        ({"quotas": {"connection_creation_rate": 1}}, "there is no quota"),
        ({"quotas": {"producer_byte_rate": -1}}, "producer_byte_rate"),
    ):
        assert word in await refused(visitor, "alter-quotas", **{**BODIES["alter-quotas"], **wrong})


@MARKER
@pytest.mark.semel_only("users of its own")
async def test_a_principal_without_rights_is_refused_with_the_brokers_words(semel_broker: EphemeralBroker) -> None:
    await two_topics(semel_broker)
    async with seen_by(semel_broker, VIEWER) as visitor:
        for name in ("add-acl", "create-user", "alter-quotas", "delete-topic", "add-partitions", "delete-group"):
            answer = await visitor.post(f"/api/do/{name}", {**BODIES[name], "dry_run": False})
            assert answer.status in (400, 403, 404), (name, answer.body)
            assert SECRET.encode() not in answer.body


@pytest.mark.semel_only("an audit log")
async def test_each_change_has_its_line_in_the_audit_log_and_no_line_has_a_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.log"
    settings = {"audit.log.file": str(log), "audit.log.allowed": "admin"}
    rights = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    broker = BrokerProcess(tmp_path / "data", **settings, **rights)
    await asyncio.to_thread(broker.start)
    client = ClientSettings({"bootstrap_servers": broker.address}, {})
    link = ClusterLink(lambda: client.admin({**SETTINGS, "client_id": "semel-console"}, quiet=True))
    visitor = Visitor(link, ConsoleGuard(may_write=True))
    await visitor.enter()
    for name in ("create-topic", "alter-topic", "add-partitions", "purge-topic", "delete-topic", "add-acl"):
        body = {**BODIES[name], **({} if name == "create-topic" else {"dry_run": False})}
        body |= {"keep": {"0": 0}} if name == "purge-topic" else {}
        assert (await visitor.post(f"/api/do/{name}", body)).status == 200
    for name in ("remove-acl", "alter-quotas", "create-user", "change-password", "delete-user"):
        more = {"typed": "User:bob"} if name == "remove-acl" else {}
        await done(visitor, name, **BODIES[name], **more)
    await link.close()
    await asyncio.to_thread(broker.stop)
    lines = [json.loads(each) for each in log.read_text().splitlines()]
    ours = [(each["api"], each["principal"]) for each in lines if each["client_id"] == "semel-console"]
    assert set(ours) >= {
        ("CreateTopics", "User:ANONYMOUS"),
        ("IncrementalAlterConfigs", "User:ANONYMOUS"),
        ("CreatePartitions", "User:ANONYMOUS"),
        ("DeleteRecords", "User:ANONYMOUS"),
        ("DeleteTopics", "User:ANONYMOUS"),
        ("CreateAcls", "User:ANONYMOUS"),
        ("DeleteAcls", "User:ANONYMOUS"),
        ("AlterClientQuotas", "User:ANONYMOUS"),
        ("AlterUserScramCredentials", "User:ANONYMOUS"),
    }
    assert "retention.ms" in log.read_text()
    assert "60000" not in log.read_text()
    assert SECRET not in log.read_text() + "".join(capfd.readouterr()) + "".join(broker.log)
