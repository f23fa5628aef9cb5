"""`semel console`: serves the web page until it is interrupted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import failure, say
from semel_protocol import extras

from semel_console.app import console_app
from semel_console.guard import ConsoleGuard, is_loopback
from semel_console.link import ClusterLink
from semel_console.server import listening_socket, serve

if TYPE_CHECKING:
    from semel_console.decoding import Decoder

PORT_DEFAULT = 9480
CLIENT_DEFAULTS = {"client_id": "semel-console", "max_block_ms": 5_000, "request_timeout_ms": 5_000}
"""A page must show soon that brokers do not answer."""


@click.command()
@client_options()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT_DEFAULT,
    show_default=True,
    metavar="N",
    help="The port to listen on; 0 takes a free one.",
)
@click.option(
    "--allow-host",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="Accept requests to this host name too, for a proxy; repeatable. Default: localhost and IP addresses.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Allow changes of topics, records, transactions, groups, ACLs, users and quotas.",
)
@click.option(
    "--registry",
    metavar="URL",
    envvar="SEMEL_SCHEMA_REGISTRY_URL",
    help="A schema registry, whose Avro, Protobuf and JSON Schema are shown as JSON. Or set SEMEL_SCHEMA_REGISTRY_URL. "
    "Default: none.",
)
@click.option("--until-input-ends", is_flag=True, hidden=True, help="End when standard input, a pipe, ends.")
def console(
    client: ClientSettings,
    host: str,
    port: int,
    host_names: tuple[str, ...],
    write: bool,
    registry: str | None,
    until_input_ends: bool,
) -> None:
    """Serve a web page that shows the cluster: brokers, topics, records, groups, and transactions on a timeline.

    Prints the address of the page, with a token that the browser needs once. The browser gets a cookie for it. The page
    shows what the principal of this command may see; credentials do not reach the browser. Ctrl-C ends it.
    """
    decoder = None if registry is None else _decoder(registry)
    try:
        listening = listening_socket(host, port)
    except OSError as e:
        raise failure(f"cannot listen on {host}:{port}: {e.strerror or e}. --port 0 takes a free port") from None
    with listening:
        guard = ConsoleGuard(host_names=host_names, may_write=write)
        link = ClusterLink(lambda: client.admin(CLIENT_DEFAULTS, quiet=True))
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        say(f"Open {address}#token={guard.token}")
        if not is_loopback(host):
            say("Other machines can connect, and the connection is not encrypted: use a proxy with TLS.", err=True)
        ending = asyncio.Event()
        app = console_app(
            link, guard, ending=ending, producing=lambda: client.producer({}, CLIENT_DEFAULTS), decoder=decoder
        )
        asyncio.run(serve(app, listening, ending, until_input_ends=until_input_ends))


def _decoder(url: str) -> Decoder:
    """Raise click.ClickException without the extra."""
    try:
        from semel_console.decoding import Decoder
    except ImportError as e:
        raise failure(extras.missing("--registry", str(e.name), "avro")) from None
    return Decoder(url)
