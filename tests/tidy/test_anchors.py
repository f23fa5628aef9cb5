"""Each row of a table of settings has an address of its own."""

from __future__ import annotations

import pytest
from semel_broker.config.listing import TABLES_OF_BROKERS, by_topic
from semel_broker.config.loading import BROKER_SETTINGS

from tools.website.made import ANCHORED, made
from tools.website.made.anchors import ANCHORED_ROW, anchored, anchors
from tools.website.search import ordered

TABLE = """## Brokers

| setting | default | what it does |
|---|---|---|
| `log.dir` | `a` | a place |
| `retention` | `b` | a time |

## Some topics

| setting | default | what it does |
|---|---|---|
| `retention` | `c` | a time |
"""


def test_a_row_has_the_address_of_its_name() -> None:
    part = anchored(TABLE)
    assert "| [`log.dir`](#log.dir){ #log.dir } | `a` | a place |" in part
    assert anchors(part) == {"log.dir", "retention", "some-topics.retention"}
    assert part.count('<div class="settings" markdown="1">') == part.count("</div>") == 2


@pytest.mark.parametrize("name", sorted(ANCHORED))
def test_no_two_rows_of_a_page_have_one_address(name: str) -> None:
    rows = [row["anchor"] for row in ANCHORED_ROW.finditer(made(name))]
    assert len(rows) > 50
    assert len(rows) == len(set(rows))


def test_settings_of_brokers_are_grouped_by_topic() -> None:
    tables = by_topic()
    assert list(tables) == list(TABLES_OF_BROKERS)
    assert [name for settings in tables.values() for name in (each.name for each in settings)] == list(BROKER_SETTINGS)
    assert max(map(len, tables.values())) <= 32


def test_the_index_has_a_users_pages_first_and_an_entry_for_each_row() -> None:
    def entry(location: str, *path: str) -> dict[str, object]:
        return {"location": location, "level": 1, "title": "Page", "text": "words", "path": list(path), "tags": []}

    index = {
        "config": {},
        "items": [
            entry("docs/proof/", "Inside", "Simulator"),
            entry("other/"),
            entry("map/", "Inside", "Map of the files"),
            entry("api/producer/", "Use it", "Producer"),
            {**entry("docs/settings/", "Use it", "Settings"), "text": "first name type labels what it is `a` words"},
        ],
    }
    items = ordered(index, {"docs/settings/": anchored(TABLE)})["items"]
    assert [each["location"] for each in items] == [
        "docs/settings/",
        "docs/settings/#log.dir",
        "docs/settings/#retention",
        "docs/settings/#some-topics.retention",
        "api/producer/",
        "docs/proof/",
        "other/",
    ]
    assert items[0]["text"] == "first "
    assert (items[1]["title"], items[1]["text"]) == ("log.dir", "a place (a)")
