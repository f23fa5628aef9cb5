"""`semel topic stuck`: explains why read_committed consumers do not reach the end of a topic."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec
from rich.text import Text

from semel import Admin, TopicPartition
from semel._edge import Edge
from semel.admin import EARLIEST, LATEST
from semel.cli.shared.common import bootstrap_option, console, run
from semel.cli.shared.open_transactions import OpenTransaction, describe_transaction, open_transactions
from semel.cli.shared.partition_names import places
from semel.cli.shared.times import plural

CAPTION_COLUMNS = 12
BEHIND_SHOWN = 5


class Ends(msgspec.Struct, frozen=True):
    """The offsets of a partition that bound its readers."""

    start: int
    last_stable: int
    high_watermark: int

    @property
    def held_back(self) -> int:
        return self.high_watermark - self.last_stable


async def ends_of(admin: Admin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Ends]:
    """The stable offset is requested first, so that it is never above the high watermark."""
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    stable = await admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    high = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return {at: Ends(starts[at].offset, stable[at].offset, high[at].offset) for at in partitions}


@click.command("stuck")
@bootstrap_option
@click.argument("place", metavar="TOPIC[:PARTITION]")
def stuck_topic(bootstrap: str, place: str) -> None:
    """Explain why read_committed consumers do not reach the end of TOPIC.

    Shows each partition whose last stable offset is below its high watermark, with the open transaction that is the
    reason: its producer, its start, its expected end, and the safe action.
    """

    async def work() -> tuple[dict[TopicPartition, Ends], list[OpenTransaction]]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            ends = await ends_of(admin, await places(admin, place))
            held = [at for at, each in ends.items() if each.held_back]
            return ends, await open_transactions(admin, held) if held else []

    ends, found = run(work())
    out = console()
    held = {at: each for at, each in ends.items() if each.held_back}
    if not held:
        out.print(f"{place} is not stuck: all of {plural(len(ends), 'partition')} can be read to the end.")
        return
    out.print(f"{place}: read_committed consumers are held back in {len(held)} of {plural(len(ends), 'partition')}.")
    now_ms = Edge().now_ms()
    for at, each in held.items():
        out.print()
        for line in held_back(at, each, [holder for holder in found if holder.partition == at], now_ms):
            out.print(line, soft_wrap=True)


def held_back(at: TopicPartition, ends: Ends, found: Sequence[OpenTransaction], now_ms: int) -> list[Text]:
    """PURE. The lines of one partition. found: its open transactions in order of their first offsets."""
    head = Text(f"{at.topic}-{at.partition}", "bold").append(
        f"  last stable offset {ends.last_stable:,}, high watermark {ends.high_watermark:,}: "
        f"{plural(ends.held_back, 'offset')} held back",
        "not bold",
    )
    if not found:
        return [head, Text("  The transaction that held it back has just ended: run the command again.")]
    lines = [head, *transaction_lines(found[0], now_ms)]
    for behind in found[1 : 1 + BEHIND_SHOWN]:
        whose = "no transactional id" if behind.transaction is None else behind.transaction.transactional_id
        lines.append(
            Text(
                f"  {'behind it':<{CAPTION_COLUMNS}}producer {behind.producer.producer_id} ({whose}) "
                f"from offset {behind.first_offset:,}: {behind.verdict.value}"
            )
        )
    if (more := len(found) - 1 - BEHIND_SHOWN) > 0:
        lines.append(Text(f"  {'':<{CAPTION_COLUMNS}}and {plural(more, 'transaction')} more"))
    return lines


def transaction_lines(holder: OpenTransaction, now_ms: int) -> list[Text]:
    """PURE. One line each: the producer, the start, the expected end, the safe action."""
    return [
        Text(f"  {caption:<{CAPTION_COLUMNS}}", "dim").append(said, "")
        for caption, said in describe_transaction(holder, now_ms)
    ]
