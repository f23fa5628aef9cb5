"""Draw the transactions of a partition: three workers, one aborts, one leaves its transaction open, one is fenced.

python examples/timeline.py && semel txn timeline timeline-demo --svg timeline.svg
"""

import asyncio
import os

from semel import Producer
from semel.errors import ProducerFenced

SERVER = os.environ.get("SEMEL_BOOTSTRAP_SERVER", "localhost:9092")
TOPIC = "timeline-demo"


async def send(producer: Producer, count: int) -> None:
    for number in range(count):
        await producer.send_and_wait(TOPIC, b"%d" % number, partition=0)


async def main() -> None:
    workers = [Producer(bootstrap_servers=SERVER, transactional_id=f"worker-{number}") for number in (1, 2, 3)]
    one, two, three = workers
    for worker in workers:
        await worker.start()
    await one.begin_transaction()
    await two.begin_transaction()
    await send(one, 5)
    await send(two, 4)
    await send(one, 3)
    await one.commit_transaction()
    await send(two, 4)
    await two.abort_transaction()
    await three.begin_transaction()
    await send(three, 4)
    async with Producer(bootstrap_servers=SERVER, transactional_id="worker-3") as successor:
        async with successor.transaction():
            await send(successor, 6)
    try:
        await three.commit_transaction()
    except ProducerFenced:
        print("worker-3 was fenced by its successor")
    await two.begin_transaction()
    await send(two, 3)
    async with one.transaction():
        await send(one, 6)
    print("worker-2 leaves its transaction open: read_committed consumers wait behind it")
    for worker in (one, three):
        await worker.stop()
    os._exit(0)  # as if it were killed: worker-2 does not abort


asyncio.run(main())
