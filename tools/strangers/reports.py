"""Parses the reports of test runners: `go test -json`, JUnit's XML, Jest's JSON, librdkafka's summary *(pure)*."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

from tools.strangers.judge import Outcome, ResultLine

GO: dict[str, Outcome] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
JEST: dict[str, Outcome] = {"passed": "passed", "failed": "failed"}
LIBRDKAFKA: dict[str, Outcome] = {"PASSED": "passed", "SKIPPED": "skipped", "FAILED": "failed", "RUNNING": "failed"}
LIBRDKAFKA_ROW = re.compile(r"^\| (\d{4}_\w+) +\| +([A-Z]+) \| +[\d.]+s \|(.*)$", re.MULTILINE)
LIBRDKAFKA_FAILURE = re.compile(r"^### Test \"(\d{4}_\w+)[^\n]* failed at [^\n]*\n([^\n]*)", re.MULTILINE)
NOT_CHOSEN = "Filtered due to"
"""librdkafka's reason for the skip of a test that the run did not ask for; of another scenario: no reason at all."""
COLOR = re.compile(r"\x1b\[[0-9;]*m")
LINES_MAX = 6
"""The number of last lines of a failed test that its message keeps."""


def of_go(lines: Iterable[str]) -> list[ResultLine]:
    """Parse `go test -json`; names are "package.Test/subtest", with the last part of the package's path.

    A test without an outcome failed: a panic or the time limit ended its package. A package that failed without a
    failed test also counts as a failure: it was not built, or ended outside a test.
    """
    outcomes: dict[str, Outcome] = {}
    said: dict[str, list[str]] = {}
    packages: dict[str, str] = {}
    for line in lines:
        event = _event(line)
        package = str(event.get("Package") or event.get("ImportPath") or "").partition(" ")[0].rpartition("/")[2]
        test = f"{package}.{event['Test']}" if "Test" in event else package
        action = str(event.get("Action", ""))
        if action in ("output", "build-output"):
            said.setdefault(test, []).append(str(event.get("Output", "")).strip())
        elif "Test" not in event:
            packages[package] = action if action in ("fail", "build-fail") else packages.get(package, "")
        elif action == "run":
            outcomes.setdefault(test, "failed")
        elif action in GO:
            outcomes[test] = GO[action]
    for package, action in packages.items():
        has_failure = any(test.startswith(package + ".") and of == "failed" for test, of in outcomes.items())
        if action and not has_failure:
            outcomes[package] = "failed"
    return [ResultLine(test, outcome, _last(said.get(test, []), outcome)) for test, outcome in outcomes.items()]


def _event(line: str) -> dict[str, Any]:
    """Parse a line of `go test -json`; tested programs write other lines between them."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _last(said: list[str], outcome: Outcome) -> str:
    """Return the last informative lines."""
    if outcome == "passed":
        return ""
    telling = [words for words in said if words and not words.startswith(("=== ", "--- "))]
    return " / ".join(telling[-LINES_MAX:] if outcome == "failed" else telling[-1:])


def of_junit(xml: str, without: str = "") -> list[ResultLine]:
    """Parse JUnit's XML as written by pytest; names are "class::name". `without`: a prefix that all classes share."""
    results = []
    for case in ElementTree.fromstring(xml).iter("testcase"):
        outcome: Outcome = "passed"
        message = ""
        for child in case:
            if child.tag in ("failure", "error"):
                outcome, message = "failed", child.get("message") or child.text or ""
            elif child.tag == "skipped" and outcome == "passed":
                outcome, message = "skipped", child.get("message") or ""
        where = (case.get("classname") or "").removeprefix(without)
        results.append(ResultLine(f"{where}::{case.get('name')}" if where else str(case.get("name")), outcome, message))
    return results


def of_jest(report: str, root: str) -> list[ResultLine]:
    """Parse `jest --json`; names are "path: describe > test". A file that did not run is a failure. `root`: its
    folder.
    """
    results = []
    for file in json.loads(report)["testResults"]:
        path = str(file["name"]).removeprefix(root).lstrip("/")
        for each in file["assertionResults"]:
            name = " > ".join([*each["ancestorTitles"], each["title"]])
            messages = each.get("failureMessages") or [""]
            results.append(ResultLine(f"{path}: {name}", JEST.get(each["status"], "skipped"), str(messages[0])))
        if not file["assertionResults"] and file["status"] == "failed":
            results.append(ResultLine(path, "failed", str(file.get("message", ""))))
    return results


def of_librdkafka(log: str, number: str) -> list[ResultLine]:
    """Parse what librdkafka's test runner prints for the tests of a number: a summary, or the failure that ended it.

    Without both the runner broke off: a failure by the name of the number.
    """
    text = COLOR.sub("", log)
    broken = {name: message for name, message in LIBRDKAFKA_FAILURE.findall(text) if name.startswith(number)}
    rows = [
        ResultLine(name, LIBRDKAFKA[state], message.strip())
        for name, state, message in LIBRDKAFKA_ROW.findall(text)
        if name.startswith(number) and state in LIBRDKAFKA
    ]
    if not rows and broken:
        return [ResultLine(name, "failed", message) for name, message in broken.items()]
    if not rows:
        return [
            ResultLine(number, "failed", "the runner ended without a summary: " + _last(text.splitlines(), "failed"))
        ]
    return [each for each in rows if each.outcome != "skipped" or not _is_unasked(each.message)]


def _is_unasked(reason: str) -> bool:
    return not reason or reason.startswith(NOT_CHOSEN)
