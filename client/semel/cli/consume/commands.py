"""`semel consume`: prints records of a topic on standard output, as text, by a format, or as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import click

from semel import Consumer, TopicPartition
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import failure, needing, position, run, say
from semel._command_line.signals import Interrupted
from semel._config.consumer import ConsumerConfig
from semel._edge import Edge
from semel._texts import plural
from semel.admin import EARLIEST, LATEST, Operation
from semel.cli.consume.printer import WAITING_BYTES_MAX, Printer
from semel.cli.consume.record_text import ENCODINGS, Form, as_json, by_pattern
from semel.cli.consume.start_offsets import in_range, starts
from semel.diagnose import StartPosition, topics_of
from semel.diagnose.positions import FORMS

ASK_AGAIN_S = 1.0
CTRL_C = 130
DEFAULTS = {"isolation_level": "read_committed"}
BY_OPTION = {
    "allow_auto_create_topics": "`semel consume` never creates a topic",
    "enable_auto_commit": "`semel consume --group` commits what it has printed",
    "group_id": "give the group with --group",
}


@click.command()
@client_options(ConsumerConfig, by_option=BY_OPTION)
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
    metavar="WHERE",
    help=f"Where to start: {FORMS}; -5: at the last 5 records of each partition. With --group: earliest or latest, for "
    "partitions without a committed offset.  [default: latest]",
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
    help="read_uncommitted also prints the records of open and of aborted transactions.  [default: read_committed]",
)
@click.option(
    "-f",
    "--format",
    "pattern",
    metavar="TEXT",
    default="%v\\n",
    help="The text to print for each record, with the fields %k key, %v value, %t topic, %p partition, %o offset, "
    "%T timestamp (ms since 1970), %h headers, %K and %S the lengths of key and value (-1: null).  [default: %v\\n]",
)
@click.option("-Z", "--null", is_flag=True, help="Print NULL for a missing key or value. Default: nothing.")
@click.option(
    "--encoding",
    type=click.Choice(list(ENCODINGS)),
    default="text",
    show_default=True,
    help="Print keys, values and headers as they are, or as hexadecimal digits or base64.",
)
@click.option("--json", "json_lines", is_flag=True, help="Print each record as a JSON object in one line.")
def consume(
    client: ClientSettings,
    topic: str,
    group: str | None,
    partitions: tuple[int, ...],
    offset: str | None,
    from_beginning: bool,
    max_records: int | None,
    exit_at_end: bool,
    isolation: Literal["read_uncommitted", "read_committed"] | None,
    pattern: str,
    null: bool,
    encoding: str,
    json_lines: bool,
) -> None:
    """Print the records of TOPIC, and wait for new ones, until Ctrl-C, --max-records or --exit-at-end.

    SIGTERM and SIGHUP end it as Ctrl-C does: it leaves its group, and the exit status is 0. A second signal ends it at
    once.
    """
    start = _start(client, offset, from_beginning=from_beginning)
    if group and partitions:
        raise click.UsageError(f"--partition {partitions[0]} with --group: the group assigns its partitions itself")
    if group and start.timestamp not in (EARLIEST, LATEST):
        raise click.UsageError(
            f"--offset {offset} with --group: the group continues at its committed offsets. Give earliest or latest, "
            "or set the offsets with `semel group reset`"
        )
    if exit_at_end and not group and start.timestamp == LATEST:
        say("--exit-at-end prints nothing when it starts at the end: add --from-beginning, or --offset -5", err=True)
    # A program gets the bytes of the records. On a terminal, control characters in them are escaped.
    form = Form(encoding, b"NULL" if null else b"", sys.stdout.isatty())
    show = as_json(form) if json_lines else by_pattern(pattern, form)
    options = {
        "group_id": group,
        "auto_offset_reset": "latest" if start.timestamp == LATEST else "earliest",
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
    }
    if isolation is not None:
        options["isolation_level"] = isolation
    places, firsts = run(_places(client, topic, sorted(set(partitions)), start))
    output = Printer(sys.stdout.buffer)
    try:
        run(_read(client, options, topic, places, start, firsts, max_records, exit_at_end, show, output))
    except Interrupted as e:
        if e.status == CTRL_C:
            say("", err=True)  # a terminal shows ^C in front
        say(plural(output.records, "record"), err=True)
    else:
        if not output.is_closed and sys.stderr.isatty():
            say(plural(output.records, "record"), err=True)
    finally:
        output.end()


def _start(client: ClientSettings, offset: str | None, *, from_beginning: bool) -> StartPosition:
    """From the options, or else from the setting auto_offset_reset."""
    if from_beginning and offset not in (None, "earliest", "beginning"):
        raise click.UsageError(f"give either --from-beginning or --offset {offset}")
    words = "earliest" if from_beginning else offset
    if words is None:
        words = "earliest" if client.value("auto_offset_reset", "latest") == "earliest" else "latest"
    return position(words, "--offset", Edge().now_ms(), may_be_last=True)


async def _read(
    client: ClientSettings,
    options: Mapping[str, Any],
    topic: str,
    places: list[TopicPartition],
    start: StartPosition,
    firsts: dict[TopicPartition, int],
    max_records: int | None,
    exit_at_end: bool,
    show: Callable[[Any], bytes],
    output: Printer,
) -> None:
    async with client.consumer(options, DEFAULTS) as consumer:
        grouped = consumer.group_id is not None
        ends = await consumer.end_offsets(places)
        if grouped:
            consumer.subscribe([topic])
        else:
            found = firsts or await starts(consumer, places, start, ends)
            consumer.assign(places)
            for tp, first in found.items():
                consumer.seek(tp, first)
        taken = 0
        try:
            while max_records is None or taken < max_records:
                if exit_at_end and await _at_end(consumer, ends):
                    break
                most = None if max_records is None else max_records - taken
                for records in (await consumer.getmany(timeout_ms=200, max_records=most)).values():
                    output.put(b"".join(map(show, records)), len(records))
                    taken += len(records)
                await _keep_up(consumer, output, 0 if grouped else WAITING_BYTES_MAX)
                if grouped:
                    await consumer.commit()
            await _keep_up(consumer, output, 0)
        except BrokenPipeError:
            sys.stderr.close()  # end without an error, as head(1) expects
        except OSError as e:
            raise failure(f"cannot write the records to the output: {e.strerror or e}") from e


async def _keep_up(consumer: Consumer[Any, Any], output: Printer, bytes_max: int) -> None:
    """Wait until at most `bytes_max` bytes are left to print. A member of a group asks for records meanwhile, without
    getting any, so that it does not exceed max_poll_interval_ms. Raises OSError of the output.
    """
    while not await output.wait(bytes_max, ASK_AGAIN_S):
        paused = consumer.paused()
        consumer.pause(*consumer.assignment())
        if held := consumer.paused():
            await consumer.getmany(*held)
        consumer.resume(*(consumer.paused() - paused))


async def _places(
    client: ClientSettings, topic: str, partitions: list[int], start: StartPosition
) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
    """The partitions to read, and where, for a start at an offset. Asks the Admin, which reports a missing topic at
    once.
    """
    async with client.admin() as admin:
        with needing(admin, Operation.READ, topic):
            (found,) = await topics_of(admin, [topic])
        known = [partition.partition for partition in found.partitions]
        missing = [p for p in partitions if p not in known]
        if missing:
            raise failure(f"{topic} has no partition {missing[0]}; it has {len(known)}")
        places = [TopicPartition(topic, p) for p in partitions or known]
        return places, {} if start.offset is None else await in_range(admin, places, start.offset)


async def _at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    owned = [tp for tp in ends if tp in consumer.assignment()]
    if not owned:
        return False
    return all([await consumer.position(tp) >= ends[tp] for tp in owned])
