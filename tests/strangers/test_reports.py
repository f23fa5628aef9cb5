"""Reports of test runners are parsed to results."""

from __future__ import annotations

import json

from tools.strangers.judge import ResultLine
from tools.strangers.reports import of_go, of_jest, of_junit, of_librdkafka


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
        ResultLine("kgo.TestA", "passed"),
        ResultLine("kgo.TestB/one", "skipped", "b_test.go:7: not on this broker"),
    ]


def test_a_go_test_without_a_verdict_failed() -> None:
    lines = go(
        {"Action": "run", "Test": "TestA"},
        {"Action": "output", "Test": "TestA", "Output": "panic: nil pointer\n"},
        {"Action": "fail"},
    )
    assert of_go(lines) == [ResultLine("kgo.TestA", "failed", "panic: nil pointer")]


def test_a_go_package_that_is_not_built_is_a_failure_of_its_own() -> None:
    built = {"Action": "build-output", "ImportPath": "example.com/some/kgo", "Output": "kgo.go:1: syntax error\n"}
    assert of_go([json.dumps(built), *go({"Action": "fail"})]) == [
        ResultLine("kgo", "failed", "kgo.go:1: syntax error")
    ]


def test_lines_that_a_go_test_prints_are_ignored() -> None:
    lines = ["[DEBUG] connected", "7", *go({"Action": "run", "Test": "TestA"}, {"Action": "pass", "Test": "TestA"})]
    assert of_go(lines) == [ResultLine("kgo.TestA", "passed")]


JUNIT = """<testsuites><testsuite>
<testcase classname="tests.test_a.TestA" name="test_one[x]" time="1"/>
<testcase classname="tests.test_a.TestA" name="test_two"><failure message="1 != 2"/></testcase>
<testcase classname="tests.test_a.TestA" name="test_three"><skipped message="no TLS"/></testcase>
<testcase classname="tests.test_a.TestA" name="test_four"><error message="failed on setup">trace</error></testcase>
</testsuite></testsuites>"""


def test_junit_errors_are_failures_and_names_lose_the_common_prefix() -> None:
    assert of_junit(JUNIT, without="tests.") == [
        ResultLine("test_a.TestA::test_one[x]", "passed"),
        ResultLine("test_a.TestA::test_two", "failed", "1 != 2"),
        ResultLine("test_a.TestA::test_three", "skipped", "no TLS"),
        ResultLine("test_a.TestA::test_four", "failed", "failed on setup"),
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
        ResultLine("src/a.spec.js: Admin > create > works", "passed"),
        ResultLine("src/a.spec.js: fails", "failed", "Error: no\n at x"),
        ResultLine("src/a.spec.js: later", "skipped"),
        ResultLine("src/b.spec.js", "failed", "Cannot find module"),
    ]


LIBRDKAFKA = """
[0045_subscribe_update      /  1.2s] lines of the test
TEST 20261128 (bare, scenario default) SUMMARY
#==================================================================#
|\x1b[36m <MAIN>                                   |     PASSED |  16.010s \x1b[0m|
|\x1b[32m 0045_subscribe_update                    |     PASSED |  11.234s \x1b[0m|
|\x1b[31m 0045_resubscribe_with_regex              |     FAILED |   0.100s \x1b[0m|\x1b[31m f():7: no topic\x1b[0m
|\x1b[35m 0045_subscribe_many_updates              |    RUNNING |   9.000s \x1b[0m|
|\x1b[36m 0045_subscribe_update_mock               |    SKIPPED |   0.000s \x1b[0m| Filtered due to negative test flags
|\x1b[36m 0045_subscribe_update_topic_remove       |    SKIPPED |   0.000s \x1b[0m|
|\x1b[36m 0045_rapid                               |    SKIPPED |   0.000s \x1b[0m| RapidJSON >=1.1.0 not available
|\x1b[33m 0046_later                               |        DNS |   0.000s \x1b[0m|
"""


def test_librdkafka_tests_are_named_by_the_summary_without_those_of_other_runs() -> None:
    assert of_librdkafka(LIBRDKAFKA, "0045") == [
        ResultLine("0045_subscribe_update", "passed"),
        ResultLine("0045_resubscribe_with_regex", "failed", "f():7: no topic"),
        ResultLine("0045_subscribe_many_updates", "failed"),
        ResultLine("0045_rapid", "skipped", "RapidJSON >=1.1.0 not available"),
    ]


def test_a_librdkafka_test_that_ends_the_runner_is_named_with_its_message() -> None:
    log = '\x1b[31m### Test "0103_transactions (do_test:130)" failed at test.c:5370:f() at Sat: ###\x1b[0m\n'
    log += (
        'Topic result error: replication factor 3\n### Test "<MAIN>" failed at test.c:1950:g() at Sat: ###\n4 threads\n'
    )
    assert of_librdkafka(log, "0103") == [
        ResultLine("0103_transactions", "failed", "Topic result error: replication factor 3")
    ]


def test_a_librdkafka_runner_that_ends_without_a_summary_is_a_failure() -> None:
    (result,) = of_librdkafka("[0045_a / 1s] began\nSegmentation fault\n", "0045")
    assert (result.test, result.outcome) == ("0045", "failed")
    assert "Segmentation fault" in result.message
