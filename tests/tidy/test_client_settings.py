"""Each setting of the client has words, and the site and `help` show them as they are in the code."""

from __future__ import annotations

import inspect
import re

import pytest
import semel

from tools.website import ROOT
from tools.website.made.client_settings import described, part

PAGE = ROOT / "docs/moving-from-confluent-kafka.md"
CLIENTS = (semel.Producer, semel.Consumer, semel.Admin, semel.BatchReader, semel.TransactionGroup)


def test_the_tables_have_each_setting() -> None:
    tables = part()
    for settings in described().values():
        for setting in settings:
            assert f"\n| `{setting.name}` | " in tables


def test_the_page_about_confluent_kafka_has_semels_defaults() -> None:
    tables = part()
    rows = re.findall(r"^\| `.*\|$", PAGE.read_text().partition("## Settings")[2], re.M)
    assert len(rows) > 30
    for row in rows:
        _, _, name, default, *_ = (each.strip() for each in row.strip("|").split("|"))
        assert f"| {name} | {default} |" in tables or name == "`partition_assignment_strategy`", name


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_help_shows_each_setting_with_its_words(client: type) -> None:
    init = client.__init__  # type: ignore[misc]
    words = inspect.getdoc(init) or ""
    for name, parameter in inspect.signature(init).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert f"\n{name} (default: " in words or f"\n{name}\n" in words, name
    assert "\nclient_id (default: 'semel')\n    The name of this client" in words
