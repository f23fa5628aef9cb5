"""EDGE: the commands `semel pipeline run` and `semel pipeline check`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from semel_protocol.visible import visible

from pyspark_semel.pipeline.definition import Definition, DefinitionError
from pyspark_semel.pipeline.definition_file import load

FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


class WrongDefinition(click.ClickException):
    """The problems of a definition, one line each; exit status 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        click.echo(self.message, err=True)


@click.command()
@FILE
@click.option(
    "--plan/--no-plan", default=True, help="Also let Spark resolve formats, tables and columns (takes seconds)."
)
def check(file: Path, plan: bool) -> None:
    """Report the errors of FILE without reading or writing data. The exit status is 2 if there are errors."""
    from pyspark_semel.pipeline.session import NoSparkError, session
    from pyspark_semel.pipeline.tables import check_options, writers

    definition = _loaded(file)
    try:
        check_options(definition)
    except DefinitionError as e:
        raise _wrong(file, e) from e
    if plan:
        try:
            with session(definition.name, definition.master, _settings(definition)) as spark:
                writers(spark, definition)
        except DefinitionError as e:
            raise _wrong(file, e) from e
        except NoSparkError as e:
            raise click.ClickException(str(e)) from e
    names = ", ".join(definition.queries)
    click.echo(visible(f"{file}: no errors; queries: {names}; checkpoints in {definition.checkpoint}"))


@click.command()
@FILE
@click.option(
    "--progress",
    type=click.Choice(["auto", "table", "lines", "json"]),
    default="auto",
    show_default=True,
    help="How to show each batch; auto: a table on a terminal, otherwise lines.",
)
def run(file: Path, progress: str) -> None:
    """Run the streaming queries of FILE until they end or one fails. Ctrl-C or SIGTERM stops each after its current
    batch.

    Exit status 0: the queries ended or were stopped; 1: a query failed; 2: FILE has errors.
    """
    from pyspark_semel.pipeline import runner
    from pyspark_semel.pipeline.screen import screen, table
    from pyspark_semel.pipeline.session import NoSparkError, session

    definition = _loaded(file)
    console = Console()
    try:
        settings = {**runner.SETTINGS, **_settings(definition)}
        with session(definition.name, definition.master, settings) as spark, screen(progress, console) as shown:
            totals = runner.run(spark, definition, shown)
    except DefinitionError as e:
        raise _wrong(file, e) from e
    except (NoSparkError, runner.QueryFailedError) as e:
        raise click.ClickException(str(e)) from e
    if progress != "json":
        console.print(table(totals))


def _loaded(file: Path) -> Definition:
    try:
        return load(file)
    except DefinitionError as e:
        raise _wrong(file, e) from e


def _wrong(file: Path, error: DefinitionError) -> WrongDefinition:
    return WrongDefinition("\n".join(f"{file}: {problem}" for problem in error.problems))


def _settings(definition: Definition) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in definition.spark.items()
    }
