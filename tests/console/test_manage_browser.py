"""Managing in Chromium: a change is shown first, and made by a second button; words, phones, and a broker that dies."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from console.browser_page import LIMIT_MS, BrowserPage, chromium, eye_on, why_not
from console.processes import running_console
from console.shop import open_shop
from semel import Admin, NewTopic, Producer
from semel_broker.testing.in_process import EphemeralBroker

axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="the extra `browser` is not installed")
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.thorough,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
SEEN_WITHIN_S = 3.0
PHONE = 390
LONG_NAME = "warehouse.departures-and-arrivals.of-the-last_quarter.enriched"
SECRET = "correct horse battery"


@pytest.fixture
async def console_page(semel_broker: EphemeralBroker, request: pytest.FixtureRequest) -> AsyncIterator[BrowserPage]:
    """A page in a console with write access, over a shop."""
    await open_shop(semel_broker.bootstrap_servers)
    async with chromium() as browser, running_console(semel_broker.bootstrap_servers, "--write") as console:
        yield await eye_on(browser, console, width=getattr(request, "param", 1280))


@pytest.fixture
async def admin_page(semel_broker: EphemeralBroker, tmp_path: Path) -> AsyncIterator[BrowserPage]:
    """The page of a super user, of a broker with users and an authorizer."""
    file = tmp_path / "admin.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in semel_broker.client_settings("semel").items()))
    file.chmod(0o600)
    options = ("--config-file", str(file), "--write")
    async with chromium() as browser, running_console(semel_broker.bootstrap_servers, *options) as console:
        yield await eye_on(browser, console)


async def change(page: Any, opens: str, does: str, shown: str, done: str, typed: str = "", **fields: str) -> None:
    """Open the dialog, see the changes, type the name, press the second button, close the dialog."""
    await page.get_by_role("button", name=opens, exact=True).first.click()
    dialog = page.locator("dialog")
    for name, value in fields.items():
        field = dialog.locator(f"[name={name}]")
        await (
            field.select_option(value)
            if await field.evaluate("each => each.tagName") == "SELECT"
            else field.fill(value)
        )
    await dialog.get_by_role("button", name="Show the changes").click()
    await dialog.locator(".outcome", has_text=shown).wait_for(timeout=LIMIT_MS)
    go = dialog.get_by_role("button", name=does, exact=True)
    if typed:
        assert await go.is_disabled()
        await dialog.locator("[name=typed]").fill(typed[:-1])
        assert await go.is_disabled()
        await dialog.locator("[name=typed]").fill(typed)
    await go.click()
    await dialog.locator(".done", has_text=done).wait_for(timeout=LIMIT_MS)
    await dialog.get_by_role("button", name="Close").click()
    await dialog.wait_for(state="detached", timeout=LIMIT_MS)


async def test_a_topic_gets_settings_and_partitions_and_is_purged_and_deleted(console_page: BrowserPage) -> None:
    page = console_page.page
    await console_page.see("#/topic?name=orders", "Partitions")
    await page.locator("section", has_text="Groups that read it").get_by_role("link", name="billing").wait_for()
    retention = {"set": "retention.ms=60000"}
    await change(page, "Settings", "Change these settings", "becomes 60000", "has its new settings", **retention)
    await page.locator("td", has_text="60000").wait_for(timeout=LIMIT_MS)
    await change(page, "Add partitions", "Add partitions", "gets 1 more", "has 3 partitions", total="3")
    await change(page, "Purge", "Delete these records", "are deleted", "now begins", "orders")
    await change(page, "Delete", "Delete orders", "cannot be restored", "orders is deleted", "orders")
    await page.locator("h1", has_text="Topics").wait_for(timeout=LIMIT_MS)
    await page.get_by_role("link", name="orders", exact=True).wait_for(state="detached", timeout=LIMIT_MS)
    assert console_page.wrong == []


async def test_offsets_of_a_group_are_set_after_a_look_and_the_group_is_deleted(console_page: BrowserPage) -> None:
    page = console_page.page
    await console_page.see("#/group?name=billing", "orders-0")
    await page.get_by_role("link", name="4", exact=True).click()
    await page.locator("h1", has_text="orders – partition 0").wait_for(timeout=LIMIT_MS)
    assert "open=0%3A4" in page.url or "open=0:4" in page.url
    await console_page.see("#/group?name=billing", "orders-0")
    await page.get_by_role("button", name="Set offsets").click()
    assert await page.get_by_label("Only show the changes").is_checked()
    await page.locator("dialog").get_by_role("button", name="Close").click()
    await change(
        page, "Set offsets", "Set these offsets", "4 becomes 0", "1 offset is set", to="earliest", names="orders:0"
    )
    await page.get_by_role("link", name="0", exact=True).first.wait_for(timeout=LIMIT_MS)
    await change(page, "Delete", "Delete billing", "The group billing is deleted", "billing is deleted", "billing")
    await page.locator("h1", has_text="Consumer groups").wait_for(timeout=LIMIT_MS)
    assert console_page.wrong == []


@pytest.mark.semel(security="scram")
@pytest.mark.semel_only("users of its own")
async def test_entries_users_and_quotas_are_added_and_removed(admin_page: BrowserPage) -> None:
    page = admin_page.page
    await admin_page.see("#/access", "Quotas")
    entry = {"principal": "User:bob", "operations": "read, describe configs", "resource": "orders"}
    await change(page, "Add an entry", "Add the entries", "ALLOW READ on TOPIC 'orders'", "2 entries added", **entry)
    await page.locator("td", has_text="describe configs").wait_for(timeout=LIMIT_MS)
    await change(page, "Remove", "Remove the entry", "Removed: ALLOW", "1 entry removed", "User:bob")
    user = {"user": "bob", "password": SECRET}
    await change(page, "Create a user", "Create a user", "bob is created", "is created", **user)
    row = page.locator("tr", has_text="bob").filter(has=page.get_by_role("button", name="New password"))
    await row.wait_for(timeout=LIMIT_MS)
    await change(row.page, "New password", "Change the password", "gets the new", "gets the new", password=SECRET)
    await row.get_by_role("button", name="Delete").click()
    await page.locator("dialog").get_by_role("button", name="Show the changes").click()
    await page.locator("dialog [name=typed]").fill("bob")
    await page.locator("dialog").get_by_role("button", name="Delete bob").click()
    await page.locator("dialog .done").wait_for(timeout=LIMIT_MS)
    await page.locator("dialog").get_by_role("button", name="Close").click()
    await row.wait_for(state="detached", timeout=LIMIT_MS)
    await change(page, "Set a quota", "Set the quota", "becomes 1,000", "new quotas", first="alice", value="1000")
    quotas = page.locator("section", has=page.locator("h2", has_text="Quotas"))
    await quotas.get_by_role("button", name="Remove").click()
    await page.locator("dialog").get_by_role("button", name="Show the changes").click()
    await page.locator("dialog [name=typed]").fill("user alice")
    await page.locator("dialog").get_by_role("button", name="Remove the quotas").click()
    await quotas.get_by_text("There is no quota").wait_for(state="attached", timeout=LIMIT_MS)
    assert SECRET not in page.url + await page.content()
    assert admin_page.wrong == []


async def test_a_refusal_is_shown_in_the_dialog_and_a_changed_field_ends_the_second_step(
    console_page: BrowserPage,
) -> None:
    page = console_page.page
    await console_page.see("#/topic?name=orders", "Partitions")
    await page.get_by_role("button", name="Add partitions").click()
    total = page.locator("dialog [name=total]")
    await total.fill("1")
    await page.locator("dialog").get_by_role("button", name="Show the changes").click()
    await page.locator("dialog .wrong", has_text="only grow").wait_for(timeout=LIMIT_MS)
    await total.fill("5")
    await page.locator("dialog").get_by_role("button", name="Show the changes").click()
    go = page.locator("dialog .confirm button")
    await go.wait_for(timeout=LIMIT_MS)
    found = (await axe.Axe().run(page)).response["violations"]
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
    await total.fill("50")
    await go.wait_for(state="detached", timeout=LIMIT_MS)


async def test_errors_and_empty_pages_are_words(console_page: BrowserPage) -> None:
    page, banner = console_page.page, console_page.page.locator("#banner:visible")
    for address, words in (
        ("#/topic?name=nosuch", "There is no such topic or partition"),
        ("#/records?topic=nosuch&partition=0", "There is no such topic or partition"),
        ("#/timeline?topic=nosuch&partition=0", "There is no such topic or partition"),
        ("#/group?name=nosuch", "There is no"),
        ("#/transaction?id=nosuch", "There is no such transactional id"),
    ):
        await page.evaluate("address => { location.hash = address }", address)
        await page.locator("#banner", has_text=words).wait_for(timeout=LIMIT_MS)
        said = await banner.inner_text() + await page.inner_text("main")
        assert not re.search(r"\[\d+ |[A-Z]+_[A-Z]+|Error\b", said), said
        shown = await page.evaluate(
            "[...document.querySelectorAll('.live')].map(each => getComputedStyle(each, '::before').content).join()"
        )
        assert "Asking" not in shown + await page.inner_text("main"), address
    await console_page.see("#/access", "This cluster has no access control entries")
    assert "SECURITY_DISABLED" not in await page.inner_text("main")
    await console_page.see("#/sinks", "Spark's sink begins one")


@pytest.mark.parametrize("console_page", [PHONE], indirect=True)
async def test_a_phone_shows_whole_names_and_each_value_with_its_label(
    semel_broker: EphemeralBroker, console_page: BrowserPage
) -> None:
    page = console_page.page
    async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(LONG_NAME, 2)])
    await console_page.see("#/topics", LONG_NAME)
    cell = page.locator("tr", has=page.get_by_role("link", name=LONG_NAME, exact=True))
    lines = await cell.locator("td a").first.evaluate(LINES)
    assert "".join(lines) == LONG_NAME
    assert all(re.search("[._-]$", line) for line in lines[:-1]), lines
    label = "getComputedStyle(document.querySelector('td[data-label=partitions]'), '::before').content"
    assert "partitions" in await page.evaluate(label)
    broker = await page.evaluate("fetch('/api/facts/overview').then(each => each.json())")
    await console_page.see(f"#/broker?id={broker['health']['brokers'][0]['id']}", "are not shown")
    assert await page.evaluate("document.documentElement.scrollHeight") < 6_000
    for address, text in (
        ("#/group?name=billing", "orders-0"),
        ("#/topic?name=orders", "Partitions"),
        ("#/", "answers"),
    ):
        await console_page.see(address, text)
        assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        assert await page.evaluate(SIDEWAYS) == 0, address


LINES = """each => {
  const range = document.createRange(), lines = new Map();
  const walk = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode())
    for (let at = 0; at < node.data.length; at += 1) {
      range.setStart(node, at); range.setEnd(node, at + 1);
      const top = Math.round(range.getBoundingClientRect().top);
      lines.set(top, (lines.get(top) ?? "") + node.data[at]);
    }
  return [...lines.values()];
}"""
"""The lines in which the text of an element is drawn."""
SIDEWAYS = "[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth + 1).length"


@pytest.mark.semel_only("no fence ledger")
async def test_fences_beyond_the_kept_ones_are_said_to_be_there(
    semel_broker: EphemeralBroker, console_page: BrowserPage
) -> None:
    for _ in range(18):
        async with Producer(bootstrap_servers=semel_broker.bootstrap_servers, transactional_id="loop") as loop:
            await loop.begin_transaction()
            await loop.send_and_wait("orders", b"one", partition=0)
            await loop.abort_transaction()
    await console_page.see("#/transaction?id=loop", "There may be older fences: the coordinator keeps the last 16")
    await console_page.see("#/timeline?topic=orders&partition=0", "has that many of loop")


@pytest.mark.semel_only("the broker is stopped")
async def test_a_brokers_death_is_seen_within_three_seconds(
    semel_broker: EphemeralBroker, console_page: BrowserPage
) -> None:
    verdict = console_page.page.locator(".verdict")
    assert "healthy" in await verdict.inner_text()
    await asyncio.to_thread(semel_broker.kill)
    killed = time.perf_counter()
    await console_page.page.locator(".verdict", has_text="does not answer").wait_for(timeout=LIMIT_MS)
    assert time.perf_counter() - killed < SEEN_WITHIN_S
    assert "Offline" in await verdict.inner_text()
    await asyncio.to_thread(semel_broker.start)
    await console_page.page.locator(".verdict", has_text="Healthy").wait_for(timeout=LIMIT_MS)
