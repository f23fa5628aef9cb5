"""Shared by every command: the bootstrap option, running a coroutine, errors as lines with an exit status, output."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.style import StyleType
from rich.table import Table
from rich.text import Text
from semel_protocol.visible import visible, visible_json

from semel.errors import KafkaError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def bootstrap_option(command: F) -> F:
    """The option that names the brokers to connect to first."""
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        default="localhost:9092",
        show_default=True,
        envvar="SEMEL_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,…]",
        help="Brokers to connect to first; they name all others. Or set SEMEL_BOOTSTRAP_SERVER.",
    )(command)


def json_option(command: F) -> F:
    """The option `--json`: the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def say_json(shown: object) -> None:
    """Prints an object of plain types as indented JSON. Control characters in texts are escaped."""
    click.echo(msgspec.json.format(visible_json(msgspec.json.encode(shown).decode())))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine. A KafkaError becomes lines on standard error and exit status 1."""
    try:
        return asyncio.run(main)
    except KafkaError as e:
        raise failure(f"{type(e).__name__}: {e}", *getattr(e, "__notes__", ())) from e
    except (OSError, ValueError) as e:
        raise failure(str(e)) from e


def failure(*lines: str) -> click.ClickException:
    """The exception that ends a command with exit status 1 and these lines on standard error."""
    return click.ClickException("\n".join(map(visible, lines)))


def say(*lines: str, err: bool = False) -> None:
    """Prints lines. Control characters in them are escaped, so names cannot add lines or control a terminal."""
    for line in lines:
        click.echo(visible(line), err=err)


def similar(name: str, known: Iterable[str]) -> str:
    """A question for the end of a message about an unknown name, with the names that are most like it; or ""."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def confirm(question: str) -> None:
    """Asks a question, and ends the command unless the answer is yes."""
    click.confirm(visible(question), abort=True)


class SafeTable(Table):
    """A table for texts from brokers: shown without markup and with control characters escaped."""

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        super().add_row(*map(_escaped_text, cells), style=style, end_section=end_section)


class SafeConsole(Console):
    """A console for texts from brokers: no markup, control characters escaped. A newline at the end of a text stays."""

    def print(self, *texts: Any, **options: Any) -> None:
        super().print(*map(_escaped_text, texts), **options)


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


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table in the style of all commands. right: the columns that hold numbers."""
    made = SafeTable(title=Text(visible(title)) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def console() -> Console:
    """Standard output. Without a terminal it is 240 columns wide, so that grep and awk get whole lines."""
    out = SafeConsole(highlight=False, markup=False, emoji=False)
    return out if out.is_terminal else SafeConsole(highlight=False, markup=False, emoji=False, width=240)


def key_values(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`("a=1", "b=2")` as a dict. Raises click.BadParameter for a pair without `=`."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
        found[key] = value
    return found


async def delete_each(
    names: Sequence[str],
    delete: Callable[[list[str]], Awaitable[None]],
    missing: type[KafkaError],
    *,
    if_exists: bool,
) -> None:
    """Deletes one after the other, with a line for each. missing: the exception for one that does not exist, raised
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
