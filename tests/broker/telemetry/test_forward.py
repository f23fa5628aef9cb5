"""Pushed metrics are forwarded to a collector unchanged, one request for each push, without an effect on clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from broker.harness import EventLog, Harness
from broker.metrics.scraping import Scraper
from broker.telemetry.test_push import get, points, push, read_json, subscribe
from semel_broker.config.settings import ConfigError
from semel_broker.telemetry.forward import QUEUE_BYTES_MAX, Collector, Forwarder
from semel_protocol.compression import GZIP, compress

ENDPOINT = "telemetry.otlp.endpoint"


class FakeCollector:
    """Takes requests; answers with `status`."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[bytes, bytes]] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FakeCollector:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(
            next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")).split()[1]
        )
        self.requests.append((head, await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % self.status)
        await writer.drain()
        writer.close()


@pytest.fixture
async def collector() -> AsyncIterator[FakeCollector]:
    async with FakeCollector() as made:
        yield made


async def settled(condition: Callable[[], bool], wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await wait(0.01)


async def test_a_push_is_forwarded_decompressed(collector: FakeCollector, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{collector.port}/v1/metrics"
    harness = Harness(tmp_path / "data", telemetry_otlp_endpoint=url)
    harness.read_otlp = read_json
    await harness.start()
    wire = await harness.wire()
    await subscribe(wire)
    assert await push(wire, await get(wire), compress(GZIP, points(5)), GZIP) == 0
    await settled(lambda: bool(collector.requests))
    ((head, body),) = collector.requests
    assert head.startswith(b"POST /v1/metrics HTTP/1.1\r\n")
    assert b"application/x-protobuf" in head
    assert body == points(5)
    await settled(lambda: harness.node.broker.telemetry.forwarder.sent == 1)  # type: ignore[union-attr]
    scraper = await Scraper(harness).scrape()
    assert scraper.value("telemetry_forwarded_total") == 1
    assert scraper.value("telemetry_not_forwarded_total") == 0
    await harness.stop()


async def test_a_broker_with_a_collector_alone_takes_pushes_too(collector: FakeCollector, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{collector.port}/v1/metrics"
    harness = Harness(tmp_path / "data", telemetry_otlp_endpoint=url, metrics_listener="")
    await harness.start()
    wire = await harness.wire()
    await subscribe(wire)
    assert await push(wire, await get(wire), b"not looked at") == 0
    await settled(lambda: bool(collector.requests))
    await harness.stop()


async def test_a_failure_is_logged_once_and_the_end_of_it_too() -> None:
    log = EventLog()
    collector = FakeCollector()
    async with collector:
        pass
    forwarder = Forwarder(Collector("127.0.0.1", collector.port, "/", is_tls=False), log)
    for _ in range(3):
        forwarder.forward(b"lost")
    await settled(lambda: forwarder.dropped == 3)
    assert len(log.of("client_metrics_not_forwarded")) == 1
    async with collector:
        collector.status = 503
        forwarder.forward(b"refused")
        await settled(lambda: forwarder.dropped == 4)
        collector.status = 200
        forwarder.forward(b"a")
        forwarder.forward(b"b")
        await settled(lambda: forwarder.sent == 2)
    assert len(log.of("client_metrics_not_forwarded")) == 1
    assert len(log.of("client_metrics_forwarded_again")) == 1
    await forwarder.close()


async def test_the_queue_is_bounded() -> None:
    forwarder = Forwarder(Collector("127.0.0.1", 1, "/", is_tls=False), EventLog())
    forwarder.forward(bytes(QUEUE_BYTES_MAX - 1))
    forwarder.forward(bytes(2))
    assert forwarder.dropped == 1
    await forwarder.close()


@pytest.mark.parametrize("url", ["collector:4318", "ftp://x", "http://", "http://a:b@x/", "http://x:y/"])
def test_endpoints_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=ENDPOINT):
        Collector.parse(url)


def test_the_parts_of_an_endpoint() -> None:
    assert Collector.parse("https://otel.example/v1/metrics?a=1") == Collector(
        "otel.example", 443, "/v1/metrics?a=1", is_tls=True
    )
