"""The record of a run, and the page made of records."""

from __future__ import annotations

from tools.strangers.judge import ResultLine, RunJudgement
from tools.strangers.record import RecordedRun, decoded, encoded, record, table
from tools.strangers.suite import Suite

SUITE = Suite(title="franz-go", language="Go", pins={"franz-go": "1.22.2"}, name="franz-go")


def kept(verdict: RunJudgement, against: str = "semel", brokers: int = 1) -> RecordedRun:
    broker = "semel 0.1.0" if against == "semel" else "Apache Kafka 4.1.1"
    return record(
        SUITE,
        verdict,
        against="semel" if against == "semel" else "kafka",
        broker=broker,
        brokers=brokers,
        date="2026-11-22",
        seconds=61,
    )


def test_a_record_survives_its_file() -> None:
    written = kept(
        RunJudgement(
            passed=["a", "b"],
            skipped=[ResultLine("s", "skipped", "no docker")],
            expected=[(ResultLine("z", "failed", "boom"), "known")],
            new_failures=[ResultLine("n", "failed", "lost")],
            new_passes=["p"],
            unknown=["u"],
            broken=["it did not end within 60 s"],
        )
    )
    assert decoded(encoded(written)) == written
    assert written.file_name == "franz-go.semel-1.json"
    assert [(each.test, each.reason) for each in written.failures] == [("n", ""), ("z", "known")]
    assert written.problems == [
        "it did not end within 60 s",
        "expected to fail, but passed: p",
        "expected to fail, but no test has that name: u",
    ]


def test_other_releases_of_kafka_have_files_of_their_own() -> None:
    written = kept(RunJudgement(passed=["a"]), "kafka")
    assert written.file_name == "franz-go.kafka-1.json"
    written.broker = "Apache Kafka 3.9.2"
    assert written.file_name == "franz-go.kafka-3.9.2-1.json"


def test_the_table_has_a_row_for_each_run_and_semel_comes_first() -> None:
    lines = table(
        [
            kept(RunJudgement(passed=["a"]), "kafka"),
            kept(RunJudgement(passed=["a"]), brokers=3),
            kept(RunJudgement(passed=["a", "b"])),
        ]
    ).splitlines()
    assert lines[2:] == [
        "| franz-go | franz-go 1.22.2 | semel 0.1.0, one broker | 2026-11-22 | 2 | 0 | 0 |",
        "| franz-go | franz-go 1.22.2 | semel 0.1.0, 3 brokers | 2026-11-22 | 1 | 0 | 0 |",
        "| franz-go | franz-go 1.22.2 | Apache Kafka 4.1.1, one broker | 2026-11-22 | 1 | 0 | 0 |",
    ]


def test_the_table_gives_the_reasons_of_failures_and_skips() -> None:
    text = table(
        [
            kept(
                RunJudgement(
                    expected=[(ResultLine(f"t{n}", "failed"), "no ACLs") for n in range(7)],
                    skipped=[ResultLine("s", "skipped", "no docker")],
                )
            )
        ]
    )
    assert "| 7 | 1 |" in text
    assert "one broker: `t0`, `t1`, `t2`, `t3`, `t4` and 2 more: no ACLs" in text
    assert "`s`: skipped: no docker" in text


def test_a_note_shared_by_two_runs_appears_once() -> None:
    verdict = RunJudgement(expected=[(ResultLine("t", "failed"), "no ACLs")])
    lines = table([kept(verdict), kept(verdict, brokers=3)]).splitlines()
    assert lines[-1] == "- franz-go, semel 0.1.0, one broker and semel 0.1.0, 3 brokers: `t`: no ACLs"
    assert sum(line.startswith("- ") for line in lines) == 1


def test_the_table_marks_a_run_that_is_not_clean() -> None:
    text = table([kept(RunJudgement(new_failures=[ResultLine("n", "failed", "lost")], broken=["it ran no test"]))])
    assert "| 0, **and 1 not expected**; **see below** |" in text
    assert "`n`: not expected" in text
    assert "it ran no test" in text
