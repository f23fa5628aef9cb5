"""EDGE: `semel produce`: sends each line of standard input or of a file as one record, idempotently."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import given_bytes, key_values, run
from semel._command_line.signals import Interrupted
from semel._config.producer import ProducerConfig
from semel.cli.produce.job import Job

DEFAULTS = {"linger_ms": 5, "max_block_ms": 120_000}
"""Where the command differs from the client. A full buffer waits as long as a record does."""
BY_OPTION = {
    "enable_idempotence": "`semel produce` is idempotent with --acks all, and not otherwise",
    "transactional_id": "`semel produce` does not write transactions",
}


@click.command()
@client_options(ProducerConfig, by_option=BY_OPTION)
@click.argument("topic")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-k",
    "--key-separator",
    metavar="TEXT",
    help="Split each line into key and value at the first TEXT. Default: records without a key.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write all records to this partition. Default: chosen by the key; without keys spread over all partitions.",
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="KEY=VALUE", help="Add a header to each record; repeatable."
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="The compression of record batches.  [default: none]",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    help="When a record counts as stored: all: on all in-sync replicas; 1: on the leader; 0: once it is sent.  "
    "[default: all]",
)
@click.option(
    "--linger-ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="Milliseconds that a batch waits for more records.  [default: 5]",
)
@click.option(
    "--create/--no-create",
    "may_create",
    default=True,
    help="Whether a missing TOPIC may be created by the broker, as its auto.create.topics.enable allows.  "
    "[default: --create]",
)
@click.option("-q", "--quiet", is_flag=True, help="Print neither progress bar nor summary.")
def produce(
    client: ClientSettings,
    topic: str,
    file: Path | None,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    compression: str | None,
    acks: str | None,
    linger_ms: int | None,
    may_create: bool,
    quiet: bool,
) -> None:
    """Write each line of FILE (default: standard input) to TOPIC as one record.

    With --acks all each record is stored exactly once, also if a broker restarts meanwhile. Exit status 1 if a record
    could not be stored. The error names the line. Lines before it are stored; lines after it may be.

    A signal (Ctrl-C, SIGTERM, SIGHUP) ends the input: the lines that have arrived are stored, and a last one without a
    line end, too. A second signal ends the command at once.

    A missing topic is created by the broker, as other producers do; the command says so. --no-create refuses it.
    """
    pairs = [(key, given_bytes(value)) for key, value in key_values(headers, "--header").items()]
    options: dict[str, Any] = {} if linger_ms is None else {"linger_ms": linger_ms}
    if compression is not None:
        options["compression_type"] = compression
    if acks is not None:
        options["acks"] = "all" if acks == "all" else int(acks)
    if options.get("acks", client.value("acks", "all")) not in ("all", -1):
        options["enable_idempotence"] = False
    separator = None if key_separator is None else given_bytes(key_separator)
    job = Job(topic, separator, partition, pairs, may_create=may_create, quiet=quiet)
    with file.open("rb") if file else sys.stdin.buffer as source:
        hidden = quiet or (file is None and sys.stdin.isatty())
        try:
            size_bytes = file.stat().st_size if file else None
            run(job.run(client, source, size_bytes, options, DEFAULTS, hidden=hidden), job.end_input)
        except Interrupted:
            if not quiet:
                job.summarize()
            raise
    if not quiet:
        job.summarize()
