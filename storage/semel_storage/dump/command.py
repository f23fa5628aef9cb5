"""EDGE: the commands `semel log`: `check`, and `dump`, which prints the content of the files of a partition.

It opens files read-only and needs no broker. The files of a running broker can be read too; an incomplete last batch is
then shown as a torn tail. The exit status is 1 if a file is invalid.
"""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console

from semel_storage.check.command import check
from semel_storage.disk.disk import Buffer
from semel_storage.dump import rows
from semel_storage.dump.internal import DECODERS, decoder_for
from semel_storage.dump.render import json_line, plain_line, styled_line
from semel_storage.dump.rows import DumpOptions, DumpRow, RowKind

LEADER_EPOCHS = "leader-epoch-checkpoint"
AUTO = "auto"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def log() -> None:
    """Check the files of a data directory, and print their content."""


log.add_command(check)


@log.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, readable=True, path_type=Path)
)
@click.option("--records/--no-records", default=True, show_default=True, help="Show the records of each batch.")
@click.option("--values/--no-values", default=True, show_default=True, help="Show keys and values of the records.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--from-offset", type=click.IntRange(min=0), default=0, metavar="N", help="Start at this offset.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records (N batches, without records)."
)
@click.option(
    "--decoder",
    type=click.Choice([AUTO, *DECODERS]),
    default=AUTO,
    show_default=True,
    help="Decoder of keys and values; auto: by the name of the directory.",
)
def dump(
    files: tuple[Path, ...],
    records: bool,
    values: bool,
    as_json: bool,
    from_offset: int,
    limit: int | None,
    decoder: str,
) -> None:
    """Print the batches and records of log segments, and the entries of the files beside them.

    FILE is a .log, .index, .timeindex, .snapshot, .txnindex or leader-epoch-checkpoint, or a partition's directory:
    then all its logs are printed. On a terminal the output is formatted, otherwise each line has `name: value` pairs.
    The exit status is 1 if a file is invalid: a torn tail, a wrong CRC, an index that contradicts its log.
    """
    emit = _emitter(as_json)
    has_problem = False
    for path in _expanded(files):
        name = decoder_for(path.resolve().parent.name) if decoder == AUTO else decoder
        options = DumpOptions(
            decoder=DECODERS[name], records=records, values=values, from_offset=from_offset, limit=limit
        )
        if len(files) > 1 or files[0].is_dir():
            click.echo(f"{path}:", err=as_json)
        for row in _rows(path, options):
            has_problem = has_problem or row.kind is RowKind.PROBLEM
            emit(row)
    if has_problem:
        raise SystemExit(1)


def _emitter(as_json: bool) -> Callable[[DumpRow], None]:
    console = Console(highlight=False, soft_wrap=True)
    if as_json:
        return lambda row: click.echo(json_line(row))
    if console.is_terminal:
        return lambda row: console.print(styled_line(row))
    return lambda row: click.echo(plain_line(row))


def _expanded(files: tuple[Path, ...]) -> Iterator[Path]:
    for path in files:
        if not path.is_dir():
            yield path
            continue
        logs = sorted(path.glob("*.log"))
        if not logs:
            raise click.ClickException(f"{path} has no .log file; give a partition's directory, such as flights-0")
        yield from logs


def _rows(path: Path, options: DumpOptions) -> Iterator[DumpRow]:
    data = _bytes_of(path)
    if path.name == LEADER_EPOCHS:
        return rows.epoch_rows(data)
    if path.suffix == ".txnindex":
        return rows.aborted_rows(data)
    if path.suffix == ".snapshot":
        return rows.snapshot_rows(data)
    if path.suffix == ".timeindex":
        return rows.time_index_rows(data, _base_offset(path))
    if path.suffix == ".index":
        beside = path.with_suffix(".log")
        return rows.index_rows(data, _base_offset(path), _bytes_of(beside) if beside.exists() else None)
    if path.suffix == ".log":
        return rows.log_rows(data, options)
    raise click.ClickException(
        f"{path.name} is not one of .log, .index, .timeindex, .snapshot, .txnindex, {LEADER_EPOCHS}"
    )


def _base_offset(path: Path) -> int:
    if not path.stem.isdecimal():
        raise click.ClickException(f"{path.name} is not named after an offset, which its entries are relative to")
    return int(path.stem)


def _bytes_of(path: Path) -> Buffer:
    """The content of the file, memory-mapped: a segment of 1 GiB takes no memory."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return b""
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
