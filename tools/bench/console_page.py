"""The console: its first page, the timeline of 100,000 transactions in Chromium, and a record by time in 10 GiB."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from console.browser_page import LIMIT_MS, BrowserPage, chromium, why_not
from console.processes import Console, running_console
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.node import Node
from semel_protocol.batch import OFFSET, read_header, seal
from semel_protocol.records import Record, build_batch

from tools.bench.figure import Figure, at_most, per_second
from tools.bench.measure import broker
from tools.bench.prepared import LOOP_EVERY, Build, Mix, mixed, now_ms, prepare

FIRST_PAGE_KB, FIRST_PAGE_S = 300, 0.5
TRANSACTIONS = 100_000
DRAWN_S, FRAMES_PER_S = 1.0, 30
PAN_S = 3
RECORD_S = 0.5
LARGE_BYTES = 10 << 30
BATCH_RECORDS, VALUE_BYTES = 100, 1_000
BATCH_MS = 1_000
"""The time between two batches of the large topic."""
BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT = 27, 35
LOOKS = 9
VIEWPORT = {"width": 1280, "height": 860}
RANGE = "95,001 committed"
PAN = """async (seconds) => {
  const canvas = document.querySelector(".lanes canvas");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const wheel = (init) => canvas.dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, ...init }));
  document.querySelector("button[aria-label='Zoom in']").click();
  await frame();
  const drawnBefore = Number(canvas.dataset.drawn), began = performance.now();
  let longest = 0, last = began;
  for (let turn = 0; performance.now() - began < seconds * 1000; turn += 1) {
    wheel({ deltaX: turn % 80 < 40 ? 12 : -12, shiftKey: true });
    await frame();
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }
  return { frames: Number(canvas.dataset.drawn) - drawnBefore, ms: performance.now() - began, longest };
}"""
TRANSFERRED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .reduce((sum, each) => sum + each.transferSize, 0)"""


def console(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure in a headless Chromium beside broker and console; without a browser only the record by time."""
    prepare(directory / "busy", mixed(Mix("busy", TRANSACTIONS, 1, 20)))
    figures = []
    if missing := why_not():
        figures.append(Figure("page and timeline: not measured", 0, missing))
    else:
        with broker(directory / "busy") as process:
            figures += asyncio.run(_in_browser(process.address, max(runs, 3)))
    prepare(directory / "large", large(LARGE_BYTES), **{"log.retention.ms": "-1"})
    with broker(directory / "large", **{"log.retention.ms": "-1"}) as process:
        taken = asyncio.run(_record_by_time(process.address))
    name = f"a record by its time in a topic of {LARGE_BYTES >> 30} GiB"
    return [
        *figures,
        at_most(f"{name}, the first look", taken[0], "s", RECORD_S, digits=3),
        at_most(f"{name}, the slowest of {LOOKS - 1} more", max(taken[1:]), "s", RECORD_S, digits=3),
    ]


async def _in_browser(address: str, runs: int) -> list[Figure]:
    entered, size, drawn, alone, pans = [], 0.0, [], [], []
    async with chromium() as browser, running_console(address) as served:
        for _ in range(runs):
            eye = BrowserPage(await browser.new_page(viewport=VIEWPORT), served)
            began = time.perf_counter()
            await eye.enter()
            entered.append(time.perf_counter() - began)
            size = float(await eye.page.evaluate(TRANSFERRED))
            drawn.append(await _drawn_s(eye))
            alone.append(await eye.draw_ms())
            pans.append(await eye.page.evaluate(PAN, PAN_S))
            await eye.page.close()
    frames = statistics.median(each["frames"] * 1_000 / each["ms"] for each in pans)
    return [
        at_most("first page, bytes over the wire", size / 1_000, "kB", FIRST_PAGE_KB, digits=0),
        at_most("first page, from its address to its facts", statistics.median(entered), "s", FIRST_PAGE_S),
        at_most(f"timeline of {TRANSACTIONS:,} transactions, from the click to the picture",
                statistics.median(drawn), "s", DRAWN_S),
        at_most("  drawing alone", statistics.median(alone), "ms", digits=1),
        per_second("  frames while it is panned", frames, FRAMES_PER_S),
        at_most("  the longest time between two frames", max(each["longest"] for each in pans), "ms", digits=0),
    ]  # fmt: skip


async def _drawn_s(eye: BrowserPage) -> float:
    """Seconds from the change of the address to the first picture of all transactions."""
    began = time.perf_counter()
    await eye.page.evaluate("location.hash = '#/timeline?topic=busy&partition=0&last=1000000'")
    await eye.page.wait_for_selector(".lanes canvas[data-drawn]", timeout=LIMIT_MS)
    taken = time.perf_counter() - began
    await eye.page.get_by_text(RANGE).wait_for(timeout=LIMIT_MS)
    return taken


async def _record_by_time(address: str) -> list[float]:
    """Seconds of the message browser's answers to `LOOKS` times, spread over the topic."""
    async with running_console(address) as served:
        cookie = await asyncio.to_thread(_entered, served)
        bounds = await asyncio.to_thread(_facts, served, cookie, "records", limit=1, **{"from": "earliest"})
        first, count = bounds["records"][0]["timestamp"], bounds["high_watermark"] // BATCH_RECORDS
        taken = []
        for look in range(LOOKS):
            wanted = first + (look * 7 % LOOKS) * count // LOOKS * BATCH_MS
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wanted / 1_000 + 1))
            began = time.perf_counter()
            found = await asyncio.to_thread(_facts, served, cookie, "records", limit=100, **{"from": at})
            taken.append(time.perf_counter() - began)
            assert abs(found["records"][0]["timestamp"] - wanted) <= 2 * BATCH_MS, (found["records"][0], wanted)
    return taken


def _entered(served: Console) -> str:
    """The session's cookie."""
    host = served.base.removeprefix("http://").rstrip("/")
    headers = {"Content-Type": "application/json", "Origin": f"http://{host}"}
    asked = urllib.request.Request(f"{served.base}api/login", json.dumps({"token": served.token}).encode(), headers)
    with urllib.request.urlopen(asked) as answer:
        return str(answer.headers["Set-Cookie"].partition(";")[0])


def _facts(served: Console, cookie: str, name: str, **parameters: object) -> Any:
    query = urlencode({"topic": "large", "partition": 0, **parameters})
    asked = urllib.request.Request(f"{served.base}api/facts/{name}?{query}", headers={"Cookie": cookie})
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)


def large(size: int) -> Build:
    """Write the topic `large`: batches of 100 records of 1,000 bytes, a second apart, the last one now."""

    async def build(node: Node) -> None:
        await node.broker.topics.create(NewTopic(name="large", partitions=1))
        partition = node.broker.topics.partition("large", 0)
        batch = bytearray(build_batch([Record(0, 0, None, b"x" * VALUE_BYTES)] * BATCH_RECORDS))
        count = size // len(batch)
        began_ms = now_ms() // 1_000 * 1_000 - count * BATCH_MS
        for number in range(count):
            for place in (BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT):
                OFFSET.pack_into(batch, place, began_ms + number * BATCH_MS)
            seal(batch)
            partition.append(batch, header=read_header(batch))
            if number % LOOP_EVERY == 0:
                await asyncio.sleep(0)

    return build
