"""`semel consume`: prints records of a topic on standard output, as text, by a format, or as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Literal

import click
import msgspec
from semel_protocol.visible import visible_bytes, visible_json

from semel import Admin, Consumer, ConsumerRecord, TopicPartition
from semel.admin import EARLIEST, LATEST
from semel.cli.shared.common import bootstrap_option, failure, run, say
from semel.cli.shared.start_position import FORMS, StartPosition, parse
from semel.cli.shared.times import plural

ESCAPES = {"\\n": b"\n", "\\t": b"\t", "\\0": b"\0", "\\r": b"\r", "\\\\": b"\\", "%%": b"%"}

Record = ConsumerRecord[bytes | None, bytes | None]
Show = Callable[[Record], bytes]
FIELDS: dict[str, Show] = {
    "%k": lambda r: r.key or b"",
    "%v": lambda r: r.value or b"",
    "%t": lambda r: r.topic.encode(),
    "%p": lambda r: b"%d" % r.partition,
    "%o": lambda r: b"%d" % r.offset,
    "%T": lambda r: b"%d" % r.timestamp,
    "%h": lambda r: b",".join(b"%b=%b" % (key.encode(), value or b"") for key, value in r.headers),
}


@click.command()
@bootstrap_option
@click.argument("topic")
@click.option(
    "-g",
    "--group",
    metavar="NAME",
    help="Read as a member of this group, and commit the offsets of printed records. Default: without a group.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Read only this partition; repeatable. Default: all partitions.",
)
@click.option(
    "-o",
    "--offset",
    default="latest",
    show_default=True,
    metavar="WHERE",
    help=f"Where to start: {FORMS}. With --group: earliest or latest, for partitions without a committed offset.",
)
@click.option("--from-beginning", is_flag=True, help="Start at the first record, as with --offset earliest.")
@click.option(
    "-n", "--max-records", type=click.IntRange(min=1), metavar="N", help="Stop after N records. Default: no limit."
)
@click.option(
    "-e", "--exit-at-end", is_flag=True, help="Stop after the last record that the topic has when the command starts."
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="read_uncommitted also prints the records of open and of aborted transactions.",
)
@click.option(
    "-f",
    "--format",
    "pattern",
    metavar="TEXT",
    default="%v\\n",
    help="The text to print for each record, with the fields %k key, %v value, %t topic, %p partition, %o offset, "
    "%T timestamp (ms since 1970), %h headers.  [default: %v\\n]",
)
@click.option("--json", "as_json", is_flag=True, help="Print each record as a JSON object in one line.")
def consume(
    bootstrap: str,
    topic: str,
    group: str | None,
    partitions: tuple[int, ...],
    offset: str,
    from_beginning: bool,
    max_records: int | None,
    exit_at_end: bool,
    isolation: Literal["read_uncommitted", "read_committed"],
    pattern: str,
    as_json: bool,
) -> None:
    """Print the records of TOPIC, and wait for new ones, until Ctrl-C, --max-records or --exit-at-end."""
    start = parse("earliest" if from_beginning else offset, "--offset")
    if group and (partitions or start.timestamp not in (EARLIEST, LATEST)):
        raise click.UsageError(
            "--group assigns all partitions itself and continues at the committed offsets: leave out --partition, and "
            "use `semel group reset` to set the offsets"
        )
    # A program gets the bytes of the records. On a terminal, control characters in them are escaped.
    show = shower(pattern, as_json=as_json, escaped=sys.stdout.isatty())
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="latest" if start.timestamp == LATEST else "earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
        allow_auto_create_topics=False,
    )
    places = run(_places(bootstrap, topic, sorted(set(partitions))))
    output = _Output()
    try:
        run(_read(consumer, topic, places, start, max_records, exit_at_end, show, output))
    except KeyboardInterrupt:
        say(f"\n{plural(output.records, 'record')}", err=True)
    else:
        if not output.is_closed and sys.stderr.isatty():
            say(plural(output.records, "record"), err=True)


class _Output:
    """The number of records printed so far. `is_closed`: the reader of the pipe has closed it."""

    records = 0
    is_closed = False


async def _read(
    consumer: Consumer,
    topic: str,
    places: list[TopicPartition],
    start: StartPosition,
    max_records: int | None,
    exit_at_end: bool,
    show: Callable[[Any], bytes],
    output: _Output,
) -> None:
    out: BinaryIO = sys.stdout.buffer
    grouped = consumer.group_id is not None
    if grouped:
        consumer.subscribe([topic])
    async with consumer:
        ends = await consumer.end_offsets(places)
        if not grouped:
            consumer.assign(places)
            for tp, first in (await _starts(consumer, places, start, ends)).items():
                consumer.seek(tp, first)
        try:
            while max_records is None or output.records < max_records:
                if exit_at_end and await _at_end(consumer, ends):
                    break
                most = None if max_records is None else max_records - output.records
                for records in (await consumer.getmany(timeout_ms=200, max_records=most)).values():
                    out.write(b"".join(map(show, records)))
                    output.records += len(records)
                out.flush()
                if grouped:
                    await consumer.commit()
        except BrokenPipeError:
            output.is_closed = True
            sys.stderr.close()  # end without an error, as head(1) expects


async def _starts(
    consumer: Consumer, places: list[TopicPartition], start: StartPosition, ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets to start at; none for the ends of partitions, which the consumer finds itself."""
    if start.offset is not None:
        return dict.fromkeys(places, start.offset)
    if start.timestamp is None or start.timestamp in (EARLIEST, LATEST):
        return {}
    found = await consumer.offsets_for_times(dict.fromkeys(places, start.timestamp))
    return {tp: ends[tp] if at is None else at.offset for tp, at in found.items()}


async def _places(bootstrap: str, topic: str, partitions: list[int]) -> list[TopicPartition]:
    """The partitions to read. Asks the Admin, which reports a missing topic at once."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (found,) = await admin.describe_topics([topic])
    known = [partition.partition for partition in found.partitions]
    missing = [p for p in partitions if p not in known]
    if missing:
        raise failure(f"{topic} has no partition {missing[0]}; it has {len(known)}")
    return [TopicPartition(topic, p) for p in partitions or known]


async def _at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    owned = [tp for tp in ends if tp in consumer.assignment()]
    if not owned:
        return False
    return all([await consumer.position(tp) >= ends[tp] for tp in owned])


def shower(pattern: str, *, as_json: bool, escaped: bool) -> Show:
    """A function from a record to its bytes. escaped: escape control characters except those of the pattern.

    Raises click.BadParameter for a pattern with an unknown field.
    """
    if not as_json:
        return _formatter(pattern, escaped)
    return _escaped_json if escaped else _json


def _escaped_json(record: Record) -> bytes:
    return visible_json(_json(record).decode().removesuffix("\n")).encode() + b"\n"


def _json(record: Record) -> bytes:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode("utf-8", "backslashreplace")

    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[key, text(value)] for key, value in record.headers],
    }
    return msgspec.json.encode(fields) + b"\n"


def _escaped(field: Show) -> Show:
    return lambda record: visible_bytes(field(record)).encode()


def _formatter(pattern: str, escaped: bool) -> Show:
    """A function from a record to the bytes of `pattern`. Raises click.BadParameter for an unknown %x."""
    parts: list[bytes | Show] = []
    at = 0
    while at < len(pattern):
        two = pattern[at : at + 2]
        if two in FIELDS:
            parts.append(_escaped(FIELDS[two]) if escaped else FIELDS[two])
        elif two in ESCAPES:
            parts.append(ESCAPES[two])
        elif two.startswith("%"):
            raise click.BadParameter(f"{two!r} is not a field; fields: {' '.join(FIELDS)} %%", param_hint="--format")
        else:
            parts.append(pattern[at].encode())
            at -= 1
        at += 2
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])
