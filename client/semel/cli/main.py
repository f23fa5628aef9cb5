"""The `semel` command: finds its subcommands, and imports only the one that runs."""

from __future__ import annotations

import difflib
import importlib
import sys
from importlib.metadata import entry_points
from typing import Any

import click
from click.shell_completion import CompletionItem
from semel_protocol import __version__, extras

from semel._command_line.signals import Interrupted

OWN = {
    "acl": "semel.cli.acl:acl",
    "cluster": "semel.cli.cluster:cluster",
    "topic": "semel.cli.topic.commands:topic",
    "group": "semel.cli.group.commands:group",
    "produce": "semel.cli.produce.commands:produce",
    "completion": "semel.cli.completion:completion",
    "config": "semel.cli.config:config",
    "quota": "semel.cli.quota:quota",
    "consume": "semel.cli.consume.commands:consume",
    "user": "semel.cli.user.commands:user",
    "top": "semel.cli.top.commands:top",
    "txn": "semel.cli.txn.commands:txn",
}
"""Commands that need no extra."""

EXTRA_OF = {"semel_broker": "broker", "semel_storage": "broker", "semel_console": "console", "pyspark_semel": "spark"}

POSIX_ONLY = ("fcntl", "resource")
"""Modules of Python that Windows does not have."""

HELP_OF = {
    "acl": "Show and change who may do what.",
    "cert": "Make certificates for development.",
    "cluster": "Show the brokers, their partitions, and the partitions with problems.",
    "completion": "Print the completion script for a shell.",
    "config": "Show and change the settings of brokers.",
    "console": "Serve a web page that shows the cluster: records, groups, and transactions on a timeline.",
    "consume": "Print the records of a topic.",
    "group": "Show consumer groups: members, offsets, lag, and why one is stuck; set offsets; delete groups.",
    "log": "Check and show the files of a data directory.",
    "pipeline": "Run streaming queries of Spark that a file defines; audit the files of a data directory with Spark.",
    "produce": "Write lines to a topic, idempotently.",
    "quota": "Show and change how much clients may send, read and change.",
    "serve": "Run a broker.",
    "top": "Show brokers, busy topics, open transactions and lag, again and again.",
    "topic": "Create, list, describe, alter, truncate and delete topics; reassign partitions; show why one is stuck.",
    "txn": "Show transactions: open ones, hanging ones, fences; abort one.",
    "user": "Show and change the users that log in with SCRAM or PLAIN.",
}


INTERRUPTED = 130


class Commands(click.Group):
    """Subcommands by name: semel's own, then those that other packages registered under `semel.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*OWN, *(found.name for found in entry_points(group="semel.commands"))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = OWN.get(cmd_name)
        if target is None:
            target = next((e.value for e in entry_points(group="semel.commands") if e.name == cmd_name), None)
        return None if target is None else _load(cmd_name, target)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, with the names that a mistyped command may mean."""
        near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2, cutoff=0.6)
        if near and args[0] not in self.list_commands(ctx):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click, without importing the commands: an extra may be missing."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=HELP_OF.get(name)) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """As click, but a signal ends a command without a word, with the status of a process that the signal has ended.
        So does a closed pipe at its output, as of `semel top | head`, with status 0."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as e:
            raise SystemExit(e.status if isinstance(e, Interrupted) else INTERRUPTED) from None
        except BrokenPipeError:
            sys.stderr.close()  # Python would complain there that it cannot write the rest
            raise SystemExit(0) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them, so that `semel --help` is quick and needs no extra."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, HELP_OF.get(name, "")) for name in self.list_commands(ctx)])


def _load(name: str, target: str) -> click.Command:
    module, attribute = target.split(":")
    try:
        command = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as e:
        if e.name in POSIX_ONLY:
            raise click.ClickException(
                f"`semel {name}` runs on Linux and macOS, not on {sys.platform}: use WSL or a container. "
                "The client and the other commands run here"
            ) from e
        extra = EXTRA_OF.get(module.split(".")[0])
        if extra is None:
            raise
        package = (e.name or "").partition(".")[0]
        return _without_extra(name, extras.missing(f"`semel {name}`", package, extra))
    assert isinstance(command, click.Command), f"{target} is not a command"
    return command


def _without_extra(name: str, why: str) -> click.Command:
    """In place of a command whose packages are not installed: it has a help text, and any other call fails."""

    def fail(arguments: tuple[str, ...]) -> None:
        raise click.ClickException(why)

    return click.Command(
        name,
        callback=fail,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        help=f"{HELP_OF.get(name, '')}\n\n{why}",
        context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
        options_metavar="",
    )


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="semel")
def main() -> None:
    """semel: a Kafka-wire-compatible log broker and client with exactly-once delivery at its centre.

    Commands that connect to a cluster take its address from the option --bootstrap-server, or else from the environment
    variable SEMEL_BOOTSTRAP_SERVER. -X and --config-file set any setting of the client. `semel COMMAND --help` shows
    the options of a command.

    Exit status 0: done. 1: the command failed. 2: the arguments are wrong. 3: a command that looks for trouble found
    some.
    """
