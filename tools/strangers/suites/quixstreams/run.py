"""EDGE: runs a Quix Streams application with state and exactly-once; kills it and its brokers in turn."""

from __future__ import annotations

from tools.strangers import counting, pip, script

RECORDS = 6000


def main() -> None:
    python = pip.venv([f"quixstreams=={script.pin('quixstreams')}"], script.work() / "venv")

    def app(*words: str | int) -> list[str]:
        return [str(python), str(script.folder() / "app.py"), *map(str, words)]

    address, replicas = script.bootstrap(), script.replicas()
    counting.run(
        fill=lambda first, count: app("fill", address, "in", replicas, first, count),
        work=app("count", address, "in", "out", replicas, str(script.scratch() / "state")),
        read=app("read", address, "out"),
        records=RECORDS,
    )


script.run(main)
