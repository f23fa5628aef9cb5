"""The message browser in Chromium: all partitions, filters, pages, addresses of records, copies, live."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from client.registry.fake_registry import FakeRegistry
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from console.browser_page import LIMIT_MS, BrowserPage, chromium, eye_on, why_not
from console.processes import running_console
from console.test_search import NOW, store
from semel import Producer
from semel.registry.avro import AvroSerializer
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.thorough,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
COUNT = 250
BIG = b"y" * 10_000


@pytest.fixture
async def console_page(semel_broker: EphemeralBroker, request: pytest.FixtureRequest) -> AsyncIterator[BrowserPage]:
    """A page of a console over a topic of three partitions, whose records go from one to the next."""
    semel_broker.create_topic("orders", 3)
    for number in range(COUNT):
        value = b'{"order":{"id":%d,"price":1.10}}' % number
        store(semel_broker, "orders", number % 3, NOW + 1_000 * number, value=value)
    async with chromium() as browser, running_console(semel_broker.bootstrap_servers, "--write") as console:
        yield await eye_on(browser, console, width=getattr(request, "param", 1280))


async def ids(console_page: BrowserPage) -> list[int]:
    """The ids of the orders that the list shows."""
    shown = await console_page.page.locator("tbody tr td.data:nth-of-type(6)").all_inner_texts()
    return [json.loads(text)["order"]["id"] for text in shown]


async def test_all_partitions_newest_first_page_by_page(console_page: BrowserPage) -> None:
    page = console_page.page
    await console_page.see("#/records?topic=orders", '"id":249')
    first = await ids(console_page)
    assert first == list(range(249, 149, -1))
    assert await page.get_by_role("button", name="Newer →").is_disabled()
    await page.get_by_role("button", name="← Older").click()
    await page.locator("td", has_text='"id":149,').wait_for(timeout=LIMIT_MS)
    await page.get_by_role("button", name="← Older").click()
    await page.locator("td", has_text='"id":0,').wait_for(timeout=LIMIT_MS)
    assert await ids(console_page) == list(range(49, -1, -1))
    assert await page.get_by_role("button", name="← Older").is_disabled()
    await page.reload()  # the place is in the address
    await page.locator("td", has_text='"id":0,').wait_for(timeout=LIMIT_MS)
    await page.get_by_role("button", name="Newer →").click()
    await page.locator("td", has_text='"id":50,').wait_for(timeout=LIMIT_MS)
    assert await ids(console_page) == list(range(149, 49, -1))
    await page.get_by_label("Order", exact=True).select_option("oldest")
    await page.get_by_role("button", name="Show").click()
    await page.locator("td", has_text='"id":0,').wait_for(timeout=LIMIT_MS)
    assert await ids(console_page) == list(range(100))
    await page.get_by_label("Partition", exact=True).select_option("1")
    await page.locator("h1", has_text="partition 1").wait_for(timeout=LIMIT_MS)
    assert console_page.wrong == []


async def test_a_filter_says_how_far_it_is_and_a_bad_one_what_is_wrong(console_page: BrowserPage) -> None:
    page = console_page.page
    await console_page.see("#/records?topic=orders", '"id":249')
    await page.get_by_label("JSON path").fill("$.order.id == 45")
    await page.keyboard.press("Enter")
    await page.get_by_text("Looked at 250 records", exact=False).wait_for(timeout=LIMIT_MS)
    await page.get_by_text("to the end; 1 found").wait_for(timeout=LIMIT_MS)
    assert await ids(console_page) == [45]
    assert "path=%24.order.id" in page.url
    await page.get_by_label("JSON path").fill("$.order.id = 45")
    await page.keyboard.press("Enter")
    await page.locator("#banner:visible", has_text="expected an operator").wait_for(timeout=LIMIT_MS)
    await page.get_by_label("JSON path").fill("")
    await page.get_by_label("Key").fill("k0")
    await page.get_by_label("Contains").fill('"id":7}')
    await page.keyboard.press("Enter")
    await page.get_by_text("No record here fits the filter").wait_for(timeout=LIMIT_MS)
    console_page.wrong = [each for each in console_page.wrong if "400" not in each]  # the browser logs the refusal
    assert console_page.wrong == []


async def test_a_search_can_be_stopped_and_continued(console_page: BrowserPage) -> None:
    page = console_page.page
    await console_page.see("#/records?topic=orders", '"id":249')
    waiting: list[object] = []

    async def hold(route: object) -> None:
        waiting.append(route)

    await page.route("**/api/facts/search?**", hold)
    await page.get_by_label("JSON path").fill("$.order.id >= 100")
    await page.keyboard.press("Enter")
    while not waiting:
        await page.wait_for_timeout(20)
    route = waiting.pop()
    answer = await route.fetch()  # type: ignore[attr-defined]
    found = await answer.json()
    found["records"], found["done"] = found["records"][:7], False
    await route.fulfill(json=found)  # type: ignore[attr-defined]
    await page.get_by_text("7 found").wait_for(timeout=LIMIT_MS)
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_role("button", name="Continue").wait_for(timeout=LIMIT_MS)
    assert len(await ids(console_page)) == 7
    await page.unroute("**/api/facts/search?**")
    await page.get_by_role("button", name="Continue").click()
    await page.get_by_text("100 found").or_(page.get_by_text("57 found")).wait_for(timeout=LIMIT_MS)


@pytest.mark.parametrize("console_page", [1280, 390], indirect=True)
async def test_a_record_has_an_address_and_its_parts_are_copied(
    semel_broker: EphemeralBroker, console_page: BrowserPage
) -> None:
    page = console_page.page
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await console_page.see("#/records?topic=orders", '"id":249')
    row = page.locator("tr", has_text='"id":200,')
    await row.get_by_role("button").focus()
    await page.keyboard.press("Enter")
    opened = page.locator(".record")
    await opened.locator("pre", has_text='"price": 1.10').wait_for(timeout=LIMIT_MS)  # laid out, the digits stay
    assert "open=2%3A66" in page.url
    assert await opened.get_by_role("button", name="Load it whole").count() == 0

    async def copy(button: str) -> str:
        await opened.get_by_role("button", name=button).click()
        await opened.locator("[role=status]", has_text="copied").wait_for(timeout=LIMIT_MS)
        return str(await page.evaluate("navigator.clipboard.readText()"))

    assert await copy("Copy value") == '{"order":{"id":200,"price":1.10}}'
    assert await copy("Copy key") == "k0"
    whole = json.loads(await copy("Copy record"))
    assert (whole["topic"], whole["partition"], whole["offset"], whole["outcome"]) == ("orders", 2, 66, "plain")
    assert whole["value"] == '{"order":{"id":200,"price":1.10}}'
    await page.reload()
    await opened.locator("pre", has_text='"id": 200').wait_for(timeout=LIMIT_MS)
    assert await page.locator("tbody tr").count() == 101  # it is open in the list
    await opened.get_by_role("link", name="Its address").click()
    await page.locator("h1", has_text="partition 2").wait_for(timeout=LIMIT_MS)
    await opened.locator("pre", has_text='"id": 200').wait_for(timeout=LIMIT_MS)
    assert "66" in await page.locator("tbody tr td").first.inner_text()  # the list begins with it
    # an old record, which the newest page does not have; one that is not there; one that is cut
    await console_page.see("#/records?topic=orders&open=0:1", "Partition 0, offset 1")
    await opened.locator("pre", has_text='"id": 3').wait_for(timeout=LIMIT_MS)
    await console_page.see("#/records?topic=orders&partition=0&open=0:999", "It is not written yet")
    store(semel_broker, "orders", 0, NOW + 10**6, value=BIG)
    await console_page.see("#/records?topic=orders&partition=0&open=0:84", "Its address")
    await opened.locator("pre", has_text="the first 4.0 KiB of 9.8 KiB").wait_for(timeout=LIMIT_MS)
    assert await copy("Copy value") == BIG.decode()
    for inner in ("document.documentElement", "document.querySelector('[data-scroll=records]')"):
        assert await page.evaluate(f"{inner}.scrollWidth - {inner}.clientWidth") <= 0, inner
    assert console_page.wrong == []


async def test_the_view_is_remembered_for_each_topic(semel_broker: EphemeralBroker, console_page: BrowserPage) -> None:
    page = console_page.page
    semel_broker.create_topic("others", 1)
    store(semel_broker, "others", 0, NOW, value=b'{"other":1}')
    await console_page.see("#/records?topic=orders", '"id":249')
    assert await page.get_by_label("Values as").input_value() == "JSON"
    await page.get_by_label("Values as").select_option("hex")
    await page.locator("td", has_text="7b 22 6f 72 64 65 72").first.wait_for(timeout=LIMIT_MS)
    await console_page.see("#/records?topic=others", '"other"')
    assert await page.get_by_label("Values as").input_value() == "JSON"
    await page.reload()
    await console_page.see("#/records?topic=orders", "7b 22 6f")
    assert await page.get_by_label("Values as").input_value() == "hex"


async def test_live_shows_new_records_and_ends_of_transactions(
    semel_broker: EphemeralBroker, console_page: BrowserPage
) -> None:
    page = console_page.page
    await console_page.see("#/records?topic=orders", '"id":249')
    await page.get_by_role("button", name="Live tail").click()
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers, transactional_id="late") as late:
        await late.begin_transaction()
        await late.send_and_wait("orders", b"half", partition=1)
        row = page.locator("tr", has_text="half")
        await row.locator(".badge", has_text="open").wait_for(timeout=LIMIT_MS)
        await late.abort_transaction()
        await row.locator(".badge", has_text="aborted").wait_for(timeout=LIMIT_MS)
    first = page.locator("tbody tr").first
    await first.get_by_text("abort marker of late").wait_for(timeout=LIMIT_MS)
    assert console_page.wrong == []


async def test_a_decoded_value_says_its_schema(semel_broker: EphemeralBroker) -> None:
    semel_broker.create_topic("orders", 1)
    async with FakeRegistry() as registry, chromium() as browser:
        client = AsyncSchemaRegistryClient({"url": registry.url})
        schema = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
        serializer = await AvroSerializer[dict[str, object]].load(client, schema, topic="orders")
        async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", serializer({"item": "teapot"}), partition=0)
        await client.aclose()
        async with running_console(semel_broker.bootstrap_servers, "--registry", registry.url) as console:
            seen = await eye_on(browser, console)
            await seen.see("#/records?topic=orders&partition=0&open=0:0", "Avro Order (orders-value version 1, id 1)")
            assert await seen.page.locator(".record pre").last.inner_text() == '{\n  "item": "teapot"\n}'
            assert seen.wrong == []
