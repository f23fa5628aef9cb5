"""Write ten records, read them back as a member of a group, and end."""

import asyncio
import os

from semel import Consumer, Producer

SERVER = os.environ.get("SEMEL_BOOTSTRAP_SERVER", "localhost:9092")


async def main() -> None:
    async with Producer(bootstrap_servers=SERVER, linger_ms=5) as producer:  # idempotent by default
        futures = [await producer.send("flights", b"UA %d" % number, key=b"UA") for number in range(10)]
        stored = await asyncio.gather(*futures)
    print(f"stored in partition {stored[0].partition}, offsets {stored[0].offset} to {stored[-1].offset}")

    count = 0
    async with Consumer(
        "flights", bootstrap_servers=SERVER, group_id="count", auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            count += 1
            if record.value == b"UA 9":
                break
    print(f"read {count} records")


asyncio.run(main())
