"""EDGE: `make screenshots`: pictures of the console's pages, taken in Chromium of a shop on a broker of this process.

The shop's transactions commit, abort, are fenced, stay open, and one hangs. The pictures go to docs/images/console/.
"""

from __future__ import annotations

import asyncio
import io
import random
import sys
from pathlib import Path
from typing import Any

from console.browser_page import BrowserPage, chromium, eye_on, why_not
from console.processes import running_console
from console.shop import hang, read_some
from semel import (
    Admin,
    Consumer,
    GroupStep,
    NewTopic,
    PreparedTransaction,
    Producer,
    TopicPartition,
    TransactionGroup,
)
from semel.structs import OffsetAndMetadata
from semel_broker.testing.in_process import EphemeralBroker

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "console"
BYTES_MAX = 150_000
WIDTH, HEIGHT = 1280, 800
SALES = 24
WRITERS = ("checkout-1", "checkout-2", "refunds")
TIMELINE = "#/timeline?topic=orders&partition=0"
PAGES = {
    "overview": ("#/", "Needs attention"),
    "topics": ("#/topics", "orders"),
    "topic": ("#/topic?name=orders", "Partitions"),
    "records": ("#/records?topic=orders&partition=0&from=-40", "commit marker"),
    "timeline": (TIMELINE, "Fences of these producers"),
    "transactions": ("#/transactions", "transactional ids"),
    "transaction": ("#/transaction?id=warehouse", "Its life"),
    "groups": ("#/groups", "billing"),
    "group": ("#/group?name=billing", "readable records"),
    "sinks": ("#/sinks", "batch 41"),
    "access": ("#/access", "Quotas"),
}
DARK = {"timeline-dark": PAGES["timeline"]}


async def run_shop(address: str) -> list[Producer | Consumer]:
    """Sells, and returns the clients that stay: a reader, and a producer whose transaction is open."""
    rng = random.Random(7)
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("orders", 3), NewTopic("payments", 2), NewTopic("shipments", 1)])
    await asyncio.gather(*(_sell(address, name, random.Random(rng.random())) for name in WRITERS), _fence(address))
    await _sink(address)
    async with Admin(bootstrap_servers=address) as admin:
        await admin.alter_consumer_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(12)})
    reader = await read_some(address, "dispatch")
    waiting = Producer(bootstrap_servers=address, transactional_id="nightly-report", client_id="report-1")
    await waiting.start()
    await waiting.begin_transaction()
    await waiting.send_and_wait("orders", b'{"report": "sums of the day"}', partition=0)
    await asyncio.gather(*(_sell(address, name, random.Random(rng.random()), SALES // 4) for name in WRITERS[:2]))
    return [reader, waiting]


async def _sell(address: str, name: str, rng: random.Random, count: int = SALES) -> None:
    async with Producer(bootstrap_servers=address, transactional_id=name, client_id=f"{name}-host") as producer:
        for number in range(count if name != "refunds" else count // 2):
            await producer.begin_transaction()
            for line in range(rng.randint(1, 4)):
                value = b'{"order": %d, "line": %d, "article": "tea", "price": %.2f}'
                key = f"customer-{rng.randint(1, 40)}".encode()
                await producer.send_and_wait(
                    "orders", value % (number, line, 2 + rng.random() * 20), key=key, partition=0
                )
            await producer.send_and_wait("payments", b"paid", partition=rng.randint(0, 1))
            await asyncio.sleep(rng.random() * 0.06)  # the length of the transaction in the picture
            await (producer.abort_transaction() if rng.random() < 0.12 else producer.commit_transaction())


async def _fence(address: str) -> None:
    """A second warehouse fences the first, whose transaction is open."""
    first = Producer(bootstrap_servers=address, transactional_id="warehouse", client_id="warehouse-old")
    await first.start()
    await _ship(first, 8)
    await first.begin_transaction()
    await first.send_and_wait("orders", b"half a parcel", partition=0)
    async with Producer(bootstrap_servers=address, transactional_id="warehouse", client_id="warehouse-new") as second:
        await _ship(second, 10)
    await asyncio.gather(first.stop(), return_exceptions=True)


async def _ship(producer: Producer, count: int) -> None:
    for number in range(count):
        async with producer.transaction():
            await producer.send_and_wait("orders", b"parcel %d" % number, key=b"parcel", partition=0)
            await producer.send_and_wait("shipments", b"sent", partition=0)
        await asyncio.sleep(0.08)  # the space between transactions in the picture


async def _sink(address: str) -> None:
    """A transaction group as a sink of Spark has it: a step with two writers is committed, the next one has begun."""
    async with TransactionGroup("orders-by-day", bootstrap_servers=address, owner="query orders-by-day") as group:
        step = await group.begin()
        prepared = [await _write_sums(address, f"orders-by-day/task-{number}", step) for number in range(2)]
        await group.commit(step, "batch 41", [each for each in prepared if each is not None])
        await group.begin()


async def _write_sums(address: str, name: str, step: GroupStep) -> PreparedTransaction | None:
    async with Producer(bootstrap_servers=address, transactional_id=name, transaction_group_step=step) as producer:
        await producer.begin_transaction()
        await producer.send("shipments", b"a sum")
        return await producer.prepare_transaction()


def packed(png: bytes) -> bytes:
    """The same picture in fewer bytes. Raises ValueError when it is still too large."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "PNG", optimize=True)
    if len(out.getvalue()) > BYTES_MAX:
        raise ValueError(f"it has {len(out.getvalue()):,} bytes, more than {BYTES_MAX:,}")
    return out.getvalue()


async def take(console_page: BrowserPage, pages: dict[str, tuple[str, str]], folder: Path) -> None:
    for name, (address, text) in pages.items():
        await console_page.see(address, text)
        await settle(console_page.page, name)
        picture = packed(await console_page.page.screenshot())
        (folder / f"{name}.png").write_bytes(picture)
        print(f"{name}.png: {len(picture):,} bytes")


async def settle(page: Any, name: str) -> None:
    """Wait until the page is stable. On some pages open a transaction or a record."""
    if name.startswith("timeline"):
        await page.locator("tr", has_text="warehouse").get_by_role("button", name="Show").first.click()
        await page.get_by_role("button", name="All").click()
        await page.evaluate("window.scrollTo(0, 0)")
    if name == "records":
        await page.locator("button[aria-expanded=false]").nth(2).click()
    await page.wait_for_timeout(2_500 if name == "overview" else 400)


async def main_in(broker: EphemeralBroker, folder: Path) -> None:
    staying = await run_shop(broker.bootstrap_servers)
    hang(broker)
    async with chromium() as browser, running_console(broker.bootstrap_servers, "--write") as console:
        for theme, pages in (("light", PAGES), ("dark", DARK)):
            console_page = await eye_on(browser, console, width=WIDTH, height=HEIGHT, theme=theme)
            await take(console_page, pages, folder)
            assert not console_page.wrong, console_page.wrong
    for client in staying:
        await client.stop()


def main() -> None:
    if missing := why_not():
        sys.exit(f"no pictures: {missing}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with EphemeralBroker() as broker:
        asyncio.run(main_in(broker, FOLDER))


if __name__ == "__main__":
    main()
