"""EDGE: runs Faust's own tests that need a broker, from its source distribution, and a counting table under kills."""

from __future__ import annotations

from tools.strangers import counting, pip, script

RECORDS = 3000
PACKAGES = ["pytest==9.0.2", "pytest-asyncio==1.3.0", "pytest-timeout==2.4.0", "confluent-kafka==2.16.1"]


def main() -> None:
    version = script.pin("faust-streaming")
    python = pip.venv([f"faust-streaming=={version}", *PACKAGES], script.work() / "venv")
    address, replicas = script.bootstrap(), script.replicas()
    source = pip.source("faust-streaming", version, script.work())
    words = ["tests/integration/broker", "--timeout=120", "-o", "addopts="]
    variables = {"FAUST_TEST_BROKER": f"kafka://{address.split(',')[0]}"}
    script.report_all(pip.pytest(python, source, script.scratch() / "pytest.log", words, variables, without="tests."))

    def app(*words: str | int) -> list[str]:
        return [str(python), str(script.folder() / "app.py"), *map(str, words)]

    counting.run(
        fill=lambda first, count: app("fill", address, "in", "out", replicas, first, count),
        work=app("count", address, "in", "out", replicas, str(script.scratch() / "state")),
        read=app("read", address, "out"),
        records=RECORDS,
    )


script.run(main)
