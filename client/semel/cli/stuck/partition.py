"""`semel topic stuck`: explains why read_committed consumers do not reach the end of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec
from rich.text import Text

from semel import Admin, TopicPartition
from semel._edge import Edge
from semel.admin import EARLIEST, LATEST
from semel.cli.shared.client_settings import ClientSettings, client_options
from semel.cli.shared.common import FOUND_TROUBLE, json_option, run, say_json, tell
from semel.cli.shared.open_transactions import (
    OpenTransaction,
    by_transaction,
    describe_transaction,
    open_facts,
    open_transactions,
)
from semel.cli.shared.partition_names import compact, places
from semel.cli.shared.times import plural

CAPTION_COLUMNS = 12
BEHIND_SHOWN = 5


class PartitionEnds(msgspec.Struct, frozen=True):
    """The offsets of a partition that bound its readers."""

    start: int
    last_stable: int
    high_watermark: int

    @property
    def held_back(self) -> int:
        return self.high_watermark - self.last_stable


async def ends_of(admin: Admin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionEnds]:
    """The stable offset is requested first, so that it is never above the high watermark."""
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    stable = await admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    high = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return {at: PartitionEnds(starts[at].offset, stable[at].offset, high[at].offset) for at in partitions}


@click.command("stuck")
@client_options()
@click.argument("place", metavar="TOPIC[:PARTITION]")
@json_option
def stuck_topic(client: ClientSettings, place: str, as_json: bool) -> None:
    """Explain why read_committed consumers do not reach the end of TOPIC.

    Shows the partitions whose last stable offset is below their high watermark, with the open transactions that are the
    reason: producer, start, expected end, and the safe action. Exit status 0: every partition can be read to its end.
    3: consumers are held back in some. 1: the command failed.
    """

    async def work() -> tuple[dict[TopicPartition, PartitionEnds], list[OpenTransaction]]:
        async with client.admin() as admin:
            ends = await ends_of(admin, await places(admin, place))
            held = [at for at, each in ends.items() if each.held_back]
            return ends, await open_transactions(admin, held) if held else []

    ends, found = run(work())
    held = {at: each for at, each in ends.items() if each.held_back}
    if as_json:
        say_json(facts_of(len(ends), held, found))
    elif not held:
        tell(f"{place} is not stuck: all of {plural(len(ends), 'partition')} can be read to the end.")
    else:
        tell(f"{place}: read_committed consumers are held back in {len(held)} of {plural(len(ends), 'partition')}.")
        tell(*held_back(held, found, Edge().now_ms()))
    if held:
        raise SystemExit(FOUND_TROUBLE)


def facts_of(
    count: int, held: Mapping[TopicPartition, PartitionEnds], found: Sequence[OpenTransaction]
) -> dict[str, Any]:
    """PURE. The partitions that are held back, and their transactions, as plain types. count: all partitions."""
    return {
        "stuck": bool(held),
        "partitions_checked": count,
        "held_back": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "last_stable_offset": each.last_stable,
                "high_watermark": each.high_watermark,
                "offsets_held_back": each.held_back,
            }
            for at, each in held.items()
        ],
        "transactions": [open_facts(holders) for holders in by_transaction(found)],
    }


def held_back(
    held: Mapping[TopicPartition, PartitionEnds], found: Sequence[OpenTransaction], now_ms: int
) -> list[Text]:
    """PURE. One paragraph for each transaction that is the first open one of a partition, and one for partitions whose
    transaction has ended. found: the open transactions, sorted by partition and first offset.
    """
    first: dict[TopicPartition, OpenTransaction] = {}
    for each in found:
        first.setdefault(each.partition, each)
    lines = []
    for holders in by_transaction(first.values()):
        places = [each.partition for each in holders]
        later = [each for each in found if each.partition in places and each is not first[each.partition]]
        lines += [Text(), *_headline({at: held[at] for at in places})]
        lines += [*transaction_lines(holders, now_ms), *_behind(later)]
    if ended := {at: each for at, each in held.items() if at not in first}:
        lines += [Text(), *_headline(ended)]
        lines.append(Text("  The transaction that held it back has just ended: run the command again."))
    return lines


def _headline(held: Mapping[TopicPartition, PartitionEnds]) -> list[Text]:
    if len(held) == 1:
        ((at, ends),) = held.items()
        head = Text(f"{at.topic}-{at.partition}", "bold").append(
            f"  last stable offset {ends.last_stable:,}, high watermark {ends.high_watermark:,}: "
            f"{plural(ends.held_back, 'offset')} held back",
            "not bold",
        )
        return [head]
    total = sum(each.held_back for each in held.values())
    head = Text(f"{len(held)} partitions", "bold").append(f"  {plural(total, 'offset')} held back", "not bold")
    return [head, _captioned("partitions", compact(held))]


def _behind(later: Sequence[OpenTransaction]) -> list[Text]:
    """Transactions that hold the partitions back when the first one has ended."""
    groups = by_transaction(later)
    lines = []
    for holders in groups[:BEHIND_SHOWN]:
        each = holders[0]
        whose = "no transactional id" if each.transaction is None else each.transaction.transactional_id
        where = f"from offset {each.first_offset:,}" if len(holders) == 1 else f"in {len(holders)} of these partitions"
        lines.append(
            _captioned("behind it", f"producer {each.producer.producer_id} ({whose}) {where}: {each.verdict.value}")
        )
    if (more := len(groups) - BEHIND_SHOWN) > 0:
        lines.append(_captioned("", f"and {plural(more, 'transaction')} more"))
    return lines


def transaction_lines(holders: Sequence[OpenTransaction], now_ms: int) -> list[Text]:
    """PURE. One line each: the producer, the start, the expected end, the safe action, its command."""
    return [_captioned(caption, said) for caption, said in describe_transaction(holders, now_ms)]


def _captioned(caption: str, said: str) -> Text:
    """A command, which has no caption, stays on one line, so that it can be copied."""
    line = Text(f"  {caption:<{CAPTION_COLUMNS}}", "dim", no_wrap=said.startswith("semel "))
    return line.append(said, "not dim")
