"""EDGE: runs promtool on the rules of deploy/monitoring and on their tests, which need no broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.strangers import gomod, script

MODULE = "github.com/prometheus/prometheus"
MONITORING = Path(__file__).parents[4] / "deploy" / "monitoring"
LIMIT_S = 120


def promtool(program: Path, *words: str) -> None:
    """Run promtool in the folder of the rules. Raises AssertionError with its output."""
    ended = subprocess.run([program, *words], cwd=MONITORING, capture_output=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr).decode()


def main() -> None:
    program = gomod.program(f"{MODULE}/cmd/promtool", script.pin(MODULE), script.work() / "bin")
    with script.test("the rules and the settings of Prometheus are valid"):
        promtool(program, "check", "rules", "rules.yml")
        promtool(program, "check", "config", "--syntax-only", "prometheus.yml")
    with script.test("each alert fires and is silent when its tests say so"):
        promtool(program, "test", "rules", "rules.test.yml")


script.run(main)
