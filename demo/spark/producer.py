"""The process that the flights come from: some at a time, the next ones when those are stored. Idempotent.

They come in shares: one at once, and one for each line on standard input. Whoever is killed meanwhile is killed amid
the work, and so is the next one.
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

LUMPS = 600


async def send(bootstrap: str, rows: int | None, stream_s: float, shares: int) -> None:
    flights = arrivals(rows)
    lump = max(8, len(flights) // LUMPS)
    pause_s = stream_s * lump / len(flights)
    allowed = 1
    async with Producer(bootstrap_servers=bootstrap, linger_ms=2, compression_type="lz4") as producer:
        due = time.monotonic()
        for first in range(0, len(flights), lump):
            while first >= allowed * len(flights) / shares:
                if not await asyncio.to_thread(sys.stdin.readline):
                    return  # nobody wants more
                allowed += 1
                due = time.monotonic()
            futures = [
                await producer.send(SOURCE, each.value, partition=each.partition)
                for each in flights[first : first + lump]
            ]
            await producer.flush()
            for future in futures:
                future.result()  # a lost record ends the demo here
            print(json.dumps({"acknowledged": first + len(futures)}), flush=True)
            due += pause_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))  # flights arrive over time


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.spark.producer", description="The producer of the demo.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="one of the brokers, or several")
    parser.add_argument("--rows", type=int, help="only the first ROWS flights (default: all 336,776)")
    parser.add_argument("--stream-s", type=float, default=60.0, help="seconds in which the year passes (default: 60)")
    parser.add_argument("--shares", type=int, default=1, help="wait for a line of input before each but the first")
    parser.add_argument("--log", type=Path, help="write what the client says here (default: standard error)")
    arguments = parser.parse_args()
    logging.basicConfig(filename=arguments.log, format="%(asctime)s %(process)d %(message)s")
    asyncio.run(send(arguments.bootstrap, arguments.rows, arguments.stream_s, arguments.shares))


if __name__ == "__main__":
    main()
