"""Settings of the whole suite: virtual time for tests of broker and client; in CI the same examples every time."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.against import AgainstPlugin, address_of
from support.virtual_time import virtual_loop, virtual_time

__all__ = ["virtual_time"]

TOO_SLOW = [HealthCheck.too_slow]
"""The load of the machine is no property of the code, so these checks of hypothesis are off."""
settings.register_profile("default", deadline=None, suppress_health_check=TOO_SLOW)
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=TOO_SLOW)
settings.load_profile("default")
if os.environ.get("CI"):
    settings.load_profile("ci")

for ignored in (signal.SIGINT, signal.SIGHUP):
    # A shell that starts the suite in the background, or under nohup, has them ignored, and so would every process that
    # the tests start and stop by these signals.
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL)

ROOT = Path(__file__).parent
END_WITHIN_S = 120
"""A process whose tests are over ends within this time, or it dumps all threads and exits."""
VIRTUAL = (ROOT / "broker", ROOT / "client")
"""The folders whose tests run in virtual time, but for those marked `real_time`."""
REAL = (ROOT / "broker" / "cluster", ROOT / "broker" / "troubles", ROOT / "client" / "cli")
"""Folders among them whose tests talk to an etcd, or to clients and commands in threads of their own. Tests
in them that ask for the fixture `virtual_time` run in it.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        default="",
        metavar="HOST:PORT",
        help="Run the tests that need a broker against this one, and no others. It is emptied before each test.",
    )


def pytest_configure(config: pytest.Config) -> None:
    if address_of(config):
        config.pluginmanager.register(AgainstPlugin())


def pytest_unconfigure(config: pytest.Config) -> None:
    """A thread that never ends, such as one of a client in C, must not keep the whole run from ending."""
    if hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(END_WITHIN_S, exit=True)


def _is_virtual(item: pytest.Item) -> bool:
    if address_of(item.config):
        return False
    if "virtual_time" in getattr(item, "fixturenames", ()):
        return True
    if item.get_closest_marker("real_time") or any(item.path.is_relative_to(folder) for folder in REAL):
        return False
    if "semel_broker" in getattr(item, "fixturenames", ()):  # it has a thread of its own
        return False
    return any(item.path.is_relative_to(folder) for folder in VIRTUAL)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of a test: one of each, so that it is not told in the test's name."""
    return {"virtual": virtual_loop} if _is_virtual(item) else {"asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def _virtual_time_where_it_is(request: pytest.FixtureRequest) -> None:
    if _is_virtual(request.node):
        request.getfixturevalue("virtual_time")
