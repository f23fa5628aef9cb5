"""EDGE: the pytest plugin: a real broker, with real transactions, for the tests of any application that uses Kafka.

    def test_an_order_is_published(semel_broker):
        publish(order, bootstrap_servers=semel_broker.bootstrap_servers)

* `semel_broker`: a new, empty broker for each test, on a free port. It starts within milliseconds.
* `semel_broker_session`: one broker for the whole run, for suites that keep their topics apart by name.
* `@pytest.mark.semel(settings={"num.partitions": 3})` on a test, class or module: settings of its broker, under
  Kafka's names. The ini option `semel_settings` (lines of key=value) applies to all tests.
* `@pytest.mark.semel(security="scram+tls")`: TLS, and users with passwords; also "tls", "scram" and "plain+tls".
  `semel_broker.client_settings("aiokafka")` has the arguments for a client, `semel_broker.create_user` makes users.
* `--semel-keep`: write the data of every broker to disk after its test, and print the path.

Both fixtures are synchronous: they serve plain tests, and asynchronous tests with any asyncio plugin.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from semel_broker.testing.in_process import EphemeralBroker

__all__ = ["semel_broker", "semel_broker_session"]

KEPT = pytest.StashKey[list[str]]()
WORKER_KEY = "semel_kept"
SECURITY = ("plaintext", "tls", "scram", "scram+tls", "plain+tls")
FIXTURES = ("semel_broker", "semel_broker_session")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("semel", "semel, the broker in the test's process")
    group.addoption(
        "--semel-keep",
        action="store_true",
        help="Write the data of each broker to disk after its test, and print the path.",
    )
    parser.addini(
        "semel_settings", "Settings for the brokers of all tests, one key=value per line.", type="linelist", default=[]
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[KEPT] = []
    config.addinivalue_line(
        "markers",
        f"semel(settings={{...}}, security=...): settings of the test's broker; security: {', '.join(SECURITY)}",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the brokers logged to the report of a failed test, whatever the level of `logging` is."""
    report = yield
    if report.failed:
        for name in FIXTURES:
            broker = getattr(item, "funcargs", {}).get(name)
            if broker is not None and broker.log:
                report.sections.append((f"log of {name}", "\n".join(broker.log)))
    return report


@pytest.fixture
def semel_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EphemeralBroker]:
    """An empty broker for this test: `semel_broker.bootstrap_servers`; also `.restart()`, `.kill()`, `.start()`."""
    settings, security = _ini_settings(request.config), "plaintext"
    for marker in reversed(
        list(request.node.iter_markers("semel"))
    ):  # the nearest marker last: it overrides the others
        settings.update(_marker_settings(marker))
        security = marker.kwargs.get("security", security)
    yield from _run_broker(settings, request, tmp_path_factory, security)


@pytest.fixture(scope="session")
def semel_broker_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EphemeralBroker]:
    """One broker for the whole run (with pytest-xdist: of each worker)."""
    yield from _run_broker(_ini_settings(request.config), request, tmp_path_factory)


def _run_broker(
    settings: Mapping[str, object],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    security: Any = "plaintext",
) -> Iterator[EphemeralBroker]:
    from semel_broker.testing.in_process import (
        EphemeralBroker,  # imported here: other test runs must not pay for it
    )

    with EphemeralBroker(settings, security) as broker:
        yield broker
        if request.config.getoption("--semel-keep"):
            broker.stop()
            name = re.sub(r"\W+", "-", request.node.name).strip("-") or "session"
            _note(request, broker.save(tmp_path_factory.mktemp(f"semel-{name[:60]}")))


def _note(request: pytest.FixtureRequest, kept: Path) -> None:
    test = request.node.nodeid or "session"
    request.config.stash[KEPT].append(f"{test}: {kept}")


def _ini_settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    for line in config.getini("semel_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"semel_settings: {line!r} must be key=value, such as num.partitions=3")
        settings[name.strip()] = value.strip()
    return settings


def _marker_settings(marker: pytest.Mark) -> Mapping[str, object]:
    settings = marker.kwargs.get("settings", {})
    is_known = bool(marker.kwargs) and set(marker.kwargs) <= {"settings", "security"}
    is_secure = marker.kwargs.get("security", "tls") in SECURITY
    if marker.args or not is_known or not is_secure or not isinstance(settings, Mapping):
        raise pytest.UsageError(
            'the marker takes settings and security only: write @pytest.mark.semel(settings={"num.partitions": 3}) '
            f'or @pytest.mark.semel(security="scram+tls"); security is one of {", ".join(SECURITY)}'
        )
    return settings


# --- paths of kept data: with pytest-xdist the workers send them to the controller, which prints them


def pytest_sessionfinish(session: pytest.Session) -> None:
    worker_output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output[WORKER_KEY] = session.config.stash[KEPT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[KEPT].extend(getattr(node, "workeroutput", {}).get(WORKER_KEY, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if kept := config.stash[KEPT]:
        terminalreporter.section("semel: data kept")
        for line in kept:
            terminalreporter.line(line)
        terminalreporter.line("Show the records of a partition with: semel log dump DIRECTORY/TOPIC-PARTITION")
