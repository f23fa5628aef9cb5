"""Reports of test runners are parsed to results."""

from __future__ import annotations

import json

from strangers.judge import Result
from strangers.reports import of_go, of_jest, of_junit


def go(*events: dict[str, str]) -> list[str]:
    return [json.dumps({"Package": "example.com/some/kgo", **event}) for event in events]


def test_go_tests_are_named_by_package_and_test() -> None:
    lines = go(
        {"Action": "run", "Test": "TestA"},
        {"Action": "output", "Test": "TestA", "Output": "=== RUN   TestA\n"},
        {"Action": "pass", "Test": "TestA"},
        {"Action": "run", "Test": "TestB/one"},
        {"Action": "output", "Test": "TestB/one", "Output": "    b_test.go:7: not on this broker\n"},
        {"Action": "skip", "Test": "TestB/one"},
        {"Action": "pass"},
    )
    assert of_go(lines) == [
        Result("kgo.TestA", "passed"),
        Result("kgo.TestB/one", "skipped", "b_test.go:7: not on this broker"),
    ]


def test_a_go_test_without_a_verdict_failed() -> None:
    lines = go(
        {"Action": "run", "Test": "TestA"},
        {"Action": "output", "Test": "TestA", "Output": "panic: nil pointer\n"},
        {"Action": "fail"},
    )
    assert of_go(lines) == [Result("kgo.TestA", "failed", "panic: nil pointer")]


def test_a_go_package_that_is_not_built_is_a_failure_of_its_own() -> None:
    built = {"Action": "build-output", "ImportPath": "example.com/some/kgo", "Output": "kgo.go:1: syntax error\n"}
    assert of_go([json.dumps(built), *go({"Action": "fail"})]) == [Result("kgo", "failed", "kgo.go:1: syntax error")]


def test_lines_that_a_go_test_prints_are_ignored() -> None:
    lines = ["[DEBUG] connected", "7", *go({"Action": "run", "Test": "TestA"}, {"Action": "pass", "Test": "TestA"})]
    assert of_go(lines) == [Result("kgo.TestA", "passed")]


JUNIT = """<testsuites><testsuite>
<testcase classname="tests.test_a.TestA" name="test_one[x]" time="1"/>
<testcase classname="tests.test_a.TestA" name="test_two"><failure message="1 != 2"/></testcase>
<testcase classname="tests.test_a.TestA" name="test_three"><skipped message="no TLS"/></testcase>
<testcase classname="tests.test_a.TestA" name="test_four"><error message="failed on setup">trace</error></testcase>
</testsuite></testsuites>"""


def test_junit_errors_are_failures_and_names_lose_the_common_prefix() -> None:
    assert of_junit(JUNIT, without="tests.") == [
        Result("test_a.TestA::test_one[x]", "passed"),
        Result("test_a.TestA::test_two", "failed", "1 != 2"),
        Result("test_a.TestA::test_three", "skipped", "no TLS"),
        Result("test_a.TestA::test_four", "failed", "failed on setup"),
    ]


def test_jest_tests_are_named_by_path_and_titles_and_a_file_that_does_not_run_fails() -> None:
    one = {"ancestorTitles": ["Admin", "create"], "title": "works", "status": "passed", "failureMessages": []}
    two = {"ancestorTitles": [], "title": "fails", "status": "failed", "failureMessages": ["Error: no\n at x"]}
    three = {"ancestorTitles": [], "title": "later", "status": "pending", "failureMessages": []}
    files = [
        {"name": "/w/src/a.spec.js", "status": "failed", "assertionResults": [one, two, three]},
        {"name": "/w/src/b.spec.js", "status": "failed", "assertionResults": [], "message": "Cannot find module"},
    ]
    assert of_jest(json.dumps({"testResults": files}), "/w") == [
        Result("src/a.spec.js: Admin > create > works", "passed"),
        Result("src/a.spec.js: fails", "failed", "Error: no\n at x"),
        Result("src/a.spec.js: later", "skipped"),
        Result("src/b.spec.js", "failed", "Cannot find module"),
    ]
