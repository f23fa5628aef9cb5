"""The page "How exactly once works here" names safeguards and codes that exist."""

import re
from pathlib import Path

from semel_protocol.errors import ErrorCode
from sim.ablations import ABLATIONS

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs/exactly-once.md").read_text().split())
STATES = (
    "storage/semel_storage/producers/producers.py",
    "broker/semel_broker/txn/model/state.py",
    "broker/semel_broker/groups/classic/state.py",
)


def test_each_safeguard_of_the_page_is_an_ablation() -> None:
    named = [name for part in re.findall(r"Safeguards: ([^.]+)\.", PAGE) for name in re.findall(r'"([^"]+)"', part)]
    assert len(named) > 25
    assert not set(named) - set(ABLATIONS)


def test_each_code_of_the_page_is_one_of_the_protocol() -> None:
    states = {"PREPARE_COMMIT", "PREPARE_ABORT"}
    codes = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", PAGE)) - states
    assert codes <= set(ErrorCode.__members__), codes - set(ErrorCode.__members__)


def test_page_and_state_files_point_at_each_other() -> None:
    for file in STATES:
        assert f"`{file}`" in PAGE
        assert "docs/exactly-once.md" in (ROOT / file).read_text()
