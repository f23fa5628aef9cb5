"""Sends the flights with an idempotent producer: batch by batch, the next one when the last is stored.

The flights are sent in shares: the first at once, each other one after a line on standard input. So each kill happens
while flights arrive.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from pathlib import Path

from semel import Producer

from demo.flights import SOURCE
from demo.spark.arrivals import arrivals

BATCHES = 600


async def send(bootstrap: str, rows: int | None, stream_s: float, shares: int) -> None:
    flights = arrivals(rows)
    batch_rows = max(8, len(flights) // BATCHES)
    pause_s = stream_s * batch_rows / len(flights)
    allowed = 1
    async with Producer(bootstrap_servers=bootstrap, linger_ms=2, compression_type="lz4") as producer:
        due = time.monotonic()
        for first in range(0, len(flights), batch_rows):
            while first >= allowed * len(flights) / shares:
                if not await asyncio.to_thread(sys.stdin.readline):
                    return  # the demo has closed the input
                allowed += 1
                due = time.monotonic()
            futures = [
                await producer.send(SOURCE, each.value, partition=each.partition)
                for each in flights[first : first + batch_rows]
            ]
            await producer.flush()
            for future in futures:
                future.result()  # a lost record ends the demo here
            print(json.dumps({"acknowledged": first + len(futures)}), flush=True)
            due += pause_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))  # flights arrive over time


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.spark.producer", description="Send the flights of the demo.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="one or several brokers")
    parser.add_argument("--rows", type=int, help="only the first ROWS flights (default: all 336,776)")
    parser.add_argument("--stream-s", type=float, default=60.0, help="duration of the stream in seconds (default: 60)")
    parser.add_argument(
        "--shares", type=int, default=1, help="number of shares; each but the first waits for a line of input"
    )
    parser.add_argument("--log", type=Path, help="log file of the client (default: standard error)")
    arguments = parser.parse_args()
    logging.basicConfig(filename=arguments.log, format="%(asctime)s %(process)d %(message)s")
    asyncio.run(send(arguments.bootstrap, arguments.rows, arguments.stream_s, arguments.shares))


if __name__ == "__main__":
    main()
