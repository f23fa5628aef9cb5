"""EDGE: runs sarama's functional tests, from its module, with a Toxiproxy in front of each broker that breaks
connections.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tools.strangers import gomod, script
from tools.strangers.ports import free_ports

MODULE = "github.com/IBM/sarama"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2"
START_TIMEOUT_S = 30
ENDLESS = "TestFuncProducingNoResponse/TestFuncProducingNoResponse-v4.1.1"
WHY_ENDLESS = (
    "told to ask for no versions, the client takes a broker of 4.1.1 to serve Fetch 12, and repeats it for ever; "
    "semel serves up to 11"
)


class Proxies:
    """A Toxiproxy server with a proxy for each broker, named kafka1 and so on, as sarama's tests expect."""

    def __init__(self, program: Path) -> None:
        (port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{port}"
        with (script.scratch() / "toxiproxy.log").open("wb") as log:
            words = [str(program), "-host", "127.0.0.1", "-port", str(port)]
            self._process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)

    def open(self, brokers: list[str]) -> str:
        """Return broker=proxy for each broker, separated by commas."""
        self._wait()
        pairs = []
        for number, broker in enumerate(brokers, 1):
            body = json.dumps({"name": f"kafka{number}", "listen": "127.0.0.1:0", "upstream": broker, "enabled": True})
            with urllib.request.urlopen(f"{self.address}/proxies", body.encode()) as answer:
                pairs.append(f"{broker}={json.load(answer)['listen']}")
        return ",".join(pairs)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/version").close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def prepare(source: Path) -> None:
    """Replace the brokers, proxies and replication factor in the tests."""
    (source / "strangers_functional_test.go").write_text((script.folder() / "hooks.go.txt").read_text())
    path = source / "functional_test.go"
    text = path.read_text()
    for theirs, ours in (
        ("i <= 5; i++", f"i <= {script.brokers()}; i++"),
        ('fmt.Sprintf("127.0.0.1:%d", 29090+i))', "strangersBrokers()[i-1])"),
        ("config := NewConfig()", "config := strangersConfig()"),
        ("ReplicationFactor: 3,", f"ReplicationFactor: {script.replicas()},"),
    ):
        assert theirs in text, f"functional_test.go has no {theirs}"
        text = text.replace(theirs, ours)
    path.write_text(text)


def stand_in() -> str:
    """Return a PATH on which `docker` is docker.py of this suite."""
    folder = script.scratch() / "bin"
    folder.mkdir()
    docker = folder / "docker"
    docker.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script.folder() / "docker.py"}" "$@"\n')
    docker.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def main() -> None:
    program = gomod.program(f"{TOXIPROXY}/cmd/server", script.pin(TOXIPROXY), script.work() / "toxiproxy")
    source = gomod.source(MODULE, script.pin(MODULE), script.work() / "source")
    prepare(source)
    proxies = Proxies(program)
    try:
        variables = {
            "STRANGERS_PROXIES": proxies.open(script.bootstrap().split(",")),
            "TOXIPROXY_ADDR": proxies.address,
            "KAFKA_VERSION": "4.1.1",
            "PATH": stand_in(),
        }
        words = ["-tags", "functional", "."]
        if script.against() == "semel":
            words = [f"-skip={ENDLESS}", *words]
            script.report(f"sarama.{ENDLESS}", "skipped", WHY_ENDLESS)
        script.report_all(gomod.test(source, script.scratch() / "go.json", words, variables, timeout_s=2000))
    finally:
        proxies.close()


script.run(main)
