"""Every page in Chromium for a principal with few rights: its permitted data is shown, and the missing right is
named.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from console.browser_page import LIMIT_MS, BrowserPage, chromium, eye_on, why_not
from console.processes import running_console
from console.viewer import VIEWER, entry, two_topics
from semel.admin import Operation, ResourceType
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.thorough,
    pytest.mark.semel(security="scram"),
    pytest.mark.semel_only("users of its own"),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
SHOWN = {
    "#/": "may not DESCRIBE are left out",
    "#/topics": "orders",
    "#/topic?name=orders": "Sizes on disk are not shown: they need DESCRIBE on the cluster.",
    "#/records?topic=orders&partition=0": "commit marker of producer",
    "#/timeline?topic=orders&partition=0": "hidden from this principal",
    "#/transactions": "may not DESCRIBE are left out",
    "#/groups": "may not DESCRIBE are left out",
    "#/sinks": "may not DESCRIBE are left out",
    "#/access": "may not DESCRIBE CLUSTER",
}
REFUSED = {
    "#/topic?name=secrets": "A topic needs DESCRIBE on the topic.",
    "#/records?topic=secrets&partition=0": "DESCRIBE on the topic|READ on the topic",
    "#/timeline?topic=secrets&partition=0": "DESCRIBE on the topic|READ on the topic",
    "#/transaction?id=shop": "A transactional id needs DESCRIBE on the transactional id.",
    "#/group?name=billing": "A group needs DESCRIBE on the group and on its topics.",
    "#/broker?id=0": "The settings of a broker need DESCRIBE_CONFIGS on the cluster.",
}


@pytest.fixture
async def console_page(semel_broker: EphemeralBroker, tmp_path: Path) -> AsyncIterator[BrowserPage]:
    """The page of a principal that may only describe and read `orders`."""
    rights = [entry(ResourceType.TOPIC, "orders", each) for each in (Operation.DESCRIBE, Operation.READ)]
    await two_topics(semel_broker, *rights)
    file = tmp_path / "viewer.properties"
    given = semel_broker.client_settings("semel", VIEWER)
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    file.chmod(0o600)
    options = ("--config-file", str(file))
    async with chromium() as browser, running_console(semel_broker.bootstrap_servers, *options) as console:
        yield await eye_on(browser, console)


async def test_pages_show_what_the_principal_may_see(console_page: BrowserPage) -> None:
    for address, text in SHOWN.items():
        await console_page.see(address, text)
        assert not await console_page.page.locator("#banner").is_visible()
        assert "secrets" not in await console_page.page.inner_text("main")
        changes = ("Delete", "Purge", "Settings", "Create a topic", "Set offsets", "Add an entry", "Create a user")
        for name in changes:  # there is no `--write`
            assert await console_page.page.get_by_role("button", name=name).count() == 0
    assert console_page.wrong == []


async def test_pages_that_are_refused_name_the_right(console_page: BrowserPage) -> None:
    for address, text in REFUSED.items():
        await console_page.page.evaluate("address => { location.hash = address }", address)
        banner = console_page.page.locator("#banner:visible")
        await banner.wait_for(timeout=LIMIT_MS)
        said = await banner.inner_text()
        assert any(each in said for each in text.split("|")), (address, said)
    assert [each for each in console_page.wrong if "403" not in each] == []
