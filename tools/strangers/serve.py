"""EDGE: Start a broker of Apache Kafka from Maven's registry on loopback, print its address, run until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from tools.strangers import maven
from tools.strangers.brokers import OneKafka
from tools.strangers.process import ServerError
from tools.strangers.runner import KAFKA_NEEDS, lacking, work_folder
from tools.strangers.suite import KAFKA_RELEASE


async def serve(release: str, settings: dict[str, str]) -> None:
    """Run the broker until SIGINT or SIGTERM. Raises ServerError, MavenError."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        kafka = OneKafka(Path(folder), settings, work_folder() / "kafka", release)
        try:
            await kafka.open()
            print(kafka.address, flush=True)
            await ended.wait()
        finally:
            await kafka.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.strangers.serve", description=__doc__.removeprefix("EDGE: "))
    parser.add_argument("release", nargs="?", default=KAFKA_RELEASE, help="Kafka's version (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    arguments = parser.parse_args()
    if missing := lacking(KAFKA_NEEDS):
        sys.exit(f"not on the path of this machine: {', '.join(missing)}")
    settings = dict(each.split("=", 1) for each in arguments.set)
    try:
        asyncio.run(serve(arguments.release, settings))
    except (ServerError, maven.MavenError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
