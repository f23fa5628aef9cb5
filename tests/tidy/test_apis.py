"""An API is one line in ApiKey, one file of messages and one file of its handler. Nothing else lists APIs."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from semel_broker import authorization, handlers
from semel_protocol import messages
from semel_protocol.api_key import ApiKey
from tidy.test_house_rules import SOURCES

AUTHORIZATION_LINES_MAX = 1_100
KNOWN_TO_THE_FILE = {"LONG_ANSWER"}
"""What a file of a handler may say besides; each is True."""


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name)
def test_the_handler_of_an_api_has_its_rights_and_its_audit(key: ApiKey) -> None:
    handler = import_module(f"semel_broker.handlers.{key.file_name}")
    assert callable(handler.handle)
    assert isinstance(handler.NEEDS, tuple)
    assert hasattr(handler, "AUDIT") != hasattr(handler, "NOT_AUDITED"), "one of both"
    assert all(getattr(handler, name, True) is True for name in KNOWN_TO_THE_FILE)


@pytest.mark.parametrize("folder", [messages, handlers], ids=lambda folder: folder.__name__)
def test_every_api_has_its_file(folder: object) -> None:
    files = {path.stem for path in Path(str(folder.__file__)).parent.glob("k*.py")}  # type: ignore[attr-defined]
    assert {key.file_name for key in ApiKey} <= files
    numbers = {f"k{key:02}" for key in ApiKey}
    assert {name.partition("_")[0] for name in files} <= numbers


def test_no_other_file_lists_the_apis() -> None:
    most = 15  # the client has a highest version for a dozen of them
    lists = {
        source.path: len(set(re.findall(r"\bApiKey\.([A-Z_]+)", source.text)))
        for source in SOURCES
        if not source.path.endswith("semel_protocol/api_key.py")
    }
    assert {path: count for path, count in lists.items() if count > most} == {}
    imports = {source.path: len(set(re.findall(r"^    (k\d+_\w+),$", source.text, re.MULTILINE))) for source in SOURCES}
    assert {path: count for path, count in imports.items() if count > most} == {}


def test_authorization_knows_no_api() -> None:
    folder = Path(str(authorization.__file__)).parent
    texts = [path.read_text() for path in sorted(folder.glob("*.py"))]
    assert sum(text.count("\n") for text in texts) <= AUTHORIZATION_LINES_MAX
    assert not any("semel_protocol.messages" in text or "ApiKey" in text for text in texts)


def test_long_work_has_no_twin_beside_short_work() -> None:
    """One coroutine does both: long work waits between the slices that `RequestContext.slices` gives it."""
    most = 1  # markers of this broker
    twin = re.compile(r"^ *(?:async )?def (\w*_in_(?:slices|steps))\b", re.MULTILINE)
    broker = [source for source in SOURCES if source.path.startswith("broker/")]
    found = [f"{source.path}: {name}" for source in broker for name in twin.findall(source.text)]
    assert len(found) <= most, found


def test_the_connection_is_a_thin_part_around_its_pipeline() -> None:
    most = 300
    (connection,) = [source for source in SOURCES if source.path.endswith("semel_broker/net/connection.py")]
    assert connection.text.count("\n") <= most
