"""EDGE: runs a transactional application of this repository with kafkajs; kills it and its brokers in turn."""

from __future__ import annotations

import os

from tools.strangers import counting, npm, script

RECORDS = 3000


def main() -> None:
    folder = npm.install(script.work() / "package", {"kafkajs": script.pin("kafkajs")})
    os.environ["NODE_PATH"] = str(folder / "node_modules")

    def app(*words: str | int) -> list[str]:
        return ["node", str(script.folder() / "app.js"), *map(str, words)]

    counting.run(
        fill=lambda first, count: app("fill", "in", "out", script.replicas(), first, count),
        work=app("work", "in", "out"),
        read=app("read", "out"),
        records=RECORDS,
    )


script.run(main)
