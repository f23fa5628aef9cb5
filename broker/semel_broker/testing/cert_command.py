"""EDGE: the command `semel cert dev`: certificates for a laptop or a cluster of containers."""

from __future__ import annotations

from pathlib import Path

import click
from semel_protocol import extras

LOOPBACK = ("localhost", "127.0.0.1", "::1")
RESERVED = ("ca", "client")
"""Names of other files that the command makes."""
EXAMPLE = """\
{directory}/ca.pem      the CA, for clients (ssl_cafile, ssl.ca.location)
{files}
{directory}/client.pem  certificate and key of a client: CN=client

semel serve --set listeners=SSL://127.0.0.1:9093 --set ssl.keystore.location={directory}/{server}.pem"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cert() -> None:
    """Make certificates for development."""


@cert.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Host name or address of a broker; repeatable.")
@click.option(
    "--server",
    "servers",
    multiple=True,
    default=("server",),
    show_default=True,
    metavar="NAME",
    help="Name of a certificate for servers, and of its file; repeatable.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Validity of certificates.")
def dev(directory: Path, hosts: tuple[str, ...], servers: tuple[str, ...], days: int) -> None:
    """Make a CA, a certificate for brokers and one for a client in DIRECTORY.

    Each certificate for servers is valid for localhost and for each --host. The key of the CA is not kept, so no other
    certificate can be made with it later. Not for production: there your own CA signs the certificates.
    """
    for server in servers:
        if not server or server in RESERVED or Path(server).name != server:
            raise click.BadParameter(
                f"{server!r} is not possible: give the name of a file without a folder, "
                f"and none of {', '.join(RESERVED)}",
                param_hint="--server",
            )
    from semel_broker.testing.authority import Authority

    if (directory / "ca.pem").exists():
        raise click.ClickException(f"{directory} has a ca.pem: remove its files, or give another directory")
    names = list(dict.fromkeys([*LOOPBACK, *hosts]))
    try:
        authority = Authority(directory)
    except ImportError:
        raise click.ClickException(extras.missing("`semel cert dev`", "trustme", "tls-dev")) from None
    except OSError as error:
        raise click.ClickException(f"{directory}: {error.strerror}; give a directory that you may write to") from None
    try:
        for server in servers:
            authority.issue(server, *names, days=days)
    except ValueError as error:  # of a name that cannot be encoded (IDNA)
        authority.ca_file.unlink()
        raise click.BadParameter(f"not the name or the address of a host: {error}", param_hint="--host") from None
    authority.issue("client", days=days)
    files = "\n".join(
        f"{f'{directory}/{server}.pem':<18}  certificate and key of servers, for {', '.join(names)}: CN={server}"
        for server in servers
    )
    click.echo(EXAMPLE.format(directory=directory, files=files, server=servers[0]))
