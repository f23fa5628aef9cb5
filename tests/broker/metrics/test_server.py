"""Metrics and health over HTTP, the process' own figures, and the watchdog, on a real event loop."""

from __future__ import annotations

import asyncio
import gc
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.cluster.conftest import etcd_process
from broker.conftest import StartBroker
from broker.harness import EventLog, Harness, batch, produce_request
from broker.metrics.scraping import Scraper, series_of
from semel_broker.config.listeners import Endpoint, metrics_address
from semel_broker.config.loading import ConfigError, load
from semel_broker.counters.requests import CurrentRequest
from semel_broker.groups.group import Group
from semel_broker.groups.offsets import CommittedOffset, OffsetRecord
from semel_broker.metrics.server import MetricsServer
from semel_broker.metrics.watchdog import Watchdog
from semel_broker.net.server import ListenError
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.api import APIS
from support.etcd import EtcdProcess

__all__ = ["etcd_process"]

pytestmark = pytest.mark.real_time

LOOPBACK = Endpoint("127.0.0.1", 0)


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Served:
    """A broker whose metrics are served."""

    def __init__(self, broker: Harness) -> None:
        self.broker = broker
        self.log = EventLog()
        self.server = MetricsServer(LOOPBACK, self.log)

    async def start(self) -> Served:
        await self.server.open()
        assert self.broker.node is not None
        self.server.serve(self.broker.node)
        return self

    async def get(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(get, self.server.port, path)


@pytest.fixture
async def served(start_broker: StartBroker) -> AsyncIterator[Served]:
    made = await Served(await start_broker(durability="fsync")).start()
    yield made
    await made.server.close()


async def test_a_broker_that_starts_is_alive_and_not_ready() -> None:
    server = MetricsServer(LOOPBACK, EventLog())
    await server.open()
    assert (await asyncio.to_thread(get, server.port, "/health/live"))[0] == 200
    assert await asyncio.to_thread(get, server.port, "/health/ready") == (503, "not ready: the broker starts\n")
    assert (await asyncio.to_thread(get, server.port, "/metrics"))[0] == 503
    await server.close()


async def test_a_broker_that_serves_is_ready_until_it_stops(served: Served) -> None:
    assert await served.get("/health/ready") == (200, "ready\n")
    assert await served.get("/health/live") == (200, "alive\n")
    await served.broker.stop()
    assert await served.get("/health/ready") == (503, "not ready: the broker stops\n")


async def test_the_page_has_the_figures_of_process_and_disk(served: Served) -> None:
    wire = await served.broker.wire()
    await wire.produce("t", batch(b"x"))
    gc.collect()
    await asyncio.sleep(0.2)  # the timers of the watchdog run
    status, text = await served.get("/metrics?name=ignored")
    assert status == 200
    series = {name: value for (name, labels), value in series_of(text).items() if "le" not in dict(labels)}
    for name in (
        "build_info",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_files",
        "process_start_time_seconds",
        "event_loop_lag_seconds_count",
        "gc_collections_total",
        "gc_seconds_count",
    ):
        assert series[f"semel_{name}"] > 0, name
    status, text = await served.get("/metrics")
    assert series_of(text)["semel_metrics_scrape_seconds", ()] > 0


async def test_other_requests_get_an_answer_that_says_what_there_is(served: Served) -> None:
    assert await served.get("/") == (404, "there is /metrics, /health/live and /health/ready\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    writer.write(
        b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\nPOST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    )
    answers = [await reader.readuntil(b"\r\n\r\n"), await reader.readuntil(b"\r\n\r\n")]
    assert answers[0].startswith(b"HTTP/1.1 200 OK")
    assert answers[1].startswith(b"HTTP/1.1 405 ")
    writer.write(b"\x16\x03\x01 no HTTP\r\n\r\n")
    writer.close()
    assert await served.get("/health/live") == (200, "alive\n")


async def test_a_port_in_use_is_one_error(served: Served) -> None:
    with pytest.raises(ListenError) as caught:
        await MetricsServer(Endpoint("127.0.0.1", served.server.port), EventLog()).open()
    assert caught.value.address.port == served.server.port


@pytest.mark.thorough
async def test_a_thousand_topics_and_groups_take_at_most_a_fraction_of_a_second(served: Served) -> None:
    """Time of this thread on a processor, with a generous bound; `bench` measures the exact figure."""
    node = served.broker.node
    assert node is not None
    wire = await served.broker.wire()
    for number in range(1_000):
        await wire.create_topic(f"t{number}")
        await wire.produce(f"t{number}", batch(b"x"))
    await wire.call(produce_request("t0", batch(b"y")), 9)
    await node.broker.groups.shards.topic()
    shard = await node.broker.groups.shard("g")
    for number in range(1_000):
        group = Group(group_id=f"g{number}")
        group.offsets.apply(OffsetRecord(f"t{number}", 0, CommittedOffset(0)))
        shard.groups[group.group_id] = group
    scraper = await Scraper(served.broker).scrape()
    assert len(scraper.of("group_lag_records")) == 1_000
    longest, at = 0.0, time.thread_time()
    text = asyncio.create_task(scraper.exporter.text())
    while not text.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, at = max(longest, now - at), now
    assert longest < 0.1


async def test_the_watchdog_logs_which_request_held_the_loop(served: Served) -> None:
    work = CurrentRequest()
    log = EventLog()
    watchdog = Watchdog(asyncio.get_running_loop(), log, work)
    watchdog.start()
    await asyncio.sleep(0.1)  # the watchdog begins
    work.api, work.client_id, work.size = APIS[0], "shop", 1234
    work.request = produce_request("orders", batch(b"x"), partition=3)
    time.sleep(0.3)  # the loop is held
    work.api, work.request = None, None
    await asyncio.sleep(0.2)  # the timers of the watchdog run
    watchdog.stop()
    (line,) = log.of("event_loop_stalled")
    assert line["api"] == "Produce"
    assert (line["topic"], line["partition"], line["bytes"], line["client_id"]) == ("orders", 3, 1234, "shop")
    assert 150 <= int(str(line["stalled_ms"])) < 5_000
    assert watchdog.stalls["Produce"].count == 1, "as event_loop_stalls_total and event_loop_longest_stall_seconds"


async def test_a_handler_that_blocks_is_named_with_its_line(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = await served.broker.wire()
    await wire.create_topic("slow")
    node = served.broker.node
    assert node is not None
    partition = node.broker.topics.partition("slow", 0)
    append = partition.append

    def blocking(*arguments: object, **fields: object) -> object:
        time.sleep(0.3)  # the loop is held
        return append(*arguments, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(partition, "append", blocking)
    await wire.produce("slow", batch(b"x"))
    await asyncio.sleep(0.2)  # the timers of the watchdog run
    lines = served.log.of("event_loop_stalled")
    assert [(line["api"], line["topic"]) for line in lines] == [("Produce", "slow")]
    assert "k00_appends.py" in str(lines[0]["where"])
    _, text = await served.get("/metrics")
    assert series_of(text)["semel_event_loop_stalls_total", (("api", "Produce"),)] == 1


async def test_without_its_session_a_broker_is_not_ready(start_broker: StartBroker, etcd_process: EtcdProcess) -> None:
    broker = await start_broker(
        etcd_endpoints=etcd_process.url, cluster_name=f"m{time.time_ns()}", broker_session_timeout_ms="1000"
    )
    served = await Served(broker).start()
    scraper = await Scraper(broker).scrape()
    margin = scraper.value("session_margin_seconds")
    assert margin is not None
    assert 0 < margin <= 2
    assert scraper.of("store_request_seconds_count")
    assert (await served.get("/health/ready"))[0] == 200
    etcd_process.pause()
    try:
        async with asyncio.timeout(20):
            while (await served.get("/health/ready"))[0] == 200:
                await asyncio.sleep(0.05)
        status, text = await served.get("/health/ready")
        await scraper.scrape()
    finally:
        etcd_process.resume()
    assert status == 503
    assert "session" in text
    assert scraper.value("session_margin_seconds") == 0
    assert scraper.value("ready") == 0
    async with asyncio.timeout(20):
        while (await served.get("/health/ready"))[0] != 200:
            await asyncio.sleep(0.05)
    await served.server.close()


def test_a_broker_of_the_fixture_serves_metrics_if_it_is_asked_to() -> None:
    with EphemeralBroker({"metrics.listener": "127.0.0.1:0"}) as broker:
        assert get(broker.metrics_port, "/health/ready") == (200, "ready\n")
    with EphemeralBroker() as broker, pytest.raises(AssertionError, match="no metrics"):
        _ = broker.metrics_port


@pytest.mark.parametrize("text", ["9404", "127.0.0.1:99999", ":9404", "http://127.0.0.1:9404"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listener"):
        load(overrides=[f"metrics.listener={text}"])


def test_addresses() -> None:
    assert metrics_address(load()) == Endpoint("127.0.0.1", 9404)
    assert metrics_address(load(overrides=["metrics.listener="])) is None
    assert metrics_address(load(overrides=["metrics.listener=[::1]:80"])) == Endpoint("::1", 80)


async def test_failed_handshakes_are_counted_by_reason(tmp_path: Path) -> None:
    with EphemeralBroker({"metrics.listener": "127.0.0.1:0"}, security="tls") as broker:
        _, writer = await asyncio.open_connection(broker.host, broker.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await writer.drain()
        async with asyncio.timeout(10):
            while True:
                _, text = await asyncio.to_thread(get, broker.metrics_port, "/metrics")
                found = [value for (name, _), value in series_of(text).items() if name == FAILURES]
                if found == [1]:
                    break
        writer.close()


FAILURES = "semel_tls_handshake_failures_total"
