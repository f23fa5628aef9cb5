"""Each setting of the client has a description, and the page and `help` show it as in the code."""

from __future__ import annotations

import inspect

import pytest
import semel
from semel._config.settings import RULES
from tidy.client_settings import MODULE, PAGE, described, page, reference

CLIENTS = (semel.Producer, semel.Consumer, semel.Admin, semel.BatchReader, semel.TransactionGroup)


def test_the_page_and_the_texts_are_what_the_declarations_say() -> None:
    assert PAGE.read_text() == page(), "run `make map`"
    assert MODULE.read_text() == reference(), "run `make map`"


def test_every_setting_has_words() -> None:
    for config, settings in described().items():
        assert not [setting.name for setting in settings if not setting.words], config


def test_every_setting_with_a_rule_is_declared() -> None:
    assert sorted({setting.name for settings in described().values() for setting in settings}) == sorted(RULES)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_help_shows_each_setting_with_its_words(client: type) -> None:
    init = client.__init__  # type: ignore[misc]
    words = inspect.getdoc(init) or ""
    for name, parameter in inspect.signature(init).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert f"\n{name} (default: " in words or f"\n{name}\n" in words, name
    assert "\nclient_id (default: 'semel')\n    The name of this client" in words
