"""A suite.toml defines a suite; a mistake is an error with the name of the suite."""

from __future__ import annotations

import pytest

from tools.strangers.suite import ExpectedFailure, SuiteError, chosen, parse

SMALL = """
title = "franz-go"
language = "Go"
pins = { franz-go = "1.22.2", kadm = ["1.19.0", "1.20.0"] }
"""


def expectation(test: str) -> ExpectedFailure:
    return ExpectedFailure(test=test, reason="known")


def test_a_minimal_suite_has_defaults() -> None:
    suite = parse("franz-go", SMALL)
    assert suite.name == "franz-go"
    assert suite.brokers == (1, 3)
    assert suite.against == ("semel", "kafka")
    assert suite.versions == "franz-go 1.22.2, kadm 1.19.0, 1.20.0"


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("title = ", "franz-go/suite.toml"),
        (SMALL + "needz = ['go']\n", "needz"),
        (SMALL + "against = ['redpanda']\n", "redpanda"),
        (SMALL + "source = 'checkout'\n", "does not name its folder"),
        (SMALL.replace('{ franz-go = "1.22.2", kadm = ["1.19.0", "1.20.0"] }', "{}"), "nothing is pinned"),
        (SMALL + "[[expected_failure]]\ntest = 'x'\n", "reason"),
    ],
)
def test_a_mistake_is_refused_with_the_name_of_the_suite(toml: str, words: str) -> None:
    with pytest.raises(SuiteError, match=r"franz-go/suite\.toml") as refused:
        parse("franz-go", toml)
    assert words in str(refused.value)


def test_settings_of_one_kind_of_broker_override_common_ones() -> None:
    suite = parse(
        "franz-go",
        SMALL + "set = { a = 1, b = true }\nset_semel = { b = false, c = 'x' }\nset_kafka = { d = 5 }\n",
    )
    assert suite.settings("semel") == {"a": "1", "b": "false", "c": "x"}
    assert suite.settings("kafka") == {"a": "1", "b": "true", "d": "5"}


def test_a_suite_gives_the_reason_for_unsupported_runs() -> None:
    suite = parse("franz-go", SMALL + "brokers = [3]\nagainst = ['semel']\n")
    assert suite.lacks("semel", 3) == ""
    assert suite.lacks("semel", 1) == "it is not for 1 brokers"
    assert suite.lacks("kafka", 3) == "it is not for kafka"


@pytest.mark.parametrize(
    ("pattern", "test", "is_named"),
    [
        ("TestA", "TestA", True),
        ("TestA", "TestAB", False),
        ("TestA*", "TestA/sub", True),
        ("*A", "TestA", True),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abde", False),
        ("ab*ba", "aba", False),
        ("*", "anything", True),
        ("test_x[gzip]", "test_x[gzip]", True),
        ("test_x[*]", "test_x[gzip]", True),
        ("test_x[gzip]", "test_xg", False),
    ],
)
def test_a_star_matches_any_text_and_a_bracket_itself(pattern: str, test: str, is_named: bool) -> None:
    assert expectation(pattern).names(test) is is_named


def test_expected_failures_hold_for_the_brokers_and_numbers_that_they_name() -> None:
    suite = parse(
        "franz-go",
        SMALL
        + """
[[expected_failure]]
test = "TestA"
reason = "here only"
[[expected_failure]]
test = "TestB"
reason = "everywhere, with one broker"
on = ["semel", "kafka"]
brokers = [1]
""",
    )
    assert [each.test for each in suite.expected("semel", 1)] == ["TestA", "TestB"]
    assert [each.test for each in suite.expected("semel", 3)] == ["TestA"]
    assert [each.test for each in suite.expected("kafka", 1)] == ["TestB"]


def test_suites_are_chosen_by_name_and_an_unknown_name_is_refused() -> None:
    found = [parse("a", SMALL), parse("b", SMALL), parse("c", SMALL)]
    assert chosen(found, []) == found
    assert [each.name for each in chosen(found, ["c", "a"])] == ["c", "a"]
    with pytest.raises(SuiteError, match="there is no suite d; there are a, b, c"):
        chosen(found, ["a", "d"])
