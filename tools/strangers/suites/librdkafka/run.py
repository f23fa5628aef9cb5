"""EDGE: builds librdkafka with its tests, and runs those that use a broker: with groups of both protocols.

The sources are a checkout of librdkafka below STRANGERS_SRC if there is one, else those that an npm package ships. Each
test has a process of its own, because a test that takes too long ends the whole process. Tests of share groups
(KIP-932) are left out.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from semel import Admin
from semel.admin import ConfigResource, ConfigResourceType
from semel.errors import KafkaError

from tools.strangers import npm, script
from tools.strangers.judge import ResultLine
from tools.strangers.reports import of_librdkafka

PACKAGE = "@confluentinc/kafka-javascript"
BROKER_VERSION = "4.1.0"
"""The version of the broker for the tests: from 4.2.0 on they expect share groups."""
PARALLEL = 3
TIMEOUT_MULTIPLIER = 3
"""0119 has 20 s, waits for 15 of them, and starts a JVM four times."""
PROTOCOLS = {"classic": "", "consumer": "consumer protocol: "}
"""The suite's names of the group protocols, and the prefix of the names of the tests that run with it."""
OF_GROUPS = re.compile(r"cgrp|consume|offset|subscri|group|rebalance|assign|commit|pause|poll_interval|destroy")
"""The tests that run again with the consumer protocol."""
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}
"""Kafka's commands that tests call."""
SCENARIOS = {"default": True, "noautocreate": False}
"""The scenario of a test -> whether brokers create topics that a client asks for."""
BUILD_TIMEOUT_S, TEST_TIMEOUT_S = 1200, 900
TEST = re.compile(r"_TEST\((\w+),\s*([\w|\s]+)")
LEFT_OUT = ("TEST_F_LOCAL", "TEST_F_MANUAL")


def main() -> None:
    tests = build(sources()) / "tests"
    numbers = numbers_of((tests / "test.c").read_text())
    environment = {
        "BROKERS": script.bootstrap(),
        "KAFKA_PATH": str(tools()),
        "LD_LIBRARY_PATH": os.pathsep.join(str(tests.parent / name) for name in ("src", "src-cpp")),
        "TEST_KAFKA_VERSION": BROKER_VERSION,
    }
    configuration = (
        f"metadata.broker.list={script.bootstrap()}\ntest.topic.random=true\n"
        f"test.timeout.multiplier={TIMEOUT_MULTIPLIER}\n"
    )
    (tests / "test.conf").write_text(configuration)
    for scenario, auto_create in SCENARIOS.items():
        if not asyncio.run(set_auto_create(auto_create)):
            continue  # Apache Kafka takes this setting at its start alone
        for protocol, prefix in PROTOCOLS.items():
            chosen = [number for number, name in numbers if protocol == "classic" or OF_GROUPS.search(name)]
            run = partial(run_number, tests, scenario, {**environment, "TEST_CONSUMER_GROUP_PROTOCOL": protocol})
            with ThreadPoolExecutor(PARALLEL) as pool:
                for results in pool.map(run, dict.fromkeys(chosen)):
                    script.report_all(results, prefix)


async def set_auto_create(enabled: bool) -> bool:
    """Return whether the brokers take the setting."""
    change = ConfigResource(ConfigResourceType.BROKER, "", {"auto.create.topics.enable": str(enabled).lower()})
    async with Admin(bootstrap_servers=script.bootstrap()) as admin:
        try:
            await admin.alter_configs([change])
        except KafkaError:
            return enabled
    return True


def run_number(tests: Path, scenario: str, environment: Mapping[str, str], number: str) -> list[ResultLine]:
    """Run the tests of one number. A runner that ends without a summary has failed."""
    log = script.scratch() / f"{environment['TEST_CONSUMER_GROUP_PROTOCOL']}-{scenario}-{number}.log"
    command = ["./test-runner", "-L", "-K", "-Q", "-p1", "-s", scenario]
    with log.open("wb") as out:
        try:
            subprocess.run(
                command,
                cwd=tests,
                env={**os.environ, **environment, "TESTS": number},
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=TEST_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return [ResultLine(number, "failed", f"not finished after {TEST_TIMEOUT_S} s")]
    return of_librdkafka(log.read_text(errors="replace"), number)


def sources() -> Path:
    """Return a fresh copy of librdkafka's sources."""
    try:
        found = script.checkout("librdkafka")
    except script.NothingToRunError:
        modules = npm.install(script.work() / "package", {PACKAGE: script.pin(PACKAGE)}) / "node_modules"
        found = modules / PACKAGE / "deps" / "librdkafka"
    into = script.work() / "source"
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(found, into, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    return into


def build(source: Path) -> Path:
    for command in (["./configure"], ["make", "-j2", "libs"], ["make", "-j2", "-C", "tests", "build"]):
        ended = subprocess.run(
            command, cwd=source, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
        assert ended.returncode == 0, f"{' '.join(command)}: {ended.stdout[-500:]} {ended.stderr[-1500:]}"
    return source


def tools() -> Path:
    """Return a folder like Kafka's distribution: bin/ has the commands that the tests call."""
    pom = script.folder().parent / "kafka-tools" / "pom.xml"
    lib = script.jars(pom, "lib", kafka_version=script.pin("kafka-tools"))
    bin_folder = script.scratch() / "kafka" / "bin"
    bin_folder.mkdir(parents=True)
    for name, java_class in TOOLS.items():
        tool = bin_folder / name
        tool.write_text(f'#!/bin/sh\nexec java -Xmx256m -XX:TieredStopAtLevel=1 -cp "{lib}/*" {java_class} "$@"\n')
        tool.chmod(0o755)
    return bin_folder.parent


def numbers_of(source: str) -> list[tuple[str, str]]:
    """The number and name of each test that uses a broker, from the table in test.c."""
    table = source[source.index("struct test tests[]") : source.index("{NULL}")]
    found = [(name[:4], name) for name, flags in TEST.findall(table) if not any(flag in flags for flag in LEFT_OUT)]
    return [(number, name) for number, name in found if "share_consumer" not in name]


script.run(main)
