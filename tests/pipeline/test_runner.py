"""`semel pipeline run` with Spark's own formats: files in, files out, a stop after the batch, and failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark_semel.pipeline.command import pipeline

FILES = """
name = "files"
checkpoint = "{at}/checkpoints"
spark = {{ "spark.sql.shuffle.partitions" = 2 }}

[sources.lines]
format = "text"
path = "{at}/in"

[sources.names]
streaming = false
format = "csv"
path = "{at}/names.csv"
schema = "code STRING, name STRING"

[queries.named]
sql = "SELECT name AS value FROM lines JOIN names ON code = value"
format = "text"
path = "{at}/out"
trigger = "available now"

[queries.loud]
python = "functions_of_test:loud"
inputs = ["lines"]
arguments = {{ mark = "!" }}
format = "text"
path = "{at}/loud"
trigger = "available now"
"""
FUNCTIONS = """
from pyspark.sql import functions as F

def loud(spark, lines, mark):
    return lines.select(F.concat(F.upper("value"), F.lit(mark)).alias("value"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("ua\naa\nua\n")
    (tmp_path / "names.csv").write_text("ua,United\naa,American\n")
    (tmp_path / "functions_of_test.py").write_text(FUNCTIONS)
    (tmp_path / "files.toml").write_text(FILES.format(at=tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def _keep_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)  # the commands' session is the one of all tests


def written(directory: Path) -> list[str]:
    return sorted(line for path in directory.glob("*.txt") for line in path.read_text().splitlines())


@pytest.mark.thorough
def test_a_pipeline_runs_and_continues_from_its_checkpoint(folder: Path) -> None:
    done = CliRunner().invoke(pipeline, ["run", str(folder / "files.toml"), "--progress", "json"])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    assert {(each["query"], each["batch"], each["rows_in"]) for each in lines if "batch" in each} == {
        ("named", 0, 3),
        ("loud", 0, 3),
    }
    assert written(folder / "out") == ["American", "United", "United"]
    assert written(folder / "loud") == ["AA!", "UA!", "UA!"]
    (folder / "in" / "2.txt").write_text("aa\n")
    done = CliRunner().invoke(pipeline, ["run", str(folder / "files.toml"), "--progress", "lines"])
    assert done.exit_code == 0, done.output
    assert "named batch 1: 1 rows in" in done.output
    assert written(folder / "out") == ["American", "American", "United", "United"]


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("ON code = value", "ON cod = value", "queries.named: [UNRESOLVED_COLUMN"),
        ("FROM lines", "FROM linse", "queries.named: [TABLE_OR_VIEW_NOT_FOUND"),
        ("functions_of_test:loud", "functions_of_test:lod", "queries.loud.python: module 'functions_of_test' has no"),
        ('format = "csv"', 'format = "cvs"', "sources.names: [DATA_SOURCE_NOT_FOUND]"),
        ("SELECT name AS value FROM lines JOIN names ON code = value", "SELECT name AS value FROM names",
         "queries.named: no input is a streaming source"),
    ],
)  # fmt: skip
@pytest.mark.thorough
def test_check_reports_errors_that_only_spark_finds(folder: Path, was: str, now: str, told: str) -> None:
    file = folder / "files.toml"
    file.write_text(file.read_text().replace(was, now))
    done = CliRunner().invoke(pipeline, ["check", str(file)])
    assert done.exit_code == 2, done.output
    assert f"{file}: {told}" in done.output
    assert CliRunner().invoke(pipeline, ["check", "--no-plan", str(file)]).exit_code == 0
    assert not (folder / "checkpoints").exists()


@pytest.mark.thorough
def test_check_reports_a_valid_file(folder: Path) -> None:
    done = CliRunner().invoke(pipeline, ["check", str(folder / "files.toml")])
    assert done.exit_code == 0, done.output
    assert "no errors; queries: named, loud" in done.output


@pytest.mark.thorough
def test_a_failed_query_is_reported_in_one_line_with_status_1(folder: Path) -> None:
    file = folder / "files.toml"
    file.write_text(
        file.read_text().replace("SELECT name AS value", "SELECT CAST(raise_error('no such day') AS STRING) AS value")
    )
    done = CliRunner().invoke(pipeline, ["run", str(file)])
    assert done.exit_code == 1, done.output
    assert "Error: named: " in done.output
    assert "no such day" in done.output
    assert "Traceback" not in done.output


RATE = """
name = "rate"
checkpoint = "{at}/checkpoints"
[sources.numbers]
format = "rate"
options = {{ rowsPerSecond = 100 }}
[queries.numbers_out]
sql = "SELECT CAST(value AS STRING) AS value FROM numbers"
format = "text"
path = "{at}/out"
"""


@pytest.mark.thorough
@pytest.mark.parametrize("as_ctrl_c", [False, True], ids=["SIGTERM", "SIGINT to all of the terminal"])
def test_a_stop_request_ends_the_run_after_the_current_batch(tmp_path: Path, as_ctrl_c: bool) -> None:
    (tmp_path / "rate.toml").write_text(RATE.format(at=tmp_path))
    command = [sys.executable, "-c", "from pyspark_semel.pipeline.command import pipeline; pipeline()"]
    command += ["run", str(tmp_path / "rate.toml"), "--progress", "lines"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "batch 2" in line:
            if as_ctrl_c:
                os.killpg(process.pid, signal.SIGINT)
            else:
                process.send_signal(signal.SIGTERM)
            break
    seen += list(process.stdout)
    assert process.wait(60) == 0, seen
    assert "numbers_out: stopped\n" in seen
    begun = {
        path.name for path in (tmp_path / "checkpoints" / "numbers_out" / "offsets").iterdir() if path.name.isdecimal()
    }
    ended = {
        path.name for path in (tmp_path / "checkpoints" / "numbers_out" / "commits").iterdir() if path.name.isdecimal()
    }
    assert {"0", "1", "2"} <= ended
    assert len(begun - ended) <= 1  # the next one may have been begun, and nothing else


SEMEL = """
name = "semel"
checkpoint = "c"
[sources.lines]
format = "semel"
options = { "kafka.bootstrap.servers" = "127.0.0.1:1", subscribe = "flights", startingOffsets = "earliest" }
[queries.out]
sql = "SELECT value FROM lines"
format = "semel"
options = { "kafka.bootstrap.servers" = "127.0.0.1:1", topic = "out", "semel.sink.id" = "out" }
"""


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (
            "subscribe",
            "subscrib",
            "sources.lines.options: the source has no option 'subscrib': did you mean subscribe?",
        ),
        ('"earliest"', '"newest"', "sources.lines.options: startingOffsets"),
        (', "semel.sink.id" = "out"', "", "queries.out.options: exactly once needs semel.sink.id"),
        ('"127.0.0.1:1", topic', '"127.0.0.1:1", topick', "queries.out.options: the sink has no option 'topick'"),
    ],
)
def test_check_reports_invalid_semel_options_without_spark(tmp_path: Path, was: str, now: str, told: str) -> None:
    file = tmp_path / "semel.toml"
    file.write_text(SEMEL)
    assert CliRunner().invoke(pipeline, ["check", "--no-plan", str(file)]).exit_code == 0
    file.write_text(SEMEL.replace(was, now))
    done = CliRunner().invoke(pipeline, ["check", "--no-plan", str(file)])
    assert done.exit_code == 2, done.output
    assert f"{file}: {told}" in done.output


@pytest.mark.thorough
def test_check_reports_columns_that_a_topic_cannot_store(tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text(SEMEL.replace("SELECT value", "SELECT offset AS value"))
    done = CliRunner().invoke(pipeline, ["check", str(file)])
    assert done.exit_code == 2, done.output
    assert "queries.out: column 'value' is BIGINT" in done.output
