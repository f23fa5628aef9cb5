"""Shared by every command: running a coroutine, errors as lines with an exit status, output."""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import click
import msgspec
from rich.console import Console
from rich.text import Text
from semel_protocol.tables import Table, captioned, hanging, wrapped
from semel_protocol.visible import visible, visible_json

from semel._command_line.signals import run_until_signal
from semel._command_line.warnings_thread import warnings_in_a_thread
from semel.admin import Admin, Operation
from semel.diagnose import DiagnosisLine, PartitionNameError, StartPosition, StartPositionError, Tone, start_position
from semel.errors import KafkaError, NotSemelBrokerError, TopicAuthorizationFailedError, error_for

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
FOUND_TROUBLE = 3
"""The exit status of a command that looked for trouble and found it. 1 is an error of the command itself."""

COLOUR = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.WARNING: "yellow", Tone.BAD: "red"}


def json_option(command: F) -> F:
    """The options `--output table|json`, and `--json` for short: the argument `as_json`."""

    @click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
    @click.option("--output", type=click.Choice(["table", "json"]), help="The form of the output. Default: table.")
    @functools.wraps(command)
    def with_form(*args: Any, output: str | None, as_json: bool, **options: Any) -> Any:
        if as_json and output == "table":
            raise click.UsageError("give either --json or --output table")
        return command(*args, as_json=as_json or output == "json", **options)

    return cast(F, with_form)


def say_json(shown: object) -> None:
    """Print an object of plain types as indented JSON. Control characters in texts are escaped."""
    click.echo(msgspec.json.format(visible_json(msgspec.json.encode(shown).decode())))


def run(main: Coroutine[Any, Any, T], end: Callable[[], bool] = lambda: False) -> T:
    """Run a command's coroutine, until a signal ends it. A KafkaError becomes lines on standard error and exit status
    1. end: as of `run_until_signal`.

    Raises Interrupted after a signal.
    """
    try:
        with warnings_in_a_thread():
            return run_until_signal(main, end)
    except NotSemelBrokerError as e:
        raise failure(f"`{click.get_current_context().command_path}` cannot do this here: {e}") from e
    except KafkaError as e:
        raise failure(f"{type(e).__name__}: {e}", *getattr(e, "__notes__", ())) from e
    except PartitionNameError as e:
        raise click.BadParameter(str(e)) from None
    except BrokenPipeError:
        raise  # the reader of the output has gone: see `Commands.invoke`
    except (OSError, ValueError) as e:
        raise failure(str(e)) from e


def failure(*lines: str) -> click.ClickException:
    """The exception that ends a command with exit status 1 and these lines on standard error."""
    return click.ClickException("\n".join(map(visible, lines)))


def say(*lines: str, err: bool = False) -> None:
    """Print lines. Control characters in them are escaped, so names cannot add lines or control a terminal.

    What cannot be said on standard error does not end a command: the disk behind it may be full.
    """
    for line in lines:
        try:
            click.echo(visible(line), err=err)
        except OSError:
            if not err:
                raise


def confirm(question: str) -> None:
    """Ask a question, and end the command unless the answer is yes."""
    click.confirm(visible(question), abort=True)


class SafeConsole(Console):
    """A console for texts from brokers: no markup, control characters escaped. A newline at the end of a text stays."""

    def print(self, *texts: Any, **options: Any) -> None:
        super().print(*map(_escaped_text, texts), **options)

    def on_broken_pipe(self) -> None:
        """The reader of the output has gone: see `Commands.invoke`. Rich would end the process with status 1."""
        raise BrokenPipeError from None


def _escaped_text(shown: Any) -> Any:
    """A text with its control characters escaped; anything else unchanged."""
    if isinstance(shown, str):
        kept = shown.removesuffix("\n")
        return Text(visible(kept) + shown[len(kept) :])
    if isinstance(shown, Text) and not shown.plain.isprintable():
        made = Text(style=shown.style)
        for piece in (shown[at] for at in range(len(shown))):
            made.append(visible(piece.plain), piece.spans[0].style if piece.spans else None)
        return made
    return shown


def is_terminal() -> bool:
    """Whether standard output is a terminal. FORCE_COLOR, which rich takes for one, does not change the layout."""
    return sys.stdout.isatty()


def console() -> Console:
    """Standard output. Without a terminal it is 240 columns wide and has no colours."""
    options: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    if is_terminal():
        return SafeConsole(**options)
    return SafeConsole(**options, width=240, force_terminal=False)


def show(*tables: Table) -> None:
    """Print tables: within the width of a terminal, or as rows with tabs for a pipe."""
    out = console()
    for number, each in enumerate(tables):
        if not is_terminal():
            click.echo("\n".join(each.rows()))  # a table escapes its cells
            continue
        if number:
            out.print()
        for line in each.lines(out.width):
            out.print(line, soft_wrap=True)


def tell(*lines: Text | str) -> None:
    """Print lines that a terminal breaks at spaces, with an indented continuation. A pipe gets whole lines, and no
    empty ones.
    """
    out = console()
    for each in lines:
        line = Text(visible(each)) if isinstance(each, str) else each
        if is_terminal():
            for part in wrapped(line, out.width, hanging(line.plain)):
                out.print(part, soft_wrap=True)
        elif line.plain:
            out.print(line, soft_wrap=True)


def texts(lines: Iterable[DiagnosisLine]) -> list[Text]:
    """The lines of an explanation with their colours, for `tell`. A command stays on one line, so that it can be
    copied.
    """
    shown = []
    for each in lines:
        if each.caption is None:
            head = Text(each.heading, "bold")
            shown.append(head.append(each.text, "not bold") if each.heading else Text(each.text, COLOUR[each.tone]))
        else:
            caption = each.plain[: len(each.plain) - len(each.text)]
            is_command = each.text.startswith("semel ")
            shown.append(Text(caption, "dim", no_wrap=is_command).append(each.text, "not dim"))
    return shown


def tell_captioned(pairs: Sequence[tuple[str, Text | str]]) -> None:
    """Print captions with their texts, the texts below each other."""
    out = console()
    for line in captioned(pairs, out.width if is_terminal() else sys.maxsize):
        out.print(line, soft_wrap=True)


def given_bytes(text: str) -> bytes:
    """The bytes of an argument, or of the name of a header, as they were given: those that are not UTF-8 are surrogates
    in the text.
    """
    return text.encode("utf-8", "surrogateescape")


def key_values(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`("a=1", "b=2")` as a dict. Raises click.BadParameter for a pair without `=`."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
        found[key] = value
    return found


def position(words: str, option: str, now_ms: int, *, may_be_last: bool = False) -> StartPosition:
    """As `start_position`. Raises click.BadParameter, with the option that the text was given to."""
    try:
        return start_position(words, now_ms, may_be_last=may_be_last)
    except StartPositionError as e:
        raise click.BadParameter(str(e), param_hint=option) from None


@contextmanager
def needing(admin: Admin, operation: Operation, topic: str) -> Iterator[None]:
    """Let the error of a missing right name what the command needs, where its first look needs DESCRIBE alone."""
    try:
        yield
    except TopicAuthorizationFailedError as error:
        right = admin._calls.cluster.right(operation, topic=topic)
        raise error_for(error.code, f"{operation.name.lower()} topic {topic!r}", right) from None


async def delete_each(
    names: Sequence[str],
    delete: Callable[[list[str]], Awaitable[None]],
    missing: type[KafkaError],
    *,
    if_exists: bool,
) -> None:
    """Delete one after the other, with a line for each. missing: the exception for one that does not exist, raised
    unless `if_exists`.
    """
    for name in names:
        try:
            await delete([name])
        except missing:
            if not if_exists:
                raise
            say(f"{name} does not exist")
        else:
            say(f"{name} deleted")
