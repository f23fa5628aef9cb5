"""The page in a headless Chromium: each page, hostile texts, the timeline, a broker that dies, and no finding of axe.

Needs the extra `browser` and a Chromium: Debian's package, or `playwright install chromium`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from console.browser_page import LIMIT_MS, BrowserPage, chromium, eye_on, why_not
from console.processes import running_console
from console.shop import HOSTILE, crowd, hang, keep_open, open_shop, read_some, sell
from semel import Producer
from semel_broker.testing.in_process import EphemeralBroker
from support.against import OutsideBroker

axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="the extra `browser` is not installed")
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.thorough,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
PAGES = {
    "#/": "Needs attention",
    "#/topics": "orders",
    "#/topic?name=orders": "Partitions",
    "#/records?topic=orders": "all partitions",
    "#/records?topic=orders&partition=0": "commit marker of shop",
    "#/records?topic=orders&partition=0&open=0:2": "Its address",
    "#/records?topic=notes&partition=0": "onerror",
    "#/timeline": "payments",
    "#/timeline?topic=orders&partition=0": "Fences of these producers",
    "#/timeline?topic=orders&partition=0&axis=time": "Fences of these producers",
    "#/transactions": "transactional ids",
    "#/transaction?id=dispatch": "Its life",
    "#/groups": "billing",
    "#/group?name=stock": "reader-1",
    "#/sinks": "Transaction groups and Spark's sinks",
    "#/access": "Quotas",
}


async def all_pages(console_page: BrowserPage) -> dict[str, str]:
    """`PAGES`, and that of the broker."""
    broker = await console_page.page.locator('a[href^="#/broker?"]').first.get_attribute("href")
    return {**PAGES, broker: "are not shown"}


@pytest.fixture
async def console_page(semel_broker: EphemeralBroker, request: pytest.FixtureRequest) -> AsyncIterator[BrowserPage]:
    """A page in a console with write access, over a shop with a hanging and an open transaction."""
    address = semel_broker.bootstrap_servers
    await open_shop(address)
    hang(semel_broker)
    producer, consumer = await keep_open(address), await read_some(address, "stock")
    width = getattr(request, "param", 1280)
    async with chromium() as browser, running_console(address, "--write") as console:
        yield await eye_on(browser, console, width=width)
    await consumer.stop()
    if isinstance(semel_broker, OutsideBroker) or semel_broker.is_running:
        await producer.stop()


@pytest.mark.parametrize("console_page", [1280, 400], indirect=True)
async def test_each_page_shows_its_facts_without_an_error(console_page: BrowserPage) -> None:
    for address, text in (await all_pages(console_page)).items():
        await console_page.see(address, text)
        width = await console_page.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert width <= 0, f"{address} is {width} px too wide"
    assert await console_page.page.evaluate("window.pwned") is None
    assert console_page.wrong == []


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing_serious(console_page: BrowserPage, theme: str) -> None:
    if theme == "dark":
        await console_page.page.click("#theme")
    found = {}
    for address, text in (await all_pages(console_page)).items():
        await console_page.see(address, text)
        result = await axe.Axe().run(console_page.page)
        for each in result.response["violations"]:
            if each["impact"] in ("serious", "critical"):
                found[address, each["id"]] = [node["html"][:160] for node in each["nodes"]][:3]
    assert not found


async def test_hostile_texts_stay_texts(console_page: BrowserPage) -> None:
    page = console_page.page
    await console_page.see("#/records?topic=notes&partition=0", "onerror")
    closed = page.locator("button[aria-expanded=false]")
    while await closed.count():
        await closed.first.click()
    for form in ("JSON", "hex", "text"):
        await page.get_by_label("Values as").select_option(form)
    assert HOSTILE in await page.inner_text("main")
    assert "\\u202eevil" in await page.inner_text("main")  # an override of the direction is shown, not obeyed
    await page.get_by_role("button", name="Load it whole").click()  # the one that is cut has it
    await page.locator("pre", has_text="x" * 20_000).wait_for(timeout=LIMIT_MS)
    for path in ("#/transactions", "#/groups"):
        await console_page.see(path, HOSTILE)
        await page.get_by_role("link", name=HOSTILE).first.click()
        await page.locator("h1", has_text=HOSTILE).wait_for(timeout=LIMIT_MS)
    assert await page.locator("main img, main script").count() == 0
    assert await page.evaluate("window.pwned") is None
    assert console_page.wrong == []


async def test_the_token_leaves_the_address_and_the_cookie_is_hidden(console_page: BrowserPage) -> None:
    assert console_page.console.token not in console_page.page.url
    assert await console_page.page.evaluate("document.cookie") == ""
    stranger = await console_page.page.context.browser.new_page()
    await stranger.goto(console_page.console.base)
    await stranger.locator("main", has_text="This browser has no session").wait_for(timeout=LIMIT_MS)
    await stranger.get_by_label("Token").fill(console_page.console.token)
    await stranger.get_by_role("button", name="Enter").click()
    await stranger.wait_for_selector(".figure", timeout=LIMIT_MS)


@pytest.mark.semel_only("no fence ledger")
async def test_the_timeline_names_the_fencing_producer_and_ends_a_hanging_transaction(
    console_page: BrowserPage,
) -> None:
    page = console_page.page
    await console_page.see("#/timeline?topic=orders&partition=0", "4 aborted")
    label = await page.locator(".lanes canvas").get_attribute("aria-label")
    assert "4 aborted and 2 open" in label
    row = page.locator("tr", has_text="new instance").first
    assert "dispatch-new" in await row.inner_text()
    await row.get_by_role("button", name="Show").click()
    await page.locator("[aria-live]", has_text="dispatch-new").wait_for(timeout=LIMIT_MS)
    await page.locator(".lanes canvas").focus()
    for key in ("ArrowDown", "n", "n", "a", "+", "ArrowRight", "-", "0"):
        await page.keyboard.press(key)
    assert "aborted" in await page.locator("[aria-live]").inner_text()
    await page.locator(".holder.hanging").get_by_role("button", name="Abort").last.click()
    await page.locator("dialog").get_by_role("button", name="Abort").click()
    await page.locator("dialog", has_text="is aborted").wait_for(timeout=LIMIT_MS)
    await page.locator("dialog").get_by_role("button", name="Close").click()
    await page.locator("main", has_text="5 aborted").wait_for(timeout=LIMIT_MS)
    assert await page.locator(".holder.hanging").count() == 0
    assert console_page.wrong == []


async def test_the_pointer_shows_a_transaction(console_page: BrowserPage) -> None:
    page = console_page.page
    await console_page.see("#/timeline?topic=orders&partition=0", "4 aborted")
    box = await page.locator(".lanes canvas").bounding_box()
    await page.mouse.move(box["x"] + 210, box["y"] + 26 + 3 * 26 + 13)  # the first transaction of the fourth lane: shop
    await page.locator(".tip:visible", has_text="shop: committed").wait_for(timeout=LIMIT_MS)


async def test_a_page_follows_the_cluster(semel_broker: EphemeralBroker, console_page: BrowserPage) -> None:
    await console_page.see("#/records?topic=payments&partition=0", "commit marker")
    await console_page.page.get_by_role("button", name="Live tail").click()
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers, transactional_id="late") as late:
        await sell(late, 1, commit=True)
        await console_page.page.locator("tr", has_text="commit marker of late").wait_for(timeout=LIMIT_MS)
        await console_page.see("#/timeline?topic=orders&partition=0", "committed")
        await late.begin_transaction()
        await late.send_and_wait("orders", b"more", partition=0)
        await late.abort_transaction()
        await console_page.page.locator("main", has_text="5 aborted").wait_for(timeout=LIMIT_MS)
    assert console_page.wrong == []


async def test_a_broker_that_dies_is_shown_and_the_page_comes_back(
    semel_broker: EphemeralBroker, console_page: BrowserPage
) -> None:
    await asyncio.to_thread(semel_broker.kill)
    await console_page.page.locator("#banner:visible").wait_for(timeout=LIMIT_MS)
    assert await console_page.page.locator(".figure").count() > 0  # the last facts stay
    await asyncio.to_thread(semel_broker.start)
    await console_page.page.locator("#banner").wait_for(state="hidden", timeout=LIMIT_MS)
    assert "healthy" in await console_page.page.inner_text("main")


async def test_a_topic_is_created_from_the_page(console_page: BrowserPage) -> None:
    await console_page.see("#/topics", "orders")
    await console_page.page.get_by_role("button", name="Create a topic").click()
    await console_page.page.locator("dialog input[name=name]").fill("parcels")
    await console_page.page.locator("dialog").get_by_role("button", name="Show the changes").click()
    await console_page.page.locator("dialog").get_by_role("button", name="Create a topic").click()
    await console_page.page.locator("dialog .done", has_text="parcels is created").wait_for(timeout=LIMIT_MS)
    await console_page.page.locator("dialog").get_by_role("button", name="Close").click()
    await console_page.page.get_by_role("link", name="parcels").wait_for(timeout=LIMIT_MS)


async def test_records_are_written_from_the_page_and_downloaded(console_page: BrowserPage) -> None:
    await console_page.see("#/records?topic=payments&partition=0", "commit marker")
    await console_page.page.get_by_role("button", name="Write a record").click()
    await console_page.page.locator("dialog input[name=value]").fill("by hand")
    await console_page.page.locator("dialog").get_by_role("button", name="Write a record").click()
    await console_page.page.locator("dialog", has_text="written to payments-0 at offset").wait_for(timeout=LIMIT_MS)
    await console_page.page.locator("dialog").get_by_role("button", name="Close").click()
    async with console_page.page.expect_download() as downloading:
        await console_page.page.get_by_role("link", name="JSON lines").click()
    download = await downloading.value
    assert download.suggested_filename == "payments-0.jsonl"
    assert '"value":"by hand"' in (await download.path()).read_text().splitlines()[-1]
    assert console_page.wrong == []


async def test_a_hundred_thousand_transactions_are_drawn_within_a_frame_or_two(
    semel_broker: EphemeralBroker, console_page: BrowserPage
) -> None:
    semel_broker.create_topic("busy")
    await asyncio.to_thread(crowd, semel_broker, "busy", 100_000)
    await console_page.see("#/timeline?topic=busy&partition=0&last=1000000", "95,000 committed")
    box = await console_page.page.locator(".lanes canvas").bounding_box()
    await console_page.page.mouse.move(box["x"] + 700, box["y"] + 100)
    taken = []
    for turn in range(24):
        await console_page.page.mouse.wheel(0, -120 if turn < 12 else 120)
        await console_page.page.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        taken.append(await console_page.draw_ms())
    assert sorted(taken)[len(taken) // 2] < 50, taken  # the median: the machine of a test is shared
    assert console_page.wrong == []
