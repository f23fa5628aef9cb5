from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import BrokerProcess

_names = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the tests of a module. Tests that kill a broker start their own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield process
    assert process.stop() == 0, "\n".join(process.log[-30:])


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may kill."""
    process = BrokerProcess(tmp_path / "data").start()
    yield process
    process.stop()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test has."""
    return f"topic-{next(_names)}"
