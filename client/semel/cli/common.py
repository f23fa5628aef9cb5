"""What every command shares: the broker's address, running a coroutine, errors as lines and an exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table

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
        raise click.ClickException("\n".join([f"{type(e).__name__}: {e}", *getattr(e, "__notes__", ())])) from e
    except (OSError, ValueError) as e:
        raise click.ClickException(str(e)) from e


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table in the house style; the columns in `right` hold numbers."""
    made = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def console() -> Console:
    """Standard output. Without a terminal it is as wide as it needs to be, so that grep and awk see whole lines."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=240)


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
            click.echo(f"{name} does not exist")
        else:
            click.echo(f"{name} deleted")
