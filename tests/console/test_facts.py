"""The facts of the pages, of a shop on a broker in this process."""

from __future__ import annotations

import asyncio
from base64 import b64decode

import pytest
from console.conftest import opened
from console.shop import HANGING_ID, HOSTILE, hang, keep_open, open_shop, read_some, sell
from console.visitor import Visitor
from semel import Producer, TransactionGroup
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.guard import ConsoleGuard
from semel_console.link import ClusterLink
from semel_console.watch import events as watched_events
from support.against import OutsideBroker

pytestmark = pytest.mark.real_time


async def test_an_empty_cluster_is_shown(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    shown = await visitor.facts("overview")
    assert shown["health"]["verdict"] == "healthy"
    assert shown["held_back"] == shown["holders"] == []
    assert [each for each in (await visitor.facts("topics"))["topics"] if not each["internal"]] == []
    assert (await visitor.facts("groups"))["groups"] == []
    if not isinstance(semel_broker, OutsideBroker):  # transactional ids stay there
        assert (await visitor.facts("transactions"))["transactions"] == []
    broker = shown["health"]["brokers"][0]["id"]
    settings = (await visitor.facts("broker", broker=broker))["settings"]
    assert any(each["name"] == "log.retention.ms" or each["documentation"] for each in settings)


async def test_topics_and_partitions(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    hang(semel_broker)
    rows = {row["topic"]: row for row in (await visitor.facts("topics"))["topics"]}
    assert (rows["orders"]["partitions"], rows["orders"]["state"]) == (2, "ok")
    assert rows["orders"]["held_back"] == 1
    assert rows["orders"]["size_bytes"] > 1_000
    assert rows["__transaction_state"]["internal"]
    orders = await visitor.facts("topic", topic="orders")
    first = orders["partitions"][0]
    assert first["high_watermark"] - first["last_stable_offset"] == 1
    assert first["size_bytes"] == rows["orders"]["size_bytes"]  # the other partition is empty
    assert list(first["sizes"].values()) == [first["size_bytes"]]
    overview = await visitor.facts("overview")
    assert sum(overview["broker_bytes"].values()) >= first["size_bytes"]
    assert orders["settings_problem"] is None
    assert orders["settings"]
    missing = await visitor.get("/api/facts/topic?topic=nosuch")
    assert missing.status == 404


async def test_records_have_the_outcome_of_their_transaction(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    address = semel_broker.bootstrap_servers
    await open_shop(address)
    producer = await keep_open(address)
    shown = await visitor.facts("records", topic="orders", partition=0, **{"from": "earliest"}, limit=500)
    rows = shown["records"]
    assert [row["offset"] for row in rows] == list(range(shown["high_watermark"]))
    assert shown["next_offset"] == shown["high_watermark"] == shown["last_stable_offset"] + 1
    assert {row["outcome"] for row in rows if row["marker"]} == {"committed", "aborted"}
    assert rows[-1]["outcome"] == "open"
    assert rows[-1]["transactional_id"] == "returns"
    by_id = {}
    for row in rows:
        if not row["marker"]:
            by_id.setdefault((row["transactional_id"], row["outcome"]), []).append(row)
    assert len(by_id["shop", "aborted"]) == 3  # sale 5 has three lines
    assert [b64decode(row["value"]) for row in by_id["dispatch", "aborted"]] == [b"half a parcel"]
    # a record's outcome is that of the next marker of its producer
    for index, row in enumerate(rows):
        ahead = [each for each in rows[index:] if each["marker"] and each["producer_id"] == row["producer_id"]]
        assert row["outcome"] == (ahead[0]["outcome"] if ahead else "open")
    await producer.stop()


async def test_outcomes_above_the_last_stable_offset_come_from_markers(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders", 2)
    hang(semel_broker)  # at offset 0: everything after it is above the last stable offset
    await _open_shop_on(semel_broker)
    shown = await visitor.facts("records", topic="orders", partition=0, **{"from": "earliest"}, limit=500)
    assert shown["last_stable_offset"] == 0
    outcomes = [row["outcome"] for row in shown["records"]]
    assert outcomes[0] == "open"
    assert set(outcomes[1:]) == {"committed", "aborted"}


async def _open_shop_on(broker: EphemeralBroker) -> None:
    """As `open_shop`, on the topic that exists."""
    broker.create_topic("payments")
    async with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="shop") as shop:
        for number in range(4):
            await sell(shop, number, commit=number % 2 == 0)


async def test_records_are_found_by_position_and_text(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    await open_shop(semel_broker.bootstrap_servers)

    async def offsets(**query: object) -> list[int]:
        found = await visitor.facts("records", topic="orders", partition=0, **query)
        return [row["offset"] for row in found["records"]]

    high = (await visitor.facts("ends", topic="orders", partition=0))["high_watermark"]
    assert await offsets(**{"from": "10"}, limit=3) == [10, 11, 12]
    every = await visitor.facts("records", topic="orders", partition=0, **{"from": "earliest"}, limit=500)
    are_markers = {row["offset"]: row["marker"] for row in every["records"]}
    for count in (1, 5, 12):
        first = [offset for offset, is_marker in are_markers.items() if not is_marker][-count]
        assert await offsets(**{"from": f"-{count}"}) == list(range(first, high)), "markers do not count"
        assert await offsets(**{"from": f"-{count}"}, limit=count) == list(range(first, high)), "nor for the limit"
    assert await offsets(**{"from": "-9999"}, limit=500) == list(range(high))
    assert await offsets(**{"from": "-0"}) == []
    assert await offsets(**{"from": "latest"}) == []
    assert await offsets(**{"from": "-1h"}, limit=2) == [0, 1]
    found = await visitor.facts("records", topic="orders", partition=0, **{"from": "0"}, contains="half a parcel")
    assert [b64decode(row["value"]) for row in found["records"]] == [b"half a parcel"]
    assert found["next_offset"] == high
    wrong = await visitor.get("/api/facts/records?topic=orders&partition=0&from=yesterday")
    assert wrong.status == 400
    assert "yesterday" in wrong.error
    assert (await visitor.get("/api/facts/records?topic=orders&partition=x")).status == 400


async def test_bytes_and_nulls_arrive_as_they_are(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    rows = (await visitor.facts("records", topic="notes", partition=0, **{"from": "earliest"}))["records"]
    assert b64decode(rows[0]["value"]) == HOSTILE.encode()
    assert rows[0]["headers"][0][0] == HOSTILE
    assert rows[0]["headers"][1] == ["trace", None]
    assert rows[1]["key"] is None
    assert rows[1]["key_size"] == -1
    assert b64decode(rows[1]["value"]) == bytes(range(256))
    assert rows[2]["value_size"] == 20_000
    assert len(b64decode(rows[2]["value"])) < 20_000
    (whole,) = (await visitor.facts("records", topic="notes", partition=0, **{"from": "2"}, limit=1))["records"]
    assert len(b64decode(whole["value"])) == 20_000
    assert rows[4]["value"] is None
    assert rows[4]["outcome"] == "plain"


async def test_the_timeline_has_each_transaction_fence_and_holder(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    hang(semel_broker)
    shown = await visitor.facts("timeline", topic="orders", partition=0)
    columns, outcomes = shown["columns"], shown["outcomes"]
    assert len({len(each) for each in columns.values()}) == 1
    ids = [each["transactional_id"] for each in shown["producers"]]
    rows = [(ids[at], outcomes[kind]) for at, kind in zip(columns["producer"], columns["outcome"], strict=True)]
    assert rows.count(("shop", "committed")) == 7
    assert rows.count(("shop", "aborted")) == 1
    assert rows.count(("till", "aborted")) == 2
    assert rows.count(("dispatch", "aborted")) == 1
    assert rows[-1] == (None, "open")
    ends = zip(columns["last"], columns["marker"], columns["records"], strict=True)
    assert all(last < marker for last, marker, count in ends if marker >= 0 and count)
    if isinstance(semel_broker, OutsideBroker):
        assert "keeps no fence ledger" in shown["no_ledger"]
        assert shown["fences"] == []
    else:
        assert shown["no_ledger"] is None
        (fence,) = [each for each in shown["fences"] if each["reason"] == "new_instance"]
        assert fence["transactional_id"] == "dispatch"
        assert "dispatch-new" in fence["by"]
    (holder,) = shown["holders"]
    assert (holder["verdict"], holder["producer_id"]) == ("hanging", str(HANGING_ID))
    assert any("semel txn abort" in text for _, text in holder["sentences"])
    # what is new since an offset is the end of the same list
    since = shown["last_stable_offset"]
    news = await visitor.facts("timeline", topic="orders", partition=0, since=since)
    assert news["columns"]["first"] == [each for each in columns["first"] if each >= since]


@pytest.mark.semel_only("no fence ledger")
async def test_transactions_and_the_ledger_of_one(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    address = semel_broker.bootstrap_servers
    await open_shop(address)
    producer = await keep_open(address)
    listed = await visitor.facts("transactions")
    rows = {row["transactional_id"]: row for row in listed["transactions"]}
    assert rows["returns"]["state"] == "Ongoing"
    assert rows["dispatch"]["last_fence"]["reason"] == "new_instance"
    assert HOSTILE in rows
    assert [each["transactional_id"] for each in listed["holders"]] == ["returns"]
    dispatch = await visitor.facts("transaction", id="dispatch")
    assert any("dispatch-new" in str(each["by"]) for each in dispatch["fences"])
    returns = await visitor.facts("transaction", id="returns")
    assert returns["is_open"]
    assert returns["first_offsets"][0]["topic"] == "orders"
    assert (await visitor.get("/api/facts/transaction?id=nosuch")).status == 404
    await producer.stop()


async def test_sinks_have_their_committed_step_and_members(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    address = semel_broker.bootstrap_servers
    if isinstance(semel_broker, OutsideBroker):
        assert "no transaction groups" in (await visitor.facts("sinks"))["problem"]
        return
    semel_broker.create_topic("sums")
    async with TransactionGroup("by-day", bootstrap_servers=address, owner="query 7") as group:
        step = await group.begin()
        async with Producer(
            bootstrap_servers=address, transactional_id="by-day/task-0", transaction_group_step=step
        ) as producer:
            await producer.begin_transaction()
            await producer.send("sums", b"one")
            prepared = await producer.prepare_transaction()
            assert prepared is not None
            await group.commit(step, "batch 41", [prepared])
            (shown,) = (await visitor.facts("sinks"))["groups"]
    assert (shown["transaction_group"], shown["owner"], shown["committed_token"]) == ("by-day", "query 7", "batch 41")
    assert [each["transactional_id"] for each in shown["members"]] == ["by-day/task-0"]


async def test_groups_count_the_records_that_a_reader_gets(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    address = semel_broker.bootstrap_servers
    await open_shop(address)
    hang(semel_broker)
    consumer = await read_some(address, "stock")
    names = [each["group"] for each in (await visitor.facts("groups"))["groups"]]
    assert names == sorted([HOSTILE, "billing", "stock"])
    billing = await visitor.facts("group", group="billing")
    at = billing["partitions"][0]
    shown = await visitor.facts("records", topic="orders", partition=0, **{"from": "4"}, limit=500)
    readable = [row for row in shown["records"] if row["outcome"] == "committed" and not row["marker"]]
    assert at["records_ahead"] == len(readable)
    assert at["lag"] > at["records_ahead"]
    stock = await visitor.facts("group", group="stock")
    assert stock["list"][0]["client_id"] == "reader-1"
    assert any("it has no members" in line for line in billing["reasons"])
    assert (await visitor.get("/api/facts/group?group=nosuch")).status == 404
    await consumer.stop()


async def test_a_topic_names_the_groups_that_read_it_those_with_most_lag_first(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    consumer = await read_some(semel_broker.bootstrap_servers, "stock")
    groups = (await visitor.facts("readers", topic="orders"))["groups"]
    assert sorted(each["group"] for each in groups) == ["billing", "stock"]
    by_name = {each["group"]: each for each in groups}
    assert (by_name["billing"]["committed"], by_name["billing"]["members"]) == (1, 0)
    assert by_name["stock"]["members"] == 1
    assert [each["lag"] for each in groups] == sorted((each["lag"] for each in groups), reverse=True)
    assert (await visitor.facts("readers", topic="payments"))["groups"] == []
    await consumer.stop()


@pytest.mark.semel_only("the broker is killed")
async def test_the_overview_knocks_at_brokers_and_shows_a_dead_one(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    async with visitor.watching("overview") as events:
        while (shown := await anext(events))[0] != "facts":
            pass
        node_id = str(shown[1]["health"]["brokers"][0]["id"])
        await asyncio.to_thread(semel_broker.kill)
        while (shown := await anext(events))[0] != "knock" or not shown[1]["silent"]:
            pass
        assert "connect" in shown[1]["silent"][node_id]


async def test_a_knock_is_not_kept_waiting_by_facts_and_a_bug_is_not_hidden() -> None:
    asked, ending = asyncio.Event(), asyncio.Event()

    async def never() -> object:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def knock() -> object:
        await asked.wait()
        return {"silent": {}}

    waiting = watched_events(never, 0.01, ending, knock)
    assert await anext(waiting) == b'event: knock\ndata: {"silent":{}}\n\n'
    assert await anext(waiting) == b": same\n\n"
    await waiting.aclose()

    async def wrong() -> object:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await anext(watched_events(wrong, 0.01, ending))


async def test_parts_that_the_broker_does_not_serve_are_sentences(visitor: Visitor) -> None:
    access = await visitor.facts("access")
    assert "authorizer" in access["acls"]["problem"].lower()
    assert access["users"] == {"rows": [], "problem": None}


@pytest.mark.semel_only("the broker is stopped")
async def test_a_watched_page_follows_and_survives_the_brokers_death(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    async with visitor.watching("topics") as events:
        name, shown_first = await anext(events)
        assert (name, shown_first["topics"]) == ("facts", [])
        semel_broker.create_topic("orders")
        while (shown := await anext(events))[1]["topics"] == []:
            pass
        assert shown[1]["topics"][0]["topic"] == "orders"
        await asyncio.to_thread(semel_broker.stop)
        while (shown := await anext(events))[0] != "trouble":
            pass
        assert shown[1]["text"]
        await asyncio.to_thread(semel_broker.start)
        while (shown := await anext(events))[0] != "facts":
            pass


async def test_a_console_starts_before_its_broker() -> None:
    broker = EphemeralBroker()
    broker.start()
    address = broker.bootstrap_servers
    broker.stop()
    link = ClusterLink(opened(lambda: address))
    visitor = Visitor(link, ConsoleGuard())
    await visitor.enter()
    answer = await visitor.get("/api/facts/overview")
    assert answer.status == 503
    assert answer.error.startswith(f"Cannot connect to {address}: ")
    assert answer.error.endswith("The page asks again by itself.")
    assert "-X" not in answer.error  # an option of commands
    await asyncio.to_thread(broker.start)
    assert (await visitor.facts("overview"))["health"]["verdict"] == "healthy"
    await link.close()
    await asyncio.to_thread(broker.stop)
