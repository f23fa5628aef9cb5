"""EDGE: runs a transactional application with @platformatic/kafka under kills, on a recent enough Node from npm.

It runs with a group of the classic protocol, then with one of the consumer protocol (KIP-848).
"""

from __future__ import annotations

import os
import platform
import sys

from tools.strangers import counting, npm, script

PACKAGE = "@platformatic/kafka"
RECORDS = 3000
PROTOCOLS = {"classic": "", "consumer": "consumer protocol: "}
"""The group protocols, and the prefix of the names of their tests."""
EPOCH_TIMEOUT_S = 120
COMMITTED, REFUSED = "committed", "ILLEGAL_GENERATION"
"""What `app.mjs epoch` prints."""
MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def main() -> None:
    runtime = f"node-{sys.platform}-{MACHINES[platform.machine().lower()]}"
    packages = {PACKAGE: script.pin(PACKAGE), runtime: script.pin("node")}
    modules = npm.install(script.work() / "package", packages) / "node_modules"
    os.environ["NODE_PATH"] = str(modules)

    def app(*words: str | int) -> list[str]:
        return [str(modules / runtime / "bin" / "node"), str(script.folder() / "app.mjs"), *map(str, words)]

    for protocol, prefix in PROTOCOLS.items():
        topic, into = f"in-{protocol}", f"out-{protocol}"

        def fill(first: int, count: int, topic: str = topic, into: str = into) -> list[str]:
            return app("fill", topic, into, script.replicas(), first, count)

        counting.run(
            fill=fill,
            work=app("work", topic, into, protocol),
            read=[sys.executable, str(script.folder() / "read.py"), into],
            records=RECORDS,
            prefix=prefix,
            log_name=f"application-{protocol}",
        )
    script.output(app("fill", "in-epoch", "out-epoch", script.replicas(), 0, 1), EPOCH_TIMEOUT_S)
    said = script.output(app("epoch", "in-epoch", "out-epoch"), EPOCH_TIMEOUT_S, status=None)
    if COMMITTED not in said and REFUSED not in said:
        raise RuntimeError("the transaction is neither committed nor refused with the expected error")
    with script.test("consumer protocol: a transaction sends offsets with the member's epoch"):
        assert REFUSED not in said, REFUSED


script.run(main)
