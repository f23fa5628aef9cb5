"""A record that cannot be handled goes to a dead-letter topic. Output or dead letter, and the offset: one transaction.

So each input ends up in exactly one of the two topics. Headers tell why it failed and where it came from.
"""

import asyncio
import os

from semel import Consumer, Producer

SERVER = os.environ.get("SEMEL_BOOTSTRAP_SERVER", "localhost:9092")
INPUTS = [b"3", b"4", b"five", b"6"]


def handle(value: bytes | None) -> bytes:
    return b"%d" % (int(value or b"") ** 2)


async def main() -> None:
    async with Producer(bootstrap_servers=SERVER) as writer:
        for value in INPUTS:
            await writer.send_and_wait("numbers", value)
    async with (
        Producer(bootstrap_servers=SERVER, transactional_id="squares-1") as producer,  # first: see exactly_once.py
        Consumer(
            "numbers",
            bootstrap_servers=SERVER,
            group_id="squares",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        handled = 0
        while handled < len(INPUTS):
            for partition, records in (await consumer.getmany(timeout_ms=1_000)).items():
                async with producer.transaction():
                    for record in records:
                        try:
                            await producer.send("squares", handle(record.value))
                        except ValueError as error:
                            where = f"{record.topic}-{record.partition}@{record.offset}"
                            headers = [("error", repr(error).encode()), ("from", where.encode())]
                            await producer.send("numbers-dead", record.value, headers=headers)
                            print(f"dead letter: {where}: {error}")
                    offsets = {partition: records[-1].offset + 1}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                handled += len(records)
    print(f"{handled} records handled")


asyncio.run(main())
