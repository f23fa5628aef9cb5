"""Consume, transform, produce: outputs and input offsets are committed in one transaction.

Kill this program at any moment and start it again: each order gets one invoice. Start it with another NAME beside it,
and both share the partitions. A member that lost its partitions cannot commit any more (KIP-447).

    python examples/exactly_once.py NAME [LAST]     # ends behind the order LAST
"""

import asyncio
import os
import sys

from semel import Consumer, Producer
from semel.errors import AbortableError, CommitFailedError

SERVER = os.environ.get("SEMEL_BOOTSTRAP_SERVER", "localhost:9092")


async def work(name: str, last: bytes | None) -> None:
    # The producer starts first: its start aborts what a killed predecessor left open, and readers go on at once. The
    # start of the consumer may wait until the session of the killed member ends.
    async with (
        Producer(bootstrap_servers=SERVER, transactional_id=f"billing-{name}") as producer,
        Consumer(
            "orders",
            bootstrap_servers=SERVER,
            group_id="billing",
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        while True:
            batch = await consumer.getmany(timeout_ms=1_000, max_records=100)
            if not batch:
                continue
            try:
                async with producer.transaction():
                    for records in batch.values():
                        for record in records:
                            await producer.send("invoices", b"invoice of " + (record.value or b""), key=record.key)
                    offsets = {partition: records[-1].offset + 1 for partition, records in batch.items()}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            except (CommitFailedError, AbortableError) as error:
                print(f"aborted, read again: {error}")
                await consumer.seek_to_committed(*consumer.assignment())
                continue
            done = [record.value for records in batch.values() for record in records]
            print(f"{len(done)} invoices")
            if last in done:
                return


async def main() -> None:
    name, *rest = sys.argv[1:] or ["one"]
    await work(name, rest[0].encode() if rest else None)


asyncio.run(main())
