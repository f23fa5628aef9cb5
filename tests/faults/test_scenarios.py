"""Plays each scenario of `tests/scenarios` with real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from scenarios.language import VERBS, parse
from support.tiers import tiered

from faults.actor import Actor
from faults.scenario_run import ScenarioRun, Unmet, Unsupported

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.txt"))
QUICK = {
    "commit_answer_lost",
    "flipped_byte_in_synced_log",
    "kill_amid_commit",
    "timeout_while_paused",
    "torn_tail_while_down",
    "zombie_after_pause",
}
"""One scenario of each kind, for `make test`."""
LANES = 3
"""The number of scenarios played at the same time. They mostly wait for timeouts and for processes to start."""


class ScenarioThread:
    """A scenario in a thread with its own event loop. `lines`: its messages, for the report of a failed test."""

    def __init__(self, path: Path, directory: Path, pool: ThreadPoolExecutor) -> None:
        self.lines: list[str] = []
        self._stage = ScenarioRun(directory, self.lines.append)
        self._path = path
        self.outcome: Future[None] = pool.submit(self._run)

    def _run(self) -> None:
        asyncio.run(self._stage.play(parse(self._path.name, self._path.read_text())))


@pytest.fixture(scope="module")
def plays(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Path, ScenarioThread]]:
    """The selected scenarios; all are submitted to the pool at the start."""
    mine = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.module is request.module
    ]
    params = [item.callspec.params for item in mine if hasattr(item, "callspec")]
    chosen = [cast(Path, given["path"]) for given in params if "path" in given]
    with ThreadPoolExecutor(LANES) as pool:
        yield {path: ScenarioThread(path, tmp_path_factory.mktemp(path.stem), pool) for path in chosen}


@pytest.mark.parametrize("path", tiered(SCENARIOS, lambda path: path.stem in QUICK), ids=lambda path: path.stem)
def test_scenario(path: Path, plays: dict[Path, ScenarioThread]) -> None:
    play = plays[path]
    try:
        play.outcome.result()
    except Unsupported as why:
        pytest.skip(str(why))
    finally:
        print(*play.lines, sep="\n")


def test_every_verb_can_be_played() -> None:
    for name, verb in VERBS.items():
        if verb.by_client and name != "wait":
            assert hasattr(Actor, name), name
        elif not verb.by_client:
            assert hasattr(ScenarioRun, f"on_{name}"), name


async def test_an_unmet_step_of_a_scenario_is_reported_with_its_line(tmp_path: Path) -> None:
    text = "# about\nstart broker\ntopic out 1\nclient A id=tx\nA commit -> ok\nexpect all out 0 x\n"
    with pytest.raises(Unmet, match=r"wrong.txt:5: A commit -> ok: refused \(IllegalStateError"):
        await ScenarioRun(tmp_path).play(parse("wrong.txt", text))
    assert "ready" in (tmp_path / "broker.log").read_text()
    assert (tmp_path / "data" / "meta.properties").exists(), "what the broker left behind can be looked at"
