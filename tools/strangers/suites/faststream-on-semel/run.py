"""EDGE: runs FastStream's own tests of its aiokafka broker on semel's client, from a checkout of its tag."""

from __future__ import annotations

import shutil

from tools.strangers import pip, script
from tools.strangers.runner import SUITES
from tools.strangers.stand_in import client

EXTRAS = "confluent,rabbit,nats,redis,mqtt,cli,otel,prometheus"
"""Without aiokafka. The suite's conftest.py imports the other brokers."""
PACKAGES = [
    "pytest==9.0.3",
    "pytest-asyncio==1.3.0",
    "pytest-rerunfailures==16.1",
    "pytest-timeout==2.4.0",
    "pytest-xdist==3.8.0",
    "dirty-equals==0.11",
    "httpx==0.28.1",
    "freezegun==1.5.5",
    "fastapi==0.140.0",
    "pydantic-settings==2.12.0",
    "PyYAML==6.0.3",
    "email-validator==2.3.0",
    "uvicorn==0.38.0",
    "psutil==7.2.2",
]
TESTS = "tests/brokers/kafka"


def main() -> None:
    version = script.pin("faststream")
    checkout = script.checkout(tag=version)
    python = pip.venv([f"faststream[{EXTRAS}]=={version}", *client.packages(), *PACKAGES], script.work() / "venv")
    source = script.work() / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout / "tests", source / "tests")
    shutil.copy(checkout / "pyproject.toml", source)
    settings = source / TESTS / "settings.py"
    settings.write_text(settings.read_text().replace("localhost:9092", script.bootstrap().split(",")[0]))
    conftest = source / TESTS / "conftest.py"
    ours = (SUITES / "faststream" / "conftest.py.txt").read_text()
    conftest.write_text(conftest.read_text() + ours.replace("MODULE", "faststream.kafka"))
    words = [TESTS, "-m", "not slow", "--timeout=60"]
    log = script.scratch() / "pytest.log"
    script.report_all(pip.pytest(python, source, log, words, client.variables(), without="tests.brokers."))


script.run(main)
