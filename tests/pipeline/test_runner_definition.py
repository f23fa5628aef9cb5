"""The definition of a pipeline: every problem is reported with its key and the value to write."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark_semel.pipeline import Definition, DefinitionError, Query, Watermark
from pyspark_semel.pipeline.command import pipeline
from pyspark_semel.pipeline.definition import parse
from pyspark_semel.pipeline.definition_file import load
from pyspark_semel.pipeline.readings import Totals, reading

WHOLE = """
name = "numbers"
checkpoint = "${PLACE}/checkpoints"
spark = { "spark.sql.shuffle.partitions" = 2 }

[sources.numbers]
format = "rate"
options = { rowsPerSecond = 10, fast = true }
watermark = { column = "timestamp", delay = "${DELAY:-1 minute}" }

[views.even]
sql = "SELECT * FROM numbers WHERE value % 2 = 0"

[queries.squares]
python = "numbers:squares"
inputs = ["even"]
arguments = { power = 2 }
format = "memory"
trigger = "10 seconds"
"""


def problems(text: str) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        parse(tomllib.loads(text), {"PLACE": "/p"})
    return caught.value.problems


def test_a_file_is_parsed_and_its_variables_are_replaced() -> None:
    found = parse(tomllib.loads(WHOLE), {"PLACE": "/p"})
    assert found.checkpoint == "/p/checkpoints"
    assert found.sources["numbers"].watermark == Watermark("timestamp", "1 minute")
    assert found.sources["numbers"].options == {"rowsPerSecond": 10, "fast": True}
    assert found.queries["squares"].arguments == {"power": 2}
    assert found.spark == {"spark.sql.shuffle.partitions": 2}


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ('name = "numbers"\n', "", "name: missing; write the pipeline's, such as name"),
        ("checkpoint =", "checkpiont =", "checkpiont: unknown; did you mean checkpoint?"),
        ('"${PLACE}/checkpoints"', '"${HOME_OF_IT}/c"', "checkpoint: the variable HOME_OF_IT is not set"),
        ("[views.even]", "[view.even]", "view: unknown; did you mean views?"),
        ("[views.even]", '[views."e-ven"]', "views.e-ven: write only letters, digits and _"),
        ("[views.even]", "[views.numbers]", "numbers: several sources, views or queries have this name"),
        ('trigger = "10 seconds"', 'trigger = "often"', "queries.squares.trigger: 'often': write \"10 seconds\""),
        ("trigger =", "tigger =", "queries.squares.tigger: unknown; did you mean trigger?"),
        ('trigger = "10 seconds"', "trigger = 10", "queries.squares.trigger: Expected `str`, got `int`"),
        ('trigger = "10 seconds"', 'mode = "replace"', "queries.squares.mode: Invalid enum value 'replace'"),
        ('format = "memory"\n', "", 'queries.squares.format: missing; write format = "semel"'),
        ('python = "numbers:squares"\n', "", "queries.squares: write either sql ="),
        ('"numbers:squares"', '"squares"', "queries.squares.python: 'squares': write \"module:function\""),
        ('inputs = ["even"]', 'inputs = ["evn"]', "queries.squares.inputs: there is no 'evn'; did you mean even?"),
        ("sql = ", 'inputs = ["numbers"]\nsql = ', "views.even.inputs: SQL names its tables itself"),
        ('delay = "${DELAY:-1 minute}"', "dely = 1", "sources.numbers.watermark: Object contains unknown field `dely`"),
        ("rowsPerSecond = 10", "rowsPerSecond = [1]", "sources.numbers.options: [...]: Expected"),
    ],
)
def test_a_problem_is_reported_with_its_key_and_the_value_to_write(was: str, now: str, told: str) -> None:
    assert was in WHOLE
    assert any(problem.startswith(told) for problem in problems(WHOLE.replace(was, now))), problems(
        WHOLE.replace(was, now)
    )


def test_all_problems_are_reported_together() -> None:
    text = WHOLE.replace("rowsPerSecond", "x").replace("tigger", "t").replace('name = "numbers"', "naem = 1")
    assert len(problems(text)) == 2
    assert problems('name = "n"\ncheckpoint = "c"') == [
        "queries: the pipeline writes nothing; add a table such as [queries.some_name] with sql and format"
    ]


def test_a_python_file_gives_the_same_definition(tmp_path: Path) -> None:
    file = tmp_path / "squares.py"
    file.write_text(
        "from pyspark_semel.pipeline import Definition, Query\n"
        "def squares(spark): ...\n"
        'pipeline = Definition(name="n", checkpoint="c", functions={"squares": squares},\n'
        '    queries={"q": Query(python="squares", format="memory")})\n'
    )
    found = load(file)
    assert isinstance(found, Definition)
    assert found.queries == {"q": Query(python="squares", format="memory")}
    file.write_text(file.read_text().replace('{"squares": squares}', "{}"))
    with pytest.raises(DefinitionError, match="module:function"):
        load(file)
    file.write_text("")
    with pytest.raises(DefinitionError, match="define pipeline"):
        load(file)


def test_the_command_prints_every_problem_with_the_file_and_exits_with_2(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('name = "n"\n')
    for command in ("check", "run"):
        done = CliRunner().invoke(pipeline, [command, str(file)])
        assert done.exit_code == 2
        assert f"{file}: checkpoint: missing; write a folder that outlives restarts" in done.output
        assert f"{file}: queries: " in done.output
    file.write_text("name = ")
    assert "invalid TOML" in CliRunner().invoke(pipeline, ["check", str(file)]).output


def test_the_figures_of_a_batch_are_those_of_sparks_report() -> None:
    told = {
        "batchId": 3,
        "numInputRows": 10,
        "processedRowsPerSecond": 20.0,
        "durationMs": {"triggerExecution": 500, "addBatch": 400},
        "eventTime": {"watermark": "2013-01-01T00:00:00.000Z"},
        "sources": [{"endOffset": '{"f": {"0": 5, "1": 9}}', "latestOffset": {"f": {"0": 7, "1": 9, "2": 1}}}],
        "sink": {"numOutputRows": 10},
        "stateOperators": [{"numRowsDroppedByWatermark": 2}],
    }
    found = reading("q", told)
    assert (found.batch, found.rows_in, found.rows_out, found.rows_per_s, found.batch_ms) == (3, 10, 10, 20.0, 500)
    assert (found.lag, found.watermark, found.late_rows) == (3, "2013-01-01T00:00:00.000Z", 2)
    assert found.position == 14
    bare = reading("q", {"batchId": 4, "sources": [{"endOffset": None, "latestOffset": None}], "sink": None})
    assert (bare.rows_out, bare.lag, bare.watermark, bare.did_run) == (-1, -1, "", False)
    totals = Totals()
    assert [totals.add(each) for each in (found, found, bare, reading("q", {**told, "batchId": 4}))] == [
        True,
        False,
        False,
        True,
    ]
    assert (totals.batches, totals.rows_in, totals.late_rows) == (2, 20, 4)
