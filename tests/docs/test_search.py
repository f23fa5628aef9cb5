"""The site's search finds first what a user looks for. zensical's own search ranks, in a headless Chromium.

Needs the extras `docs` and `browser`, and a Chromium. The test builds the site in build/, as `make docs` does.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from console.browser_page import chromium, why_not

from tools.website.__main__ import PAGES, SITE, build
from tools.website.made.anchors import ANCHORED_ROW

NO_BUILDER = "" if importlib.util.find_spec("zensical") else "the extra `docs` is not installed"
WHY_NOT = NO_BUILDER or why_not()
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.thorough,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]
FIRST = {
    "disk full": ("docs/metrics/#the-disk-is-full",),
    "advertised": ("docs/docker/#advertised-addresses",),
    "fenced": ("docs/transactions/#fenced-by-another-instance",),
    "lag": ("docs/operating/#lag-of-consumer-groups",),
    "rebalance": ("docs/operating/#rebalances",),
    "certificate": ("docs/security/#certificates",),
    "TLS": ("docs/security/#tls-between-clients-and-brokers",),
    "exactly once spark": ("docs/spark/#exactly-once-from-spark-writing",),
    "testcontainers": ("docs/replace-testcontainers/", "docs/docker/#workflows-and-testcontainers"),
    "docker compose": ("docs/docker/#docker-compose-a-broker-beside-your-application",),
    "offset reset": ("docs/client-settings/#auto_offset_reset",),
    "quota": ("docs/quotas/",),
    "backup": ("docs/operating/#backup-and-restore",),
    "log.retention.ms": ("docs/settings/#log.retention.ms",),
    "linger_ms": ("docs/client-settings/#linger_ms",),
    "semel_group_lag_seconds": ("docs/metrics/#semel_group_lag_seconds",),
}
"""Words of a user -> the places that may be first."""
TABLES = ("settings", "client-settings", "metrics")
"""Pages with an address for each row."""
BROKEN = """() => [...document.querySelectorAll(".settings td:first-child code")]
    .filter((each) => each.getClientRects().length !== 1).map((each) => each.textContent)"""
"""Names that stand on more than one line."""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
ASK = """async (queries) => {
  const index = await (await fetch("search.json")).json();
  const worker = new Worker(JSON.parse(document.querySelector("#__config").textContent).search);
  const answer = (message) => new Promise((done) => {
    worker.onmessage = (event) => done(event.data);
    worker.postMessage(message);
  });
  await answer({ type: 0, data: index });
  const all = { input: { type: "operator", data: { operator: "and", operands: [] } }, aggregation: { input: [] } };
  const found = {};
  for (const query of queries) {
    const { data } = await answer({ type: 2, data: { input: query, filter: all } });
    found[query] = data.items.map(({ id }) => index.items[id].location);
  }
  return found;
}"""
"""Asks the worker of the site's search as its page does: 0 is the index, 2 a query."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write no line for a request."""


@pytest.fixture
def site() -> Iterator[str]:
    """The address of the built site."""
    assert build() == 0
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


async def test_the_site_finds_first_what_a_user_looks_for_and_shows_each_setting(site: str) -> None:
    """One test for all of it: the site is built once, and by one process."""
    each_row_has_its_place()
    async with chromium() as browser:
        page = await browser.new_page()
        await page.goto(site)
        found = await page.evaluate(ASK, list(FIRST))
        assert {query: found[query][:3] for query, places in FIRST.items() if found[query][0] not in places} == {}
        for width in (1360, 390):
            await page.set_viewport_size({"width": width, "height": 900})
            for name in TABLES:
                await page.goto(f"{site}docs/{name}/")
                assert await page.evaluate(BROKEN) == []
                assert await page.evaluate(TOO_WIDE) <= 0, f"{name} at {width}"


def each_row_has_its_place() -> None:
    """Check that each row of settings is on its page, and in the index of the search."""
    places = {entry["location"] for entry in json.loads((SITE / "search.json").read_text())["items"]}
    for name in TABLES:
        rows = [row["anchor"] for row in ANCHORED_ROW.finditer((PAGES / f"docs/{name}.md").read_text())]
        html = (SITE / f"docs/{name}/index.html").read_text()
        assert len(rows) > 50
        assert [anchor for anchor in rows if f'id="{anchor}"' not in html] == []
        assert [anchor for anchor in rows if f"docs/{name}/#{anchor}" not in places] == []
