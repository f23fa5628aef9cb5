"""One process of the consumer group: it counts flights and sums delays per carrier.

The reading side is exactly once. A process stores the totals of a partition together with their offset, in one file
that it replaces atomically. The next owner of the partition continues from there, so a record that is delivered twice
is counted once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from semel import Consumer, ConsumerRebalanceListener, TopicPartition

from demo.client_settings import of_semel
from demo.counting.totals import Total, parse
from demo.flights import SOURCE

SAVE_EVERY = 20_000


class Tally:
    """The totals of one partition up to, not including, `offset`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.totals: dict[str, Total] = {}
        if path.exists():
            stored = json.loads(path.read_text())
            self.offset = stored["offset"]
            self.totals = {carrier: Total(*pair) for carrier, pair in stored["totals"].items()}
        self.saved = self.offset

    def add(self, offset: int, carrier: str, dep_delay: int | None) -> None:
        assert offset >= self.offset, f"offset {offset} came after {self.offset - 1}"
        self.totals[carrier] = self.totals.get(carrier, Total()).plus(dep_delay)
        self.offset = offset + 1

    def save(self) -> None:
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"offset": self.offset, "totals": self.totals}))
        fresh.replace(self.path)
        self.saved = self.offset


class Tallies(ConsumerRebalanceListener):
    """The tallies of the partitions that this process owns."""

    def __init__(self, consumer: Consumer, directory: Path) -> None:
        self.consumer = consumer
        self.directory = directory
        self.owned: dict[TopicPartition, Tally] = {}

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        for tp in sorted(revoked):
            if tally := self.owned.pop(tp, None):
                tally.save()

    async def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        for tp in sorted(lost):  # another process may own them now and counts the unsaved records again
            self.owned.pop(tp, None)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        for tp in sorted(assigned):
            tally = self.owned[tp] = Tally(self.directory / f"{tp.topic}-{tp.partition}.json")
            self.consumer.seek(tp, tally.offset)


async def count(bootstrap: str, group: str, directory: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    consumer = Consumer(
        **of_semel(bootstrap),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=("cooperative-sticky",),
    )
    tallies = Tallies(consumer, directory)
    consumer.subscribe([SOURCE], listener=tallies)
    async with consumer:
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=200, max_records=10_000)
            for tp, records in batches.items():
                tally = tallies.owned[tp]
                for record in records:
                    _, dep_delay = parse(record.value)
                    assert record.key is not None, "each flight has a key"
                    tally.add(record.offset, record.key.decode(), dep_delay)
                if tally.offset - tally.saved >= SAVE_EVERY:
                    tally.save()
            reached = {str(tp.partition): tally.offset for tp, tally in tallies.owned.items()}
            print(json.dumps(reached), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One member of the consumer group that counts flights.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(filename=arguments.directory / "counter.log", format="%(asctime)s %(process)d %(message)s")
    asyncio.run(count(arguments.bootstrap, arguments.group, arguments.directory))
    sys.exit(0)


if __name__ == "__main__":
    main()
