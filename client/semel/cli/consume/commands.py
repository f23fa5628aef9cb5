"""`semel consume`: prints records of a topic as text, by a format, as JSON lines, or as a table (Arrow, Parquet)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, cast

import click
from click.core import ParameterSource

from semel import Consumer, TopicPartition
from semel._arrow import require_arrow
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import failure, needing, position, run, say
from semel._command_line.signals import Interrupted
from semel._config.consumer import ConsumerConfig
from semel._edge import Edge
from semel._texts import plural
from semel.admin import EARLIEST, LATEST, Operation
from semel.cli.consume.printer import WAITING_BYTES_MAX, Printer, text_printer
from semel.cli.consume.record_text import ENCODINGS, Form, as_json, by_pattern
from semel.cli.consume.start_offsets import in_range, starts
from semel.diagnose import StartPosition, topics_of
from semel.diagnose.positions import FORMS
from semel.errors import KafkaError

ASK_AGAIN_S = 1.0
COMMIT_S = 5.0
"""At the end, a commit may take no longer."""
CTRL_C = 130
TABLES = ("arrow", "parquet")
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
@click.option("--json", "json_lines", is_flag=True, help="Short for --output json.")
@click.option(
    "--output",
    "form",
    type=click.Choice(["text", "json", *TABLES]),
    help="text: as --format says. json: each record as a JSON object in one line. arrow: an Arrow IPC stream, parquet: "
    "a Parquet file; key and value are bytes there.  [default: text]",
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the table of --output arrow or parquet to this new file. Default: standard output, not to a terminal.",
)
@click.option("--overwrite", is_flag=True, help="Replace the FILE of --file if it exists.")
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
    form: str | None,
    file: str | None,
    overwrite: bool,
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
    form = _form(form, json_lines=json_lines, file=file, overwrite=overwrite)
    # A program gets the bytes of the records. On a terminal, control characters in them are escaped.
    text_form = Form(encoding, b"NULL" if null else b"", sys.stdout.isatty())
    show = as_json(text_form) if form == "json" else by_pattern(pattern, text_form)
    options = {
        "group_id": group,
        "auto_offset_reset": "latest" if start.timestamp == LATEST else "earliest",
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
    }
    if isolation is not None:
        options["isolation_level"] = isolation
    places, firsts = run(_places(client, topic, sorted(set(partitions)), start))
    output = _table(form, file, overwrite=overwrite) if form in TABLES else TextOutput(show)
    where = "" if file is None else f" in {file}"
    try:
        run(_read(client, options, topic, places, start, firsts, max_records, exit_at_end, output))
    except Interrupted as e:
        if e.status == CTRL_C:
            say("", err=True)  # a terminal shows ^C in front
        say(plural(output.printer.records, "record") + where, err=True)
    else:
        if not output.printer.is_closed and (where or sys.stderr.isatty()):
            say(plural(output.printer.records, "record") + where, err=True)
    finally:
        output.printer.end()


class Output(Protocol):
    """The form of the records, and the printer that writes it.

    rows_max: records to ask for at once; None takes the setting. commits_at_end: a group's offsets are committed after
    `end`, not before.
    """

    rows_max: int | None
    commits_at_end: bool

    @property
    def printer(self) -> Printer[Any]: ...

    def take(self, found: Mapping[TopicPartition, list[Any]]) -> None:
        """Queue records to print."""

    async def end(self) -> None:
        """Write what follows the last record, also after an error or a signal. Raises OSError of the output."""


class TextOutput:
    """Prints each record as `show` says."""

    rows_max: int | None = None
    commits_at_end = False

    def __init__(self, show: Callable[[Any], bytes]) -> None:
        self._show = show
        self.printer = text_printer(sys.stdout.buffer)

    def take(self, found: Mapping[TopicPartition, list[Any]]) -> None:
        for records in found.values():
            self.printer.put(b"".join(map(self._show, records)), len(records))

    async def end(self) -> None:
        pass


def _form(form: str | None, *, json_lines: bool, file: str | None, overwrite: bool) -> str:
    """The form of the output. Raises UsageError for options that do not go together."""
    if json_lines and form not in (None, "json"):
        raise click.UsageError(f"give either --json or --output {form}")
    form = "json" if json_lines else form or "text"
    if overwrite and file is None:
        raise click.UsageError("--overwrite goes with --file")
    if form not in TABLES:
        if file is not None:
            raise click.UsageError(f"--file {file} goes with --output arrow or parquet: redirect text with > {file}")
        return form
    for name in ("pattern", "null", "encoding"):
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = {"pattern": "format"}.get(name, name)
            raise click.UsageError(f"--{option} with --output {form}: a table has the bytes of keys and values")
    if file is None and sys.stdout.isatty():
        raise click.UsageError(f"--output {form} is binary, and standard output is a terminal: add --file FILE")
    try:
        require_arrow(f"`semel consume --output {form}`")
    except ModuleNotFoundError as e:
        raise failure(str(e)) from e
    from semel.cli.consume.table_file import exists

    if file is not None and exists(file) and not overwrite:
        raise click.UsageError(f"--file {file}: the file exists: give another name, or --overwrite to replace it")
    return form


def _table(form: str, file: str | None, *, overwrite: bool) -> Output:
    from semel.cli.consume.table_file import TableForm, TableOutput, opened

    try:
        output = None if file is None else opened(file, overwrite=overwrite)
    except OSError as e:
        raise failure(f"cannot write {file}: {e.strerror or e}") from e
    return TableOutput(cast(TableForm, form), output)


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
    output: Output,
) -> None:
    try:
        try:
            async with client.consumer(options, DEFAULTS) as consumer:
                ends = await consumer.end_offsets(places)
                if consumer.group_id is not None:
                    consumer.subscribe([topic])
                else:
                    found = firsts or await starts(consumer, places, start, ends)
                    consumer.assign(places)
                    for tp, first in found.items():
                        consumer.seek(tp, first)
                try:
                    await _print(consumer, ends, max_records, exit_at_end, output)
                finally:
                    await output.end()
                    if consumer.group_id is not None and output.commits_at_end:
                        await _commit(consumer)
        finally:
            await output.end()  # also if no record was asked for
    except BrokenPipeError:
        sys.stderr.close()  # end without an error, as head(1) expects
    except OSError as e:
        raise failure(f"cannot write the records to the output: {e.strerror or e}") from e


async def _print(
    consumer: Consumer[Any, Any],
    ends: dict[TopicPartition, int],
    max_records: int | None,
    exit_at_end: bool,
    output: Output,
) -> None:
    """Print the records until there are enough. A group's offsets are committed behind what is printed."""
    grouped = consumer.group_id is not None
    taken = 0
    while max_records is None or taken < max_records:
        if exit_at_end and await _at_end(consumer, ends):
            break
        left = None if max_records is None else max_records - taken
        most = left if output.rows_max is None or (left is not None and left < output.rows_max) else output.rows_max
        found = await consumer.getmany(timeout_ms=200, max_records=most)
        output.take(found)
        taken += sum(map(len, found.values()))
        await _keep_up(consumer, output.printer, 0 if grouped else WAITING_BYTES_MAX)
        if grouped and not output.commits_at_end:
            await consumer.commit()
    await _keep_up(consumer, output.printer, 0)


async def _commit(consumer: Consumer[Any, Any]) -> None:
    """Commit what the complete file has. Raises ClickException."""
    try:
        async with asyncio.timeout(COMMIT_S):
            await consumer.commit()
    except (KafkaError, TimeoutError) as e:
        why = f"no answer within {COMMIT_S:.0f} s" if isinstance(e, TimeoutError) else str(e)
        raise failure(
            f"the file is complete, but its offsets are not committed: {why}. The group reads it again"
        ) from e


async def _keep_up(consumer: Consumer[Any, Any], output: Printer[Any], bytes_max: int) -> None:
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
