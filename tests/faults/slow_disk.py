"""How long a bystander waits while a broker works on a slow disk: `python -m faults.slow_disk`, a table.

    python -m faults.slow_disk                      all rows, with syncs of 300 and of 30 ms
    python -m faults.slow_disk --ms 300 --only rolls

The broker is a process whose disk calls are held (`held_disk`). The bystander asks ApiVersions every 10 ms on a
connection of its own, while clients do what the row says. Exit status 1 if it waited longer than `BOUND_MS`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from broker.wire import Wire
from rich.console import Console
from rich.table import Table
from semel import Admin, Consumer, NewTopic, Producer, TopicPartition
from semel.admin import QuotaEntity, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from semel.errors import KafkaError
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from support.processes import BrokerProcess

from faults.held_disk import ALL, SYNCS, HeldDisk, why_not

BOUND_MS = 50.0
EVERY_S = 0.01
ROW_S = 120.0
AFTERWARDS_S = 0.3
SWEEP_S = 6.0
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.cleaner.backoff.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
CLIENT: Any = {"request_timeout_ms": 60_000}
LOST = (OSError, EOFError, TimeoutError)


class Result(msgspec.Struct, frozen=True):
    """The waits of the bystander in ms, the syncs on the broker's loop, and what failed."""

    row: str
    longest_ms: float
    median_ms: float
    took_s: float
    syncs: int
    syncs_on_loop: int
    error: str = ""


class Bystander:
    """Asks ApiVersions all the time. `waits_ms` of the present row."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.waits_ms: list[float] = []

    async def stand_by(self) -> None:
        wire = await Wire.connect(self._port)
        while True:
            began = time.perf_counter()
            try:
                wire.send(ApiVersionsRequest())
                await wire.receive()
            except LOST:
                await wire.close()
                wire = await Wire.connect(self._port)
            self.waits_ms.append((time.perf_counter() - began) * 1_000)
            await asyncio.sleep(EVERY_S)


class Work:
    """The rows: each method is one."""

    def __init__(self, address: str, admin: Admin, producer: Producer) -> None:
        self._address, self._admin, self._producer = address, admin, producer

    async def prepare(self) -> None:
        rolled = {"segment.bytes": "20000"}
        compacted = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
        await self._admin.create_topics(
            [
                NewTopic("many", 140),
                NewTopic("rolled", 1, topic_configs=rolled),
                NewTopic("compacted", 1, topic_configs=compacted),
                NewTopic("known", 20),
                NewTopic("deleted", 10),
            ]
        )
        for partition in range(10):
            await self._producer.send_and_wait("deleted", b"x", partition=partition)

    async def partitions_created(self) -> None:
        await self._admin.create_topics([NewTopic("more", 140)])

    async def first_records(self) -> None:
        await asyncio.gather(*[self._producer.send_and_wait("known", b"x", partition=each) for each in range(20)])

    async def produces(self) -> None:
        for number in range(40):
            await self._producer.send_and_wait("known", b"x", partition=number % 20)

    async def rolls(self) -> None:
        for _ in range(8):
            await self._producer.send_and_wait("rolled", bytes(15_000), partition=0)
        await asyncio.gather(*[self._producer.send_and_wait("many", b"x", partition=each) for each in range(60)])
        await asyncio.sleep(SWEEP_S)

    async def new_transactional_id(self) -> None:
        await self._transactions("new-id", 1)

    async def transactions(self) -> None:
        await self._transactions("new-id", 6)

    async def _transactions(self, name: str, count: int) -> None:
        async with Producer(bootstrap_servers=self._address, transactional_id=name, linger_ms=0, **CLIENT) as producer:
            for _ in range(count):
                async with producer.transaction():
                    await producer.send("known", b"y", partition=0)

    async def new_group(self) -> None:
        await self._group("classic")

    async def new_consumer_group(self) -> None:
        await self._group("consumer")

    async def _group(self, protocol: str) -> None:
        settings: Any = {"group_protocol": protocol, "auto_offset_reset": "earliest", **CLIENT}
        group = f"{protocol}-group"
        async with Consumer("known", bootstrap_servers=self._address, group_id=group, **settings) as consumer:
            await consumer.getone()
            await consumer.commit()

    async def records_deleted(self) -> None:
        await self._admin.delete_records({TopicPartition("rolled", 0): 6})

    async def topic_deleted(self) -> None:
        await self._admin.delete_topics(["deleted"])

    async def compaction(self) -> None:
        for number in range(20):
            await self._producer.send_and_wait("compacted", bytes(1_000), key=b"%d" % (number % 3), partition=0)
        await asyncio.sleep(SWEEP_S)

    async def quotas(self) -> None:
        for number in range(5):
            entity = QuotaEntity(client_id=f"client-{number}")
            await self._admin.alter_client_quotas({entity: {"producer_byte_rate": 1e9}})

    async def credentials(self) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        for number in range(5):
            user = UserScramCredentialUpsertion(f"user-{number}", info, "a password")
            await self._admin.alter_user_scram_credentials([user])


ROWS: Mapping[str, tuple[str, Callable[[Work], Awaitable[None]]]] = {
    "partitions": ("140 partitions created", Work.partitions_created),
    "first": ("first records of 20 partitions", Work.first_records),
    "produces": ("40 produces to known partitions", Work.produces),
    "rolls": ("8 rolls, first records of 60, and a sweep", Work.rolls),
    "id": ("a new transactional id, one transaction", Work.new_transactional_id),
    "transactions": ("6 transactions of a known id", Work.transactions),
    "group": ("a new group joins and commits", Work.new_group),
    "consumer-group": ("a new group of KIP-848 joins and commits", Work.new_consumer_group),
    "compaction": ("compaction of 5 segments", Work.compaction),
    "records": ("DeleteRecords", Work.records_deleted),
    "topic": ("a topic of 10 partitions deleted", Work.topic_deleted),
    "quotas": ("5 quotas written", Work.quotas),
    "credentials": ("5 users created", Work.credentials),
}


async def measure(directory: Path, ms: int, only: list[str], calls: int, say: Callable[[Result], None]) -> list[Result]:
    """The results of the rows on one broker, whose disk is slow once the topics are there."""
    held = HeldDisk(directory / "held")
    broker = BrokerProcess(directory / "data", **SETTINGS)
    broker.prefix = held.prefix
    broker.start()
    bystander = Bystander(broker.port)
    results: list[Result] = []
    standing = asyncio.create_task(bystander.stand_by())
    try:
        async with (
            Admin(bootstrap_servers=broker.address, **CLIENT) as admin,
            Producer(bootstrap_servers=broker.address, linger_ms=0, delivery_timeout_ms=110_000, **CLIENT) as producer,
        ):
            work = Work(broker.address, admin, producer)
            await work.prepare()
            held.set(calls=calls, ms=ms)
            for name, (title, act) in ROWS.items():
                if not only or name in only:
                    results.append(await _row(title, act(work), bystander, held))
                    say(results[-1])
            held.set()
    finally:
        standing.cancel()
        await asyncio.wait([standing])
        held.set()
        broker.stop()
        held.close()
    return results


async def _row(title: str, act: Awaitable[None], bystander: Bystander, held: HeldDisk) -> Result:
    bystander.waits_ms.clear()
    before, began, error = held.counts, time.monotonic(), ""
    try:
        async with asyncio.timeout(ROW_S):
            await act
    except (KafkaError, TimeoutError) as caught:
        error = f"{type(caught).__name__}: {caught}"
    await asyncio.sleep(AFTERWARDS_S)
    waits_ms, after = bystander.waits_ms or [ROW_S * 1_000], held.counts
    return Result(
        title,
        max(waits_ms),
        statistics.median(waits_ms),
        time.monotonic() - began,
        after.made - before.made,
        after.made_main - before.made_main,
        error,
    )


def table(by_ms: Mapping[int, list[Result]]) -> Table:
    found = Table(title="the bystander's waits in ms, and calls that waited for the disk on the loop's thread, of all")
    found.add_column("work")
    for ms in by_ms:
        for column in (f"longest at {ms} ms", "median", "on the loop"):
            found.add_column(column, justify="right")
    for rows in zip(*by_ms.values(), strict=True):
        cells = [rows[0].row]
        for row in rows:
            color = "red" if row.longest_ms > BOUND_MS else "green"
            cells += [
                f"[{color}]{row.longest_ms:.0f}[/]",
                f"{row.median_ms:.1f}",
                f"{row.syncs_on_loop} of {row.syncs}",
            ]
        found.add_row(*cells)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults.slow_disk", description=__doc__)
    parser.add_argument("--ms", type=int, nargs="+", default=[300, 30], help="how much longer a sync takes")
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=[], help="these rows only")
    parser.add_argument("--all-calls", action="store_true", help="hold also truncations, removals and renames")
    given = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if (reason := why_not()) is not None:
        console.print(f"skipped: {reason}")
        return 0

    def say(result: Result) -> None:
        console.print(f"{result.row}: {result.longest_ms:.0f} ms, {result.took_s:.1f} s {result.error}", markup=False)

    by_ms = {}
    for ms in given.ms:
        with tempfile.TemporaryDirectory(prefix="semel-slow-disk-") as directory:
            calls = ALL if given.all_calls else SYNCS
            by_ms[ms] = asyncio.run(measure(Path(directory), ms, given.only, calls, say))
    console.print(table(by_ms))
    waits = [result.longest_ms for results in by_ms.values() for result in results]
    return int(max(waits) > BOUND_MS)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
