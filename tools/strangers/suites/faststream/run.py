"""EDGE: runs FastStream's own tests of its two Kafka brokers (marked as connected), from a checkout of its tag."""

from __future__ import annotations

import shutil

from tools.strangers import pip, script

EXTRAS = "kafka,confluent,rabbit,nats,redis,mqtt,cli,otel,prometheus"
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
TESTS = ["tests/brokers/kafka", "tests/brokers/confluent"]


def main() -> None:
    version = script.pin("faststream")
    checkout = script.checkout(tag=version)
    python = pip.venv([f"faststream[{EXTRAS}]=={version}", *PACKAGES], script.work() / "venv")
    source = script.work() / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout / "tests", source / "tests")
    shutil.copy(checkout / "pyproject.toml", source)
    for folder in TESTS:
        settings = source / folder / "settings.py"
        settings.write_text(settings.read_text().replace("localhost:9092", script.bootstrap().split(",")[0]))
        conftest = source / folder / "conftest.py"
        ours = (script.folder() / "conftest.py.txt").read_text()
        conftest.write_text(conftest.read_text() + ours.replace("MODULE", f"faststream.{conftest.parent.name}"))
    words = [*TESTS, "-m", "connected and not slow", "--timeout=60"]
    script.report_all(pip.pytest(python, source, script.scratch() / "pytest.log", words, {}, without="tests.brokers."))


script.run(main)
