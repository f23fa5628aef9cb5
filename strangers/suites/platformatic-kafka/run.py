"""EDGE: runs a transactional application with @platformatic/kafka under kills, on a recent enough Node from npm."""

from __future__ import annotations

import os
import platform
import sys

from strangers import counting, npm, script

PACKAGE = "@platformatic/kafka"
RECORDS = 3000
MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def main() -> None:
    runtime = f"node-{sys.platform}-{MACHINES[platform.machine().lower()]}"
    packages = {PACKAGE: script.pin(PACKAGE), runtime: script.pin("node")}
    modules = npm.install(script.work() / "package", packages) / "node_modules"
    os.environ["NODE_PATH"] = str(modules)

    def app(*words: str | int) -> list[str]:
        return [str(modules / runtime / "bin" / "node"), str(script.folder() / "app.mjs"), *map(str, words)]

    counting.run(
        fill=lambda first, count: app("fill", "in", "out", script.replicas(), first, count),
        work=app("work", "in", "out"),
        read=app("read", "out"),
        records=RECORDS,
    )


script.run(main)
