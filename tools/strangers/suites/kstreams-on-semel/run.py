"""EDGE: runs kstreams' own tests and an application that is restarted, on semel's client."""

from __future__ import annotations

import shutil

from tools.strangers import pip, script
from tools.strangers.stand_in import client

PACKAGES = [
    "pytest==9.0.2",
    "pytest-asyncio==1.3.0",
    "pytest-benchmark==5.1.0",
    "pytest-httpserver==1.1.3",
    "pytest-timeout==2.4.0",
    "fastapi==0.121.0",
    "starlette-prometheus==0.10.0",
    "aiorun==2025.1.1",
    "httpx==0.28.1",
]
RECORDS = 500


def main() -> None:
    version = script.pin("kstreams")
    checkout = script.checkout(tag=version)
    python = pip.venv([f"kstreams=={version}", *client.packages(), *PACKAGES], script.work() / "venv")
    source = script.work() / "source"
    shutil.rmtree(source, ignore_errors=True)
    for folder in ("tests", "examples"):
        shutil.copytree(checkout / folder, source / folder)
    shutil.copy(checkout / "pyproject.toml", source)
    # Python 3.11 sometimes fails to parse the source for shorter tracebacks.
    words = ["tests", "--timeout=60", "--benchmark-disable", "--tb=native"]
    log = script.scratch() / "pytest.log"
    script.report_all(pip.pytest(python, source, log, words, client.variables(), without="tests."))
    with script.test("an application reads a topic, writes another and commits, over a restart"):
        command = [str(python), str(script.folder() / "app.py"), script.bootstrap(), str(RECORDS)]
        assert "all records once" in script.output(command, 120, environment=client.variables())


script.run(main)
