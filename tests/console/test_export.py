"""Found records as files: JSON lines and CSV, with what the message browser shows and nothing else."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64decode
from typing import Any

import pytest
from console.shop import HOSTILE, keep_open, open_shop
from console.visitor import Visitor
from semel import Producer
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.real_time


async def lines(visitor: Visitor, query: str) -> list[dict[str, Any]]:
    answer = await visitor.get(f"/api/export?{query}")
    assert answer.status == 200, answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


async def test_json_lines_have_each_record_with_its_outcome(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    address = semel_broker.bootstrap_servers
    await open_shop(address)
    producer = await keep_open(address)
    shown = await visitor.facts("records", topic="orders", partition=0, **{"from": "0"}, limit=500)
    wanted = [(row["offset"], row["outcome"]) for row in shown["records"] if not row["marker"]]
    answer = await visitor.get("/api/export?topic=orders&partition=0")
    assert answer.headers["content-disposition"] == 'attachment; filename="orders-0.jsonl"'
    found = await lines(visitor, "topic=orders&partition=0")
    assert [(row["offset"], row["outcome"]) for row in found] == wanted
    assert found[-1]["transactional_id"] == "returns"
    committed = await lines(visitor, "topic=orders&partition=0&committed=1")
    assert [row["offset"] for row in committed] == [offset for offset, outcome in wanted if outcome == "committed"]
    some = await lines(visitor, "topic=orders&partition=0&contains=half+a+parcel")
    assert [row["value"] for row in some] == ["half a parcel"]
    assert len(await lines(visitor, "topic=orders&partition=0&from=3&limit=4")) == 4
    await producer.stop()


async def test_bytes_that_are_no_text_are_base64(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    hostile, binary, long, tombstone, _ = await lines(visitor, "topic=notes&partition=0")
    assert hostile["key"] == hostile["value"] == HOSTILE
    assert hostile["headers"][0]["name"] == hostile["headers"][0]["value"] == HOSTILE
    assert (binary["value"], b64decode(binary["value_base64"])) == (None, bytes(range(256)))
    assert len(long["value"]) == 20_000
    assert (tombstone["key"], tombstone["value"], tombstone["value_base64"]) == ("gone", None, None)


async def test_csv_holds_no_formula(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    semel_broker.create_topic("notes")
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        await producer.send_and_wait("notes", b"=HYPERLINK(1)", key=b'a "b", c\nd', headers=[("h", b"v")])
        await producer.send_and_wait("notes", b"plain", key=None)
    answer = await visitor.get("/api/export?topic=notes&partition=0&format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    first, second = csv.DictReader(io.StringIO(answer.body.decode(), newline=""))
    assert (first["key"], first["value"]) == ('a "b", c\nd', "'=HYPERLINK(1)")
    assert json.loads(first["headers"]) == [{"name": "h", "value": "v", "value_base64": None}]
    assert (second["offset"], second["key"], second["value"]) == ("1", "", "plain")


async def test_wrong_requests_are_sentences(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    wrong = await visitor.get("/api/export?topic=orders&partition=0&format=xml")
    assert (wrong.status, "jsonl or csv" in wrong.error) == (400, True)
    for given in ("form=csv", "FORMAT=csv", "format=", "format=CSV", "format=json", "format=csv&format=xml", "limt=5"):
        answer = await visitor.get(f"/api/export?topic=orders&partition=0&{given}")
        assert answer.status == 400, given
        assert answer.headers["content-type"].startswith("application/json"), given
    misspelt = await visitor.get("/api/export?topic=orders&partition=0&form=csv")
    assert "'form'" in misspelt.error
    assert "format" in misspelt.error
    assert (await visitor.get("/api/export?topic=nosuch&partition=0")).status == 404
    assert (await visitor.get("/api/export?topic=orders")).status == 400
    visitor.cookie = None
    assert (await visitor.get("/api/export?topic=orders&partition=0")).status == 401
