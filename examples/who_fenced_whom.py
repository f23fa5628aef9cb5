"""Two instances with one transactional id: the second one fences the first.

The error of the first one names the second one, the time and the reason.

Afterwards ask the broker: `semel txn why shop`.
"""

import asyncio
import os

from semel import Producer
from semel.errors import ProducerFenced

SERVER = os.environ.get("SEMEL_BOOTSTRAP_SERVER", "localhost:9092")


async def main() -> None:
    old = Producer(bootstrap_servers=SERVER, transactional_id="shop", client_id="shop-pod-1")
    await old.start()
    await old.begin_transaction()
    await old.send_and_wait("orders-fenced", b"one kettle")

    async with Producer(bootstrap_servers=SERVER, transactional_id="shop", client_id="shop-pod-2") as new:
        async with new.transaction():
            await new.send("orders-fenced", b"one teapot")
    try:
        await old.commit_transaction()
    except ProducerFenced as error:
        print(f"the first instance: {error}")
    finally:
        await old.stop()


asyncio.run(main())
