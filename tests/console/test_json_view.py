"""The JSON view of the page changes no token of a value; long numbers reach the page as texts."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from console.browser_page import LIMIT_MS, BrowserPage, chromium, eye_on, why_not
from console.processes import running_console
from semel import Producer
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.answers import encoded

BIG = 2**62 + 1
VALUES = [
    '{"id":12345678901234567890,"price":1.10,"far":1e400,"id":-0,"s":"\\u0041\\/\\n","no":[],"none":{},"l":[1,[null,true]]}',
    "12345678901234567890",
    '"a \\ud83d text"',
    " \t[ 1.0 , 2E+5 ]\r\n",
    '{"ключ":"значение","emoji":"😀"}',
    "[" * 900 + "]" * 900,
]
NOT_JSON = [
    "{'a': 1}",
    "01",
    "1.",
    "[1,]",
    "{} {}",
    '"a',
    "\ufeff1",
    "nan",
    "[" * 5_000 + "]" * 5_000,
    "",
    "tru",
    '{"a":1,}',
    "[1}",
]
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"{}\[\],:]+|[{}\[\],:]')


def test_numbers_that_javascript_cannot_hold_are_texts() -> None:
    class JsonRow(msgspec.Struct):
        producer_id: int
        data: bytes

    found = {
        "rows": [JsonRow(BIG, b"\xd7" * 40)],
        "edge": 2**53 - 1,
        "over": 2**53,
        "below": -(2**53),
        "flag": True,
        "f": 1.5,
    }
    shown = json.loads(encoded(found))
    assert shown["rows"][0]["producer_id"] == str(BIG)
    assert (shown["edge"], shown["over"], shown["below"]) == (2**53 - 1, str(2**53), str(-(2**53)))
    assert (shown["flag"], shown["f"]) == (True, 1.5)


@pytest.fixture
async def console_page(semel_broker: EphemeralBroker) -> AsyncIterator[BrowserPage]:
    semel_broker.create_topic("values", 1)
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        for value in VALUES[:2]:
            await producer.send_and_wait("values", value.encode(), partition=0)
    async with chromium() as browser, running_console(semel_broker.bootstrap_servers, "--write") as console:
        yield await eye_on(browser, console, width=1280)


in_browser = [pytest.mark.real_time, pytest.mark.thorough, pytest.mark.skipif(bool(why_not()), reason=why_not())]


async def laid_out(console_page: BrowserPage, text: str) -> str | None:
    found: Any = await console_page.page.evaluate("async text => (await import('/json_layout.js')).laidOut(text)", text)
    assert found is None or isinstance(found, str)
    return found


class TestInABrowser:
    pytestmark = in_browser

    async def test_each_token_stays_as_it_is_written(self, console_page: BrowserPage) -> None:
        for value in VALUES:
            shown = await laid_out(console_page, value)
            assert shown is not None, value[:60]
            assert TOKEN.findall(shown) == TOKEN.findall(value)
        for text in NOT_JSON:
            assert await laid_out(console_page, text) is None, text[:60]
        assert (
            await laid_out(console_page, '{"a":[1,{"b":[]}]}')
            == '{\n  "a": [\n    1,\n    {\n      "b": []\n    }\n  ]\n}'
        )

    async def test_the_view_shows_numbers_as_they_are(self, console_page: BrowserPage) -> None:
        await console_page.see("#/records?topic=values&partition=0", "price")
        await console_page.page.locator("button[aria-expanded=false]").last.click()
        shown = await console_page.page.locator("pre").last.inner_text()
        for token in ("12345678901234567890", "1.10", "1e400", "-0", "\\u0041\\/\\n"):
            assert token in shown
        assert shown.count('"id"') == 2
        assert console_page.wrong == []

    async def test_helpers_of_offsets_are_exact(self, console_page: BrowserPage) -> None:
        script = """async () => {
          const { below, earlier, minus, number } = await import('/format.js');
          const [big, less] = ['4611686018427387905', '4611686018427387903'];
          return [number(big), number(1234), number(null), minus(big, less), minus(big, 1), below(2, 10),
            below('9007199254740993', '10007199254740993'), earlier(150, 100, 60), earlier(big, 100, 0)];
        }"""
        assert await console_page.page.evaluate(script) == [
            "4,611,686,018,427,387,905", "1,234", "–", 2, "4611686018427387904", True, True, 60, "4611686018427387805",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("address", "said"),
        [
            (
                "#/records?topic=values&partition=abc",
                'The parameter "partition" must be a whole number from 0 on, and is "abc"',
            ),
            ("#/records?topic=values&partition=-1", 'The parameter "partition" must be a whole number'),
            ("#/timeline?topic=values&partition=NaN", 'The parameter "partition" must be a whole number'),
            (
                "#/records?topic=values&open=5",
                'The parameter "open" must be PARTITION:OFFSET, such as 3:1042, and is "5"',
            ),
            ("#/records?topic=values&order=up", 'The parameter "order" must be newest or oldest'),
            ("#/topic?topic=values", 'The page "Topic" has no parameter "topic". It has name.'),
            ("#/topic", 'lacks the parameter "name"'),
            ("#/records?partition=0", 'lacks the parameter "topic"'),
            ("#/groups?name=g", 'has no parameter "name". It has none.'),
            ("#/nowhere", 'There is no page "nowhere"'),
            ("#/constructor", 'There is no page "constructor"'),
        ],
    )
    async def test_an_address_that_shows_no_page_says_why(
        self, console_page: BrowserPage, address: str, said: str
    ) -> None:
        await console_page.see(address, said)
        await console_page.see("#/topics", "values")
        assert console_page.wrong == []

    @pytest.mark.parametrize(
        "address", ["#/topic?name=other", "#/group?name=other", "#/transaction?id=other", "#/records?topic=other"]
    )
    async def test_the_page_of_something_that_does_not_exist_does_not_seem_to_wait(
        self, console_page: BrowserPage, address: str
    ) -> None:
        await console_page.page.evaluate("address => { location.hash = address }", address)
        await console_page.page.locator("#banner:visible").wait_for(timeout=LIMIT_MS)
        body = console_page.page.locator("main .live").first
        shown = await body.evaluate("element => getComputedStyle(element, '::before').content")
        assert "Asking" not in shown
