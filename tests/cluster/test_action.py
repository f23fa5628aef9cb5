"""The action for GitHub's workflows: its script starts a broker that outlives it, or says why there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from semel import Admin, NewTopic

FOLDER = Path(__file__).parents[2] / "deploy/github-action"


class ActionRun:
    """A job whose step runs the script with the settings given, and this Python in place of the package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs"

    def start(self, settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(FOLDER / "start.sh")],
            env={
                **os.environ,
                "RUNNER_TEMP": str(self.folder),
                "GITHUB_OUTPUT": str(self.outputs),
                "PYTHON": sys.executable,
                "PACKAGE": "",
                "PORT": "0",
                "SETTINGS": settings,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def brokers(self) -> list[psutil.Process]:
        marks = str(self.folder)
        return [
            each
            for each in psutil.process_iter(["cmdline"])
            if "semel_broker" in (line := " ".join(each.info["cmdline"] or [])) and marks in line
        ]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[ActionRun]:
    run = ActionRun(tmp_path)
    yield run
    for each in run.brokers():
        each.send_signal(signal.SIGTERM)
        each.wait(30)


async def test_the_broker_serves_the_steps_after_it(job: ActionRun) -> None:
    done = job.start("num.partitions=3\nmetrics.listener=\n")
    assert done.returncode == 0, done.stdout + done.stderr
    name, _, address = job.outputs.read_text().strip().partition("=")
    assert name in yaml.safe_load((FOLDER / "action.yml").read_text())["outputs"]
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("orders")])
        (topic,) = await admin.describe_topics(["orders"])
        assert len(topic.partitions) == 3, "the setting"
    assert len(job.brokers()) == 1


def test_the_reason_of_a_failed_start_is_printed(job: ActionRun) -> None:
    done = job.start("num.partition=3")
    assert done.returncode == 1
    assert "::error::the broker did not start" in done.stdout
    assert "did you mean num.partitions?" in done.stdout
    assert job.brokers() == []


def test_the_step_passes_each_input_to_the_script() -> None:
    action = yaml.safe_load((FOLDER / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    passed = " ".join(step["env"].values())
    assert all(f"${{{{ inputs.{name} " in passed for name in action["inputs"])
    script = (FOLDER / "start.sh").read_text()
    assert all(f"${name}" in script or f"${{{name}" in script for name in step["env"])
