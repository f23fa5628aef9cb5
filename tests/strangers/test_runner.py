"""The runner: suites without their tools do not run; servers and Maven's marks behave as suites expect."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.strangers import maven
from tools.strangers.brokers import brokers, bug_lines
from tools.strangers.process import ServerError, ServerProcess
from tools.strangers.runner import SuiteRun, last_line
from tools.strangers.suite import Suite

READY = "import time; print('ready', flush=True); time.sleep(600)"


def suite(**fields: object) -> Suite:
    return Suite(**{"title": "x", "language": "Go", "pins": {"x": "1"}, "name": "x", **fields})  # type: ignore[arg-type]


async def test_a_suite_without_its_tools_is_not_run_and_names_them() -> None:
    verdict = await SuiteRun(suite(needs=["python3", "no-such-tool", "nor-this"]), "semel", 1).run()
    assert verdict.not_run == "not on this machine: no-such-tool, nor-this"
    assert verdict.is_clean


async def test_kafka_without_java_and_maven_is_not_run_and_says_what_they_are_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    verdict = await SuiteRun(suite(), "kafka", 1).run()
    assert verdict.not_run == (
        "not on this machine: java, mvn; Apache Kafka needs Java 17 or newer, and Maven fetches it"
    )


async def test_a_suite_for_other_brokers_is_not_run() -> None:
    assert (await SuiteRun(suite(brokers=(1,)), "semel", 3).run()).not_run == "it is not for 3 brokers"
    assert (await SuiteRun(suite(against=("semel",)), "kafka", 1).run()).not_run == "it is not for kafka"


def test_three_brokers_of_kafka_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one broker only"):
        brokers("kafka", 3, tmp_path, {}, tmp_path)


async def test_only_an_unexpected_end_counts_as_a_death_of_a_server(tmp_path: Path) -> None:
    server = ServerProcess(lambda: [sys.executable, "-c", READY], tmp_path / "log", lambda line: "ready" in line)
    await server.start()
    await server.kill()
    await server.start()
    await server.stop()
    assert server.died == 0
    ending = ServerProcess(
        lambda: [sys.executable, "-c", "print('ready')"], tmp_path / "log", lambda line: "ready" in line
    )
    await ending.start()
    assert await ending.ended() == 0
    assert ending.died == 1
    assert (tmp_path / "log").read_text() == "ready\n" * 3


async def test_an_error_names_the_log_of_a_server_that_is_not_ready(tmp_path: Path) -> None:
    server = ServerProcess(
        lambda: [sys.executable, "-c", "print('no')"], tmp_path / "log", lambda line: "ready" in line
    )
    with pytest.raises(ServerError, match="log"):
        await server.start()


def test_a_log_line_of_a_bug_is_a_problem(tmp_path: Path) -> None:
    clean, bad = tmp_path / "clean.log", tmp_path / "bad.log"
    clean.write_text('{"event":"ready"}\n')
    bad.write_text('{"event":"ready"}\n{"event":"internal_error","api":"Fetch"}\nTraceback (most recent call last)\n')
    assert bug_lines([clean, bad, tmp_path / "none.log"]) == ['bad.log: {"event":"internal_error","api":"Fetch"}']


def test_the_last_line_of_an_output_is_its_last_nonempty_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\nno network\n\n  \n")
    assert last_line(tmp_path / "log") == "no network"


def test_jars_are_fetched_once_for_a_pom_and_its_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    fake = tmp_path / "mvn"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    pom = tmp_path / "pom.xml"
    pom.write_text("<project/>")
    for _ in range(2):
        maven.jars(pom, tmp_path / "lib", {"kafka.version": "4.1.1"})
    maven.jars(pom, tmp_path / "lib", {"kafka.version": "4.4.0"})
    assert len(calls.read_text().splitlines()) == 2
    assert "-Dkafka.version=4.4.0" in calls.read_text()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("[ERROR] Could not transfer artifact x from/to central", maven.MavenUnreachableError),
        ("[ERROR] Non-parseable POM", maven.MavenError),
    ],
)
def test_an_unreachable_registry_is_distinguished_from_an_error(
    words: str, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "mvn"
    fake.write_text(f"#!/bin/sh\necho '{words}'\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    pom = tmp_path / "pom.xml"
    pom.write_text("<project/>")
    with pytest.raises(maven.MavenError) as failed:
        maven.jars(pom, tmp_path / "lib")
    assert type(failed.value) is kind
    assert words in str(failed.value)
    assert not (tmp_path / "lib" / "fetched").exists()
