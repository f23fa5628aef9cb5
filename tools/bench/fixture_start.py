"""Measures how long a test suite waits for its broker: the fixture, and Apache Kafka as a process, as in an image.

Apache Kafka's jars come from Maven's registry, once. A container adds its own start, which is not measured here.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import statistics
import time
from pathlib import Path

from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.api import APIS
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest

from tools.bench.figure import Figure, at_most
from tools.strangers import maven
from tools.strangers.brokers import KAFKA_POM, OneKafka
from tools.strangers.runner import work_folder
from tools.strangers.suite import KAFKA_RELEASE

FIXTURES = 20


def fixture_start(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure from nothing to the first answered ApiVersions, and the end."""
    first = _fixture()
    before = time.process_time()
    others = [_fixture() for _ in range(FIXTURES)]
    fixture_cpu_s = (time.process_time() - before) / FIXTURES
    maven.jars(KAFKA_POM, work_folder() / "kafka" / f"kafka-{KAFKA_RELEASE}", {"kafka.version": KAFKA_RELEASE})
    kafka = []
    for run in range(runs):
        folder = directory / str(run)
        folder.mkdir(parents=True)
        kafka.append(asyncio.run(_kafka(folder)))
    return [
        at_most("semel_broker, the first of a run (with imports)", first * 1000, "ms", digits=0),
        at_most("semel_broker, each later test", statistics.median(others) * 1000, "ms", digits=0),
        at_most("  CPU of it, with its end", fixture_cpu_s * 1000, "ms", digits=0),
        at_most(
            f"Apache Kafka {KAFKA_RELEASE}, as a process", statistics.median(taken for taken, _ in kafka), "s", digits=1
        ),
        at_most("  CPU of it, with its end", statistics.median(cpu for _, cpu in kafka), "s", digits=1),
    ]


def _fixture() -> float:
    started = time.perf_counter()
    broker = EphemeralBroker({}).start()
    _answers(broker.bootstrap_servers)
    taken = time.perf_counter() - started
    broker.kill()
    return taken


async def _kafka(folder: Path) -> tuple[float, float]:
    """Format its storage and start, as the script of its image does. Returns the seconds, and those of CPU."""
    before = _cpu_of_children_s()
    broker = OneKafka(folder, {}, work_folder() / "kafka", KAFKA_RELEASE)
    started = time.perf_counter()
    await broker.open()
    _answers(broker.address)
    taken = time.perf_counter() - started
    await broker.close()
    return taken, _cpu_of_children_s() - before


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _answers(address: str) -> None:
    host, _, port = address.rpartition(":")
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(b"".join(encode_request_frame(APIS[18], 3, 1, "bench", request)))
        assert connection.recv(4096), "the broker closed the connection"
