"""What every command shares: the broker's address, running a coroutine, errors as lines and an exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console, RenderableType
from rich.style import StyleType
from rich.table import Table
from rich.text import Text
from semel_protocol.visible import visible

from semel.errors import KafkaError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def bootstrap_option(command: F) -> F:
    """The option that names the broker."""
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        default="localhost:9092",
        show_default=True,
        envvar="SEMEL_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,…]",
        help="Broker(s) to ask first.",
    )(command)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine; what brokers refused becomes a line each on standard error, and exit status 1."""
    try:
        return asyncio.run(main)
    except KafkaError as e:
        raise failure(f"{type(e).__name__}: {e}", *getattr(e, "__notes__", ())) from e
    except (OSError, ValueError) as e:
        raise failure(str(e)) from e


def failure(*lines: str) -> click.ClickException:
    """What ends a command with exit status 1, with these lines on standard error."""
    return click.ClickException("\n".join(map(visible, lines)))


def say(*lines: str, err: bool = False) -> None:
    """Prints lines; names in them cannot make more lines of them, nor steer a terminal."""
    for line in lines:
        click.echo(visible(line), err=err)


def confirm(question: str) -> None:
    """Asks, and ends the command unless the answer is yes."""
    click.confirm(visible(question), abort=True)


class SafeTable(Table):
    """A table whose texts come from elsewhere: shown as they are, without markup and control characters."""

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        super().add_row(*map(_escaped_text, cells), style=style, end_section=end_section)


class SafeConsole(Console):
    """A console for texts from elsewhere: no markup, no control characters. A line end of our own may end a text."""

    def print(self, *texts: Any, **options: Any) -> None:
        super().print(*map(_escaped_text, texts), **options)


def _escaped_text(shown: Any) -> Any:
    """What `visible` makes of a text; anything else as it is."""
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
    """A table in the house style; the columns in `right` hold numbers."""
    made = SafeTable(title=Text(visible(title)) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def console() -> Console:
    """Standard output. Without a terminal it is as wide as it needs to be, so that grep and awk see whole lines."""
    out = SafeConsole(highlight=False, markup=False, emoji=False)
    return out if out.is_terminal else SafeConsole(highlight=False, markup=False, emoji=False, width=240)


def key_values(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`("a=1", "b=2")` as a dict. Raises click.BadParameter naming the pair that has no `=`."""
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
    """Deletes one after the other, with a line for each. `missing`: what says that there is none, raised unless
    `if_exists`."""
    for name in names:
        try:
            await delete([name])
        except missing:
            if not if_exists:
                raise
            say(f"{name} does not exist")
        else:
            say(f"{name} deleted")
