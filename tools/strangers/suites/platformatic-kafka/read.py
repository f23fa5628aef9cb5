"""EDGE: prints all committed records of a topic as JSON lines [key, value]; ends when no more arrive. It runs semel's
client.

@platformatic/kafka 2.12 cannot be the reader: of several aborted transactions of one producer in one answer to Fetch,
it hides the last one only.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from semel import Consumer
from semel.structs import TopicPartition

from tools.strangers import script

QUIET_S = 15


async def read(topic: str) -> None:
    async with Consumer(
        bootstrap_servers=script.bootstrap(), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in await consumer.fetch_partitions(topic)])
        last = time.monotonic()
        while time.monotonic() - last < QUIET_S:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                last = time.monotonic()
                for record in records:
                    assert record.key is not None
                    assert record.value is not None
                    print(json.dumps([record.key.decode(), json.loads(record.value)]))


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1]))
