"""The command `semel pipeline` and its subcommands, each of which is imported when it runs."""

from __future__ import annotations

import importlib

import click

SUBCOMMANDS = {
    "audit": ("pyspark_semel.audit.command:audit", "Check every batch in the segment files of a data directory."),
    "check": (
        "pyspark_semel.pipeline.run_command:check",
        "Report the errors of a pipeline file without starting the pipeline.",
    ),
    "run": ("pyspark_semel.pipeline.run_command:run", "Run the streaming queries that a file defines."),
}


class Subcommands(click.Group):
    """Subcommands by name; the help text is printed without importing Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module, attribute = SUBCOMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in SUBCOMMANDS.items()])


@click.group(cls=Subcommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def pipeline() -> None:
    """Run streaming pipelines of Spark over semel, and audit segment files."""
