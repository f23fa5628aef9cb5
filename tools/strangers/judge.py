"""Judges a run: compares the results of a suite with the failures that its suite.toml expects *(pure)*."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from tools.strangers.suite import Against, ExpectedFailure, Suite

Outcome = Literal["passed", "failed", "skipped"]
NOTHING_TO_RUN = 77
"""The exit status of a script that cannot run because a tool, the network or a checkout is missing."""
GRAVITY: dict[Outcome, int] = {"skipped": 0, "passed": 1, "failed": 2}


class ResultLine(msgspec.Struct, frozen=True):
    """A line of the results file."""

    test: str
    outcome: Outcome
    message: str = ""


class RunEnding(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run: the exit of its script, and unexpected events of the brokers.

    `status`: the exit status, None if the script was killed after `timeout_s`; `last_line`: of its standard output.
    """

    status: int | None
    timeout_s: int = 0
    last_line: str = ""
    problems: list[str] = []


class RunJudgement(msgspec.Struct, kw_only=True):
    """The verdict on a run. `not_run`: the reason if nothing ran; all other fields are empty then.

    `broken`: problems of the run as a whole. `new_passes`: expected failures that passed. `unknown`: expected failures
    that name no test of this run.
    """

    not_run: str = ""
    broken: list[str] = []
    passed: list[str] = []
    skipped: list[ResultLine] = []
    expected: list[tuple[ResultLine, str]] = []
    new_failures: list[ResultLine] = []
    new_passes: list[str] = []
    unknown: list[str] = []

    @property
    def is_clean(self) -> bool:
        """Whether the run has no unexpected result."""
        return not (self.broken or self.new_failures or self.new_passes or self.unknown)


def results_of(lines: Iterable[str]) -> tuple[list[ResultLine], list[str]]:
    """Parse JSON lines into results and invalid lines. Of two results for one test the worse one counts."""
    found: dict[str, ResultLine] = {}
    bad = []
    for line in lines:
        if not line.strip():
            continue
        try:
            result = msgspec.json.decode(line, type=ResultLine)
        except (msgspec.ValidationError, msgspec.DecodeError):
            bad.append(line.strip())
            continue
        before = found.get(result.test)
        if before is None or GRAVITY[result.outcome] > GRAVITY[before.outcome]:
            found[result.test] = result
    return list(found.values()), bad


def judge(suite: Suite, against: Against, brokers: int, lines: Iterable[str], ending: RunEnding) -> RunJudgement:
    """Return the verdict on one run of a suite."""
    results, bad = results_of(lines)
    if ending.status == NOTHING_TO_RUN and not results:
        return RunJudgement(not_run=ending.last_line or "its script gave no reason", broken=list(ending.problems))
    verdict = RunJudgement(broken=list(ending.problems))
    if ending.status is None:
        verdict.broken.append(f"it did not end within {ending.timeout_s} s")
    elif ending.status != 0:
        verdict.broken.append(f"its script ended with status {ending.status}: {ending.last_line}")
    elif not results:
        verdict.broken.append("it ran no test")
    verdict.broken += [f"not a result: {line}" for line in bad]
    expected = suite.expected(against, brokers)
    for result in results:
        _place(verdict, result, expected)
    if ending.status == 0 and not ending.problems:
        for each in expected:
            _hold(verdict, each, results)
    return verdict


def _place(verdict: RunJudgement, result: ResultLine, expected: list[ExpectedFailure]) -> None:
    """Add a result to the matching list of the verdict."""
    if result.outcome == "passed":
        verdict.passed.append(result.test)
    elif result.outcome == "skipped":
        verdict.skipped.append(result)
    elif reasons := [each.reason for each in expected if each.names(result.test)]:
        verdict.expected.append((result, reasons[0]))
    else:
        verdict.new_failures.append(result)


def _hold(verdict: RunJudgement, expectation: ExpectedFailure, results: list[ResultLine]) -> None:
    """Report an expected failure that passed, or that names no test."""
    met = [each.outcome for each in results if expectation.names(each.test)]
    if not met:
        verdict.unknown.append(expectation.test)
    elif "failed" not in met and "passed" in met and not expectation.sometimes:
        verdict.new_passes.append(expectation.test)
