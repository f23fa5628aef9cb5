"""The changes that the page can make, against a broker in this process."""

from __future__ import annotations

import json

import pytest
from console.shop import HANGING_ID, hang, keep_open, open_shop, read_some
from console.visitor import Visitor
from semel.errors import ProducerFenced
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.real_time


async def test_a_topic_is_created_with_its_settings(visitor: Visitor) -> None:
    body = {"name": "orders", "partitions": 3, "settings": {"retention.ms": "60000"}}
    planned = await visitor.post("/api/do/create-topic", {**body, "dry_run": True})
    assert planned.json["changes"] == ["The topic orders is created, with 3 partitions, retention.ms=60000."]
    assert (await visitor.get("/api/facts/topic?topic=orders")).status == 404
    assert (await visitor.post("/api/do/create-topic", {"name": "no/slash", "dry_run": True})).status == 409
    assert (await visitor.post("/api/do/create-topic", body)).status == 200
    orders = await visitor.facts("topic", topic="orders")
    assert len(orders["partitions"]) == 3
    assert {"retention.ms": "60000"}.items() <= {each["name"]: each["value"] for each in orders["settings"]}.items()
    again = await visitor.post("/api/do/create-topic", body)
    assert again.status == 409
    assert "orders" in again.error


async def test_a_record_is_written_with_key_headers_or_as_null(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    semel_broker.create_topic("orders", 2)
    body = {"topic": "orders", "partition": 1, "key": "k", "value": "ü", "headers": {"trace": "7"}}
    assert (await visitor.post("/api/do/produce-record", body)).json == {"text": "written to orders-1 at offset 0"}
    assert (await visitor.post("/api/do/produce-record", {"topic": "orders", "partition": 1})).status == 200
    answer = await visitor.get("/api/export?topic=orders&partition=1")
    first, second = [json.loads(line) for line in answer.body.splitlines()]
    assert (first["key"], first["value"], first["headers"][0]["value"]) == ("k", "ü", "7")
    assert (second["key"], second["value"]) == (None, None)
    wrong = await visitor.post("/api/do/produce-record", {**body, "partition": 9})
    assert wrong.status >= 400
    assert wrong.error


@pytest.mark.semel_only("no fence ledger")
async def test_an_open_transaction_is_aborted_with_the_reason_in_the_ledger(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    producer = await keep_open(semel_broker.bootstrap_servers)
    body = {"transactional_id": "returns", "reason": "the truck is gone"}
    assert (await visitor.post("/api/do/abort-transaction", body)).status == 200
    found = await visitor.facts("transaction", id="returns")
    assert "the truck is gone" in found["fences"][0]["text"]
    again = await visitor.post("/api/do/abort-transaction", body)
    assert again.status == 400
    assert "has no transaction" in again.error
    with pytest.raises(ProducerFenced):
        await producer.commit_transaction()
    await producer.stop()


async def test_a_hanging_transaction_is_ended_and_no_other(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    producer = await keep_open(semel_broker.bootstrap_servers)
    hang(semel_broker)
    holders = {each["verdict"]: each for each in (await visitor.facts("overview"))["holders"]}
    place = {"topic": "orders", "partition": 0}
    known = {**place, "producer_id": holders["ongoing"]["producer_id"]}
    refused = await visitor.post("/api/do/abort-hanging", known)
    assert refused.status == 400
    assert "not hanging" in refused.error
    as_text = {**place, "producer_id": str(HANGING_ID)}  # as the page sends an id that JavaScript cannot hold
    assert (await visitor.post("/api/do/abort-hanging", as_text)).status == 200
    assert [each["verdict"] for each in (await visitor.facts("overview"))["holders"]] == ["ongoing"]
    await producer.abort_transaction()
    await producer.stop()


async def test_offsets_of_a_group_are_set_unless_it_has_members(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    address = semel_broker.bootstrap_servers
    await open_shop(address)
    body = {"group": "billing", "to": "earliest", "names": ["orders:0"]}
    planned = (await visitor.post("/api/do/reset-offsets", body)).json
    assert (planned["changed"], planned["partitions"][0]["next"]) == (0, 0)
    assert (await visitor.facts("group", group="billing"))["partitions"][0]["committed"] == 4
    assert (await visitor.post("/api/do/reset-offsets", {**body, "dry_run": False})).json["changed"] == 1
    assert (await visitor.facts("group", group="billing"))["partitions"][0]["committed"] == 0
    latest = {**body, "to": "latest"}
    shown = (await visitor.post("/api/do/reset-offsets", latest)).json
    await visitor.post("/api/do/produce-record", {"topic": "orders", "partition": 0, "value": "newer"})
    await visitor.post("/api/do/reset-offsets", {**latest, **shown["exact"], "dry_run": False})
    committed = (await visitor.facts("group", group="billing"))["partitions"][0]["committed"]
    assert committed == shown["partitions"][0]["next"]
    consumer = await read_some(address, "stock")
    refused = await visitor.post("/api/do/reset-offsets", {**body, "group": "stock", "dry_run": False})
    assert refused.status == 400
    assert "stop them first" in refused.error
    await consumer.stop()
