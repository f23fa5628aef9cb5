"""The site has a row for each metric; rules and dashboard name only what exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from semel_broker.metrics.exporter import FAMILIES, SECTIONS
from semel_broker.metrics.families import MetricType

from tools.dashboard import FILE, text
from tools.website.made.metrics import part

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/monitoring/rules.yml"
PAGE = ROOT / "docs/metrics.md"
FOLDER = ROOT / "broker/semel_broker/metrics"


def test_the_tables_have_each_metric() -> None:
    tables = part()
    for section in SECTIONS:
        assert f"\n### {section.name}\n" in tables
    for family in FAMILIES:
        assert f"\n| `{family.name}` | " in tables


def test_each_reader_is_among_the_sections() -> None:
    declared = [path for path in FOLDER.glob("*.py") if "SECTION: Final = Section(" in path.read_text()]
    assert len(declared) == len(SECTIONS)
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_the_dashboard_is_what_its_table_says() -> None:
    assert FILE.read_text() == text(), "run `make map`"


@pytest.mark.parametrize("file", [RULES, FILE], ids=lambda file: file.name)
def test_only_metrics_that_exist_are_queried(file: Path) -> None:
    known = {family.name for family in FAMILIES}
    known |= {f"{each.name}_bucket" for each in FAMILIES if each.kind is MetricType.HISTOGRAM}
    asked = sorted(set(re.findall(r"\bsemel_[a-z_]+", file.read_text())))
    assert len(asked) > 10
    assert [name for name in asked if name not in known] == []


def test_each_rule_has_a_runbook_that_exists() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    headings = [line.removeprefix("### ").strip() for line in PAGE.read_text().splitlines() if line.startswith("### ")]
    anchors = {"docs/metrics.md#" + re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
    assert [rule["annotations"]["runbook"] for rule in rules if rule["annotations"]["runbook"] not in anchors] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", RULES],
        ["check", "config", "--syntax-only", ROOT / "deploy/monitoring/prometheus.yml"],
        ["test", "rules", ROOT / "deploy/monitoring/rules.test.yml"],
    ],
    ids=["rules", "configuration", "alerts"],
)
def test_promtool_accepts_rules_and_configuration_and_alerts_fire(arguments: list[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
