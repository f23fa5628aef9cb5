"""Records of all partitions in the order of time, with filters: pages, bounds, and what stays exact."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from console.shop import keep_open, open_shop
from console.visitor import Visitor
from semel import Producer
from semel.errors import CorruptRecordException
from semel_broker.node import Node
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.facts import records as recording
from semel_console.facts import search as searching
from semel_protocol.batch import read_header
from semel_protocol.records import Record, build_batch, rebuild_batch

pytestmark = pytest.mark.real_time
NOW = 1_764_364_800_000
Row = tuple[int, int]


def store(broker: EphemeralBroker, topic: str, partition: int, *times: int, value: bytes = b"v", gap: int = 0) -> None:
    """One batch whose records have these timestamps. gap: the number of offsets between two, as after compaction."""

    async def append(node: Node) -> None:
        stored = node.broker.topics.partition(topic, partition)
        step = gap + 1
        records = [Record(at * step, time, b"k%d" % at, value) for at, time in enumerate(times)]
        batch = build_batch(records)
        if gap:
            whole = build_batch([Record(0, times[0], None, b"")] * (step * (len(times) - 1) + 1))
            batch = rebuild_batch(read_header(whole), records)
        stored.append(batch, header=read_header(batch))

    broker.call(append)


def places(found: dict[str, Any]) -> list[Row]:
    return [(row["partition"], row["offset"]) for row in found["records"]]


async def every_page(visitor: Visitor, limit: int, **query: object) -> list[list[Row]]:
    """All pages from a place on, each as its partitions and offsets."""
    pages = []
    cursor: dict[str, object] = {}
    while True:
        found = await visitor.facts("search", limit=limit, **query, **cursor)
        pages.append(places(found))
        cursor = {"cursor": found["cursor"]}
        if found["done"]:
            return pages
        assert len(pages) < 500, "it does not end"


async def test_all_partitions_are_one_list_in_the_order_of_time(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders", 3)
    store(semel_broker, "orders", 0, NOW, NOW + 30, NOW + 60)
    store(semel_broker, "orders", 1, NOW + 10, NOW + 30)
    store(semel_broker, "orders", 2, NOW + 20, NOW + 30, NOW + 70)
    in_order = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2), (2, 2)]
    for limit in (1, 2, 3, 8, 100):
        newest = await every_page(visitor, limit, topic="orders")
        assert [each for page in newest for each in page] == in_order[::-1]
        assert all(len(page) <= limit for page in newest)
        oldest = await every_page(visitor, limit, topic="orders", order="oldest")
        assert [each for page in oldest for each in page] == in_order
    one = await visitor.facts("search", topic="orders", partition=2)
    assert places(one) == [(2, 2), (2, 1), (2, 0)]


async def test_a_page_back_shows_what_was_before(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    semel_broker.create_topic("orders", 2)
    store(semel_broker, "orders", 0, *range(NOW, NOW + 100, 10))
    store(semel_broker, "orders", 1, *range(NOW + 5, NOW + 105, 10))
    first = await visitor.facts("search", topic="orders", limit=4)
    second = await visitor.facts("search", topic="orders", limit=4, cursor=first["cursor"])
    again = await visitor.facts("search", topic="orders", limit=4, cursor=second["back"])
    assert again["order"] == "oldest"
    assert places(again)[::-1] == places(first)
    store(semel_broker, "orders", 1, NOW + 500)
    news = await visitor.facts("search", topic="orders", cursor=first["back"])
    assert places(news) == [(1, 10)]
    assert news["done"]


async def test_records_out_of_order_and_without_a_time_hold_no_other_back(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders", 3)
    store(semel_broker, "orders", 0, NOW, NOW + 100, NOW + 200, 5)  # the last one has a wrong clock
    store(semel_broker, "orders", 1, NOW + 50, -1, NOW + 150)
    store(semel_broker, "orders", 2, -1, -1)
    first = await visitor.facts("search", topic="orders", limit=3)
    assert (0, 2) in places(first)
    shown = places(await visitor.facts("search", topic="orders"))
    assert shown == [(0, 2), (1, 2), (0, 1), (1, 1), (1, 0), (0, 0), (0, 3), (2, 1), (2, 0)]
    for order in ("newest", "oldest"):
        for limit in (1, 2, 4):
            pages = await every_page(visitor, limit, topic="orders", order=order)
            assert sorted(each for page in pages for each in page) == sorted(shown)


async def test_each_record_has_its_outcome_and_markers_are_rows(
    semel_broker: EphemeralBroker, visitor: Visitor
) -> None:
    await open_shop(semel_broker.bootstrap_servers)
    producer = await keep_open(semel_broker.bootstrap_servers)
    known = await visitor.facts("records", topic="orders", partition=0, **{"from": "earliest"}, limit=500)
    wanted = {row["offset"]: (row["outcome"], row["marker"], row["transactional_id"]) for row in known["records"]}
    for order in ("newest", "oldest"):
        cursor: dict[str, object] = {}
        got = {}
        done = False
        while not done:
            found = await visitor.facts("search", topic="orders", order=order, limit=7, **cursor)
            cursor, done = {"cursor": found["cursor"]}, found["done"]
            got.update({r["offset"]: (r["outcome"], r["marker"], r["transactional_id"]) for r in found["records"]})
        assert got == wanted
    await producer.stop()


async def test_a_time_and_an_offset_are_places(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    semel_broker.create_topic("orders", 2)
    store(semel_broker, "orders", 0, NOW, NOW + 2_000, NOW + 4_000)
    store(semel_broker, "orders", 1, NOW + 1_000, NOW + 3_000)
    at = "2025-11-28T21:20:02+00:00"  # NOW + 2 s
    after = await visitor.facts("search", topic="orders", order="oldest", **{"from": at})
    assert places(after) == [(0, 1), (1, 1), (0, 2)]
    before = await visitor.facts("search", topic="orders", order="newest", **{"from": at})
    assert places(before) == [(1, 0), (0, 0)]
    offset = await visitor.facts("search", topic="orders", partition=0, order="oldest", **{"from": "1"})
    assert places(offset) == [(0, 1), (0, 2)]
    wrong = await visitor.get("/api/facts/search?topic=orders&from=1")
    assert (wrong.status, "choose the partition" in wrong.error) == (400, True)
    assert (await visitor.get("/api/facts/search?topic=nosuch")).status == 404
    assert "There is no partition 2" in (await visitor.get("/api/facts/search?topic=orders&partition=2")).error
    for given in ("cursor=x", "cursor=newest", "cursor=newest_0", "order=up", "pat=$.a"):
        assert (await visitor.get(f"/api/facts/search?topic=orders&{given}")).status == 400, given


async def test_a_search_is_bounded_and_continued(
    semel_broker: EphemeralBroker, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    semel_broker.create_topic("orders", 2)
    for number in range(40):
        for partition in (0, 1):
            value = b'{"hit": %s}' % (b"true" if (partition, number) in ((1, 30), (0, 3)) else b"false")
            store(semel_broker, "orders", partition, NOW + 2 * number + partition, value=value)
    monkeypatch.setattr(searching, "SEARCH_BYTES", 200)
    monkeypatch.setattr(searching, "FILTERED_OFFSETS", 4)
    monkeypatch.setattr(searching, "OFFSETS_MAX", 4)
    monkeypatch.setattr(searching, "FETCH_BYTES_MAX", 200)
    for order, wanted in (("newest", [(1, 30), (0, 3)]), ("oldest", [(0, 3), (1, 30)])):
        rows: list[Row] = []
        cursor: dict[str, object] = {}
        reached, requests, looked = [], 0, 0
        done = False
        while not done:
            found = await visitor.facts("search", topic="orders", order=order, path="$.hit == true", **cursor)
            cursor, done = {"cursor": found["cursor"]}, found["done"]
            rows += places(found)
            looked += found["looked"]
            if found["reached_ms"] is not None:
                reached.append(found["reached_ms"])
            requests += 1
            assert requests < 300
        assert requests > 5
        assert rows == wanted
        assert looked >= 80
        assert reached == sorted(reached, reverse=order == "newest")


async def test_large_batches_and_records_are_read_within_bounds(
    semel_broker: EphemeralBroker, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    semel_broker.create_topic("orders", 1)
    for number in range(6):
        store(semel_broker, "orders", 0, *(NOW + 10 * number + at for at in range(10)), value=b"x" * 5_000)
    monkeypatch.setattr(searching, "PIECE_BYTES", 60_000)
    pages = await every_page(visitor, 25, topic="orders")
    assert [offset for page in pages for _, offset in page] == list(range(59, -1, -1))


async def test_filters_select_by_key_header_text_and_path(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    semel_broker.create_topic("orders", 2)
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        for number in range(30):
            await producer.send_and_wait(
                "orders",
                b'{"order": {"id": %d, "price": 1.10}, "tags": ["t%d"]}' % (number, number % 3),
                key=b"customer-%d" % number,
                partition=number % 2,
                headers=[("trace", b"%x" % number), ("kind", None)],
            )
        await producer.send_and_wait("orders", b"not json, 4", key=b"customer-1 ", partition=0)

    async def keys(**query: object) -> list[bytes]:
        return [b64decode(row["key"]) for row in (await visitor.facts("search", topic="orders", **query))["records"]]

    assert await keys(key="customer-1") == [b"customer-1"]
    assert await keys(path="$.order.id == 4") == [b"customer-4"]
    assert await keys(path="$.order.id >= 28 and $.tags[*] == 't1'") == [b"customer-28"]
    assert await keys(header="trace=1d") == [b"customer-29"]
    assert len(await keys(header="kind")) == 30
    assert await keys(header="trace=1d", path="$.order.id == 4") == []
    assert await keys(contains="not json") == [b"customer-1 "]
    wrong = await visitor.get("/api/facts/search?topic=orders&path=$.order.id%20=%204")
    assert wrong.status == 400
    assert "expected an operator" in wrong.error
    # an export and the older page have them, too
    export = await visitor.get("/api/export?topic=orders&partition=0&path=$.order.id%20==%204")
    assert export.body.count(b"\n") == 1
    found = await visitor.facts("records", topic="orders", partition=0, key="customer-4", **{"from": "0"})
    assert len(found["records"]) == 1


async def test_offsets_that_compaction_has_emptied_are_passed(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    semel_broker.create_topic("orders", 2)
    for number in range(3):
        store(semel_broker, "orders", 0, *(NOW + 100 * number + at for at in range(3)), gap=4_999)
    store(semel_broker, "orders", 1, NOW + 150)
    firsts = [0, 10_001, 20_002]
    offsets = [(0, first + 5_000 * at) for first in firsts for at in range(3)]
    in_order = [*offsets[:6], (1, 0), *offsets[6:]]
    for limit in (1, 4, 100):
        for order, wanted in (("newest", in_order[::-1]), ("oldest", in_order)):
            pages = await every_page(visitor, limit, topic="orders", order=order)
            assert [each for page in pages for each in page] == wanted


async def test_a_damaged_partition_is_named_and_the_others_are_shown(
    semel_broker: EphemeralBroker, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    semel_broker.create_topic("orders", 2)
    store(semel_broker, "orders", 0, NOW)
    store(semel_broker, "orders", 1, NOW)
    run = searching.Lookup.run

    async def damaged(self: Any, admin: Any, start: int, *rest: Any, **options: Any) -> None:
        if self._place.partition == 1:
            raise CorruptRecordException("orders-1 at offset 0: the checksum is wrong")
        await run(self, admin, start, *rest, **options)

    monkeypatch.setattr(searching.Lookup, "run", damaged)
    found = await visitor.facts("search", topic="orders")
    assert (places(found), found["done"]) == ([(0, 0)], True)
    (problem,) = found["problems"]
    assert "orders-1 at offset 0: the checksum is wrong" in problem


async def test_a_marker_ends_a_transaction_also_with_a_filter(semel_broker: EphemeralBroker, visitor: Visitor) -> None:
    semel_broker.create_topic("orders", 1)
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers, transactional_id="late") as late:
        await late.begin_transaction()
        await late.send_and_wait("orders", b"half", partition=0)
        (row,) = (first := await visitor.facts("search", topic="orders", contains="half"))["records"]
        assert row["outcome"] == "open"
        await late.abort_transaction()
    news = await visitor.facts("search", topic="orders", contains="half", cursor=first["back"])
    assert news["records"] == []
    assert [(each["producer_id"], each["outcome"]) for each in news["ended"]] == [(row["producer_id"], "aborted")]


async def test_the_newest_records_far_above_an_open_transaction_have_their_outcome(
    semel_broker: EphemeralBroker, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    semel_broker.create_topic("orders", 1)
    producer = await keep_open(semel_broker.bootstrap_servers)
    store(semel_broker, "orders", 0, *(NOW + at for at in range(40)))
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers, transactional_id="late") as late:
        async with late.transaction():
            await late.send_and_wait("orders", b"sold", partition=0)
        await late.begin_transaction()
        await late.send_and_wait("orders", b"half", partition=0)
        monkeypatch.setattr(recording, "LOOK_AHEAD", 20)
        found = await visitor.facts("search", topic="orders", limit=4)
        assert found["partitions"] == [[0, 0, 0, 44]]
        assert [row["outcome"] for row in found["records"]] == ["open", "committed", "committed", "plain"]
        first = await visitor.facts("search", topic="orders", partition=0, order="oldest", limit=1)
        assert first["records"][0]["outcome"] == "unknown"  # its marker may be further than 20 offsets
        await late.abort_transaction()
    await producer.stop()
