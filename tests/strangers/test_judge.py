"""A run is clean if its failures are those that are listed; a new failure and a new pass both fail the tier."""

from __future__ import annotations

import json

import pytest

from tools.strangers.judge import NOTHING_TO_RUN, RunEnding, RunJudgement, judge
from tools.strangers.suite import ExpectedFailure, Suite

ENDED_WELL = RunEnding(status=0)


def suite(*expected: ExpectedFailure) -> Suite:
    return Suite(title="x", language="Go", pins={"x": "1"}, name="x", expected_failure=list(expected))


def expect(test: str, *, sometimes: bool = False) -> ExpectedFailure:
    return ExpectedFailure(test=test, reason=f"{test} is known", sometimes=sometimes)


def line(test: str, outcome: str, message: str = "") -> str:
    return json.dumps({"test": test, "outcome": outcome, "message": message})


def judged(*lines: str, ending: RunEnding = ENDED_WELL, expected: tuple[ExpectedFailure, ...] = ()) -> RunJudgement:
    return judge(suite(*expected), "semel", 1, lines, ending)


def test_a_run_whose_tests_pass_is_clean() -> None:
    verdict = judged(line("a", "passed"), line("b", "skipped", "no docker"))
    assert verdict.is_clean
    assert verdict.passed == ["a"]
    assert [(each.test, each.message) for each in verdict.skipped] == [("b", "no docker")]


def test_an_unlisted_failure_fails_the_tier() -> None:
    verdict = judged(line("a", "passed"), line("b", "failed", "lost 3 records"))
    assert not verdict.is_clean
    assert [(each.test, each.message) for each in verdict.new_failures] == [("b", "lost 3 records")]


def test_a_listed_failure_is_expected_and_keeps_its_reason() -> None:
    verdict = judged(line("b", "failed", "no"), expected=(expect("b"),))
    assert verdict.is_clean
    assert [(each.test, reason) for each, reason in verdict.expected] == [("b", "b is known")]


def test_an_expected_failure_that_passes_fails_the_tier() -> None:
    verdict = judged(line("b", "passed"), expected=(expect("b"),))
    assert not verdict.is_clean
    assert verdict.new_passes == ["b"]


def test_a_pattern_holds_as_long_as_one_of_its_tests_fails() -> None:
    verdict = judged(line("b/1", "passed"), line("b/2", "failed"), expected=(expect("b/*"),))
    assert verdict.is_clean


def test_an_expected_failure_that_was_skipped_is_no_new_pass() -> None:
    assert judged(line("b", "skipped"), expected=(expect("b"),)).is_clean


def test_a_failure_that_depends_on_timing_may_pass() -> None:
    assert judged(line("b", "passed"), expected=(expect("b", sometimes=True),)).is_clean


def test_an_expectation_that_names_no_test_fails_the_tier() -> None:
    verdict = judged(line("b", "passed"), expected=(expect("c", sometimes=True),))
    assert not verdict.is_clean
    assert verdict.unknown == ["c"]


def test_expected_failures_of_another_broker_do_not_apply() -> None:
    of_kafka = ExpectedFailure(test="b", reason="Kafka's own", on=("kafka",))
    assert not judge(suite(of_kafka), "semel", 1, [line("b", "failed")], ENDED_WELL).is_clean
    assert judge(suite(of_kafka), "kafka", 1, [line("b", "failed")], ENDED_WELL).is_clean


def test_of_two_results_for_one_test_the_worse_counts() -> None:
    assert not judged(line("a", "failed"), line("a", "passed")).is_clean
    assert judged(line("a", "skipped"), line("a", "passed")).passed == ["a"]


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (RunEnding(status=1, last_line="KeyError: 'x'"), "ended with status 1: KeyError: 'x'"),
        (RunEnding(status=None, timeout_s=60), "did not end within 60 s"),
        (RunEnding(status=0, problems=["the broker ended by itself"]), "the broker ended by itself"),
        (RunEnding(status=NOTHING_TO_RUN, last_line="no network"), "ended with status 77: no network"),
    ],
)
def test_a_run_that_breaks_fails_the_tier_whatever_its_tests_say(ending: RunEnding, words: str) -> None:
    verdict = judged(line("a", "passed"), ending=ending, expected=(expect("b"),))
    assert not verdict.is_clean
    assert any(words in each for each in verdict.broken)
    assert verdict.unknown == [], "a run that stopped early says nothing about tests that it has not reached"


def test_a_run_without_a_result_fails_the_tier() -> None:
    assert judged().broken == ["it ran no test"]


def test_a_line_that_is_no_result_fails_the_tier() -> None:
    verdict = judged(line("a", "passed"), '{"test": "b", "outcome": "perhaps"}', "", "not JSON")
    assert verdict.broken == ['not a result: {"test": "b", "outcome": "perhaps"}', "not a result: not JSON"]


def test_a_missing_tool_is_reported_and_is_no_failure() -> None:
    verdict = judged(
        ending=RunEnding(status=NOTHING_TO_RUN, last_line="go is not on this machine"), expected=(expect("b"),)
    )
    assert verdict.is_clean
    assert verdict.not_run == "go is not on this machine"


def test_a_dead_broker_fails_the_tier_also_without_a_test() -> None:
    assert not judged(ending=RunEnding(status=NOTHING_TO_RUN, problems=["the broker ended by itself"])).is_clean
