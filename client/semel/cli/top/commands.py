"""`semel top`: brokers, busy topics, open transactions and lag, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click
import msgspec
from rich.live import Live
from rich.text import Text
from semel_protocol.visible import visible_json

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import console, is_terminal, json_option, run, say_json, show, tell
from semel._edge import Edge
from semel.cli.top.frame import facts_of, notes_of, tables_of
from semel.cli.top.sample import Sample, take


@click.command()
@client_options()
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=2.0, metavar="SECONDS", show_default=True,
    help="Time between two frames; rates are of this time.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Show one frame, which takes two looks at the cluster, and end.")
@json_option
def top(client: ClientSettings, interval: float, once: bool, as_json: bool) -> None:
    """Show the brokers, the busiest topics, the open transactions, and the groups with the largest lag.

    In a terminal the view is drawn again at each interval, until Ctrl-C. In a pipe the frames follow one another; as
    JSON each is an object on its own line. Records a second come from the end offsets of the topics, without internal
    ones; markers of transactions count. Works with Apache Kafka too.
    """
    run(_watch(client, interval, once=once, as_json=as_json))


async def _watch(client: ClientSettings, interval: float, *, once: bool, as_json: bool) -> None:
    edge = Edge()
    async with client.admin() as admin:
        before = await take(admin, edge)
        view = (
            None if once or as_json or not is_terminal() else Live(console=console(), screen=True, auto_refresh=False)
        )
        try:
            if view is not None:
                view.start()
                _draw(view, before, before)
            while True:
                await asyncio.sleep(interval)
                now = await take(admin, edge)
                if view is not None:
                    _draw(view, before, now)
                else:
                    _print(facts_of(before, now), once=once, as_json=as_json)
                if once:
                    return
                before = now
        finally:
            if view is not None:
                view.stop()


def _draw(view: Live, before: Sample, now: Sample) -> None:
    """Draw the frame over the last one. Each table gets its part of the height of the terminal."""
    facts = facts_of(before, now)
    out = view.console
    tables = tables_of(facts, max(3, (out.height - len(facts["brokers"])) // 4 - 3))
    lines: list[Text] = []
    for table in tables:
        lines += [*table.lines(out.width), Text()]
    lines += [Text(line, "dim") for line in notes_of(facts)]
    view.update(Text("\n").join(lines[: out.height]), refresh=True)


def _print(facts: Mapping[str, Any], *, once: bool, as_json: bool) -> None:
    if as_json and once:
        say_json(facts)
    elif as_json:
        click.echo(visible_json(msgspec.json.encode(facts).decode()))
    else:
        show(*tables_of(facts))
        tell(*notes_of(facts))
