"""The stored record of a run, a small JSON file, and all records as a Markdown table *(pure)*."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tools.strangers.judge import RunJudgement
from tools.strangers.suite import KAFKA_RELEASE, Against, Suite

NAMES_MAX = 5
"""The most names of failed or skipped tests on the page; the file has all."""


class RecordedFailure(msgspec.Struct, kw_only=True):
    """A failed test. `reason`: why the failure was expected; empty if it was not."""

    test: str
    message: str = ""
    reason: str = ""


class RecordedRun(msgspec.Struct, kw_only=True):
    """One run of one suite. `date`: YYYY-MM-DD; `broker`: kind and version; `problems`: other problems of the run."""

    suite: str
    title: str
    versions: str
    date: str
    against: Against
    broker: str
    brokers: int
    seconds: int
    passed: int
    skipped: dict[str, str] = {}
    failures: list[RecordedFailure] = []
    problems: list[str] = []

    @property
    def file_name(self) -> str:
        release = self.broker.rpartition(" ")[2]
        kind = self.against if self.against == "semel" or release == KAFKA_RELEASE else f"{self.against}-{release}"
        return f"{self.suite}.{kind}-{self.brokers}.json"


def record(
    suite: Suite, verdict: RunJudgement, *, against: Against, broker: str, brokers: int, date: str, seconds: int
) -> RecordedRun:
    """Return the record of a finished run."""
    new = [RecordedFailure(test=each.test, message=each.message) for each in verdict.new_failures]
    expected = [
        RecordedFailure(test=each.test, message=each.message, reason=reason) for each, reason in verdict.expected
    ]
    problems = [
        *verdict.broken,
        *(f"expected to fail, but passed: {each}" for each in verdict.new_passes),
        *(f"expected to fail, but no test has that name: {each}" for each in verdict.unknown),
    ]
    return RecordedRun(
        suite=suite.name,
        title=suite.title,
        versions=suite.versions,
        date=date,
        against=against,
        broker=broker,
        brokers=brokers,
        seconds=seconds,
        passed=len(verdict.passed),
        skipped={each.test: each.message for each in verdict.skipped},
        failures=sorted([*new, *expected], key=lambda each: each.test),
        problems=problems,
    )


def encoded(kept: RecordedRun) -> bytes:
    return msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"


def decoded(data: bytes) -> RecordedRun:
    return msgspec.json.decode(data, type=RecordedRun)


def table(records: Iterable[RecordedRun]) -> str:
    """Return the runs as a Markdown table, one row each, and below it the reasons of failed and skipped tests."""
    kept = sorted(records, key=lambda each: (each.title, each.against != "semel", each.broker, each.brokers))
    rows = [
        "| suite | versions | run against | date | passed | failed as expected | skipped |",
        "|---|---|---|---|---|---|---|",
    ]
    notes: dict[tuple[str, str], list[str]] = {}
    for each in kept:
        expected = sum(bool(failure.reason) for failure in each.failures)
        new = [failure.test for failure in each.failures if not failure.reason]
        failed = (
            str(expected)
            + (f", **and {len(new)} not expected**" if new else "")
            + ("; **see below**" if each.problems else "")
        )
        where = f"{each.broker}, {'one broker' if each.brokers == 1 else f'{each.brokers} brokers'}"
        cells = [each.title, each.versions, where, each.date, str(each.passed), failed, str(len(each.skipped))]
        rows.append(f"| {' | '.join(cell(words) for words in cells)} |")
        for words in note(each):
            notes.setdefault((each.title, words), []).append(where)
    lines = [f"- {title}, {' and '.join(wheres)}: {words}" for (title, words), wheres in notes.items()]
    return "\n".join([*rows, "", *lines] if lines else rows)


def note(kept: RecordedRun) -> list[str]:
    """Return the failures by reason, the skipped tests by reason, and other problems."""
    by_reason: dict[str, list[str]] = {}
    for failure in kept.failures:
        by_reason.setdefault(failure.reason or "not expected", []).append(failure.test)
    for test, message in kept.skipped.items():
        by_reason.setdefault(f"skipped: {message or 'by the suite itself'}", []).append(test)
    return [f"{named(tests)}: {reason}" for reason, tests in by_reason.items()] + kept.problems


def named(tests: list[str]) -> str:
    """Format at most NAMES_MAX names of tests."""
    shown = ", ".join(f"`{test}`" for test in tests[:NAMES_MAX])
    return shown if len(tests) <= NAMES_MAX else f"{shown} and {len(tests) - NAMES_MAX} more"


def cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ")
