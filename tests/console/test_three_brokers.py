"""The console on three brokers: every page, and a leader that is killed while its topic's pages are open."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from console.browser_page import LIMIT_MS, BrowserPage, chromium, eye_on, why_not
from console.processes import running_console
from console.shop import keep_open, open_shop, read_some, sell
from semel import Admin, Producer
from support import etcd
from support.three import EtcdAndThreeBrokers

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.thorough,
    pytest.mark.slow,
    pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
PAGES = {
    "#/": "Healthy",
    "#/topics": "orders",
    "#/topic?name=orders": "Partitions",
    "#/records?topic=orders&partition=0": "commit marker of shop",
    "#/timeline": "payments",
    "#/timeline?topic=orders&partition=0": "new instance",
    "#/transactions": "transactional ids",
    "#/transaction?id=dispatch": "Its life",
    "#/groups": "billing",
    "#/group?name=stock": "reader-1",
    "#/access": "Quotas",
    **{f"#/broker?id={number}": "are not shown" for number in (1, 2, 3)},
}
SEEN_WITHIN_S = 3.0
OPEN_PAGES = ("#/", "#/topic?name=orders", "#/timeline?topic=orders&partition=0", "#/transactions")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdAndThreeBrokers]:
    """Three brokers over an etcd. A leader that dies is replaced after two seconds."""
    made = EtcdAndThreeBrokers(
        tmp_path, **{"broker.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}
    )
    made.start()
    yield made
    made.stop()


@pytest.fixture
async def eyes(cluster: EtcdAndThreeBrokers) -> AsyncIterator[list[BrowserPage]]:
    """A browser on each of `OPEN_PAGES`, over a shop with an open transaction."""
    await open_shop(cluster.addresses)
    producer, consumer = await keep_open(cluster.addresses), await read_some(cluster.addresses, "stock")
    async with chromium() as browser, running_console(cluster.addresses, "--write") as console:
        found = [await eye_on(browser, console) for _ in OPEN_PAGES]
        for console_page, address in zip(found, OPEN_PAGES, strict=True):
            await console_page.see(address, PAGES[address])
        yield found
    await consumer.stop()
    await asyncio.gather(producer.stop(), return_exceptions=True)


async def leader_of_orders(addresses: str) -> int:
    async with Admin(bootstrap_servers=addresses) as admin:
        (found,) = await admin.describe_topics(["orders"])
        return found.partitions[0].leader


async def test_each_page_shows_its_facts_without_an_error(eyes: list[BrowserPage]) -> None:
    for address, text in PAGES.items():
        await eyes[0].see(address, text)
    await eyes[0].see("#/", "each with a leader and all its replicas in sync")
    for number in (1, 2, 3):
        await eyes[0].page.get_by_role("link", name=f"broker {number}").wait_for(timeout=LIMIT_MS)
    assert [each.wrong for each in eyes] == [[]] * len(eyes)


async def test_a_broker_that_hangs_is_seen_as_a_dead_one(cluster: EtcdAndThreeBrokers, eyes: list[BrowserPage]) -> None:
    verdict, pid = eyes[0].page.locator(".verdict"), cluster.brokers[2].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        stopped_at = time.perf_counter()
        await verdict.filter(has_text="broker 2 does not answer").wait_for(timeout=LIMIT_MS)
        assert time.perf_counter() - stopped_at < SEEN_WITHIN_S
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_pages_follow_when_a_leader_is_killed(cluster: EtcdAndThreeBrokers, eyes: list[BrowserPage]) -> None:
    overview, topic, timeline, transactions = eyes
    killed = await leader_of_orders(cluster.addresses)
    await asyncio.to_thread(cluster.brokers[killed].kill)
    killed_at = time.perf_counter()
    await overview.page.locator(".verdict", has_text="does not answer").wait_for(timeout=LIMIT_MS)
    assert time.perf_counter() - killed_at < SEEN_WITHIN_S
    await overview.page.get_by_text("under-replicated").first.wait_for(timeout=LIMIT_MS)
    row = topic.page.locator("tbody tr", has=topic.page.locator("td", has_text="timeline")).first
    async with asyncio.timeout(LIMIT_MS / 1_000):
        while (await row.locator("td").nth(2).inner_text()).strip() in (str(killed), "none"):
            await asyncio.sleep(0.05)
    live = ",".join(each.address for number, each in cluster.brokers.items() if number != killed)
    async with Producer(bootstrap_servers=live, transactional_id="late", client_id="late-1") as late:
        await sell(late, 1, commit=True)
    await timeline.page.locator("canvas[aria-label*='2 open'], canvas[aria-label*='1 open']").wait_for(timeout=LIMIT_MS)
    await transactions.page.get_by_role("link", name="late").wait_for(timeout=LIMIT_MS)
    await asyncio.to_thread(cluster.brokers[killed].start)
    await overview.page.locator(".verdict", has_text="Healthy").wait_for(timeout=2 * LIMIT_MS)
    for console_page in eyes:
        await console_page.page.locator("#banner").wait_for(state="hidden", timeout=LIMIT_MS)
