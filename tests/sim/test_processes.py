"""Broker and client as simulated processes: they start again after each kind of end. Unexpected errors fail the run."""

from __future__ import annotations

import asyncio
import logging

from semel import Consumer, Producer

from sim.broker import SimBroker, SimLogger
from sim.client import SimEdge
from sim.ending import FinalReading
from sim.history import History
from sim.host import Host
from sim.logs import captured
from sim.network import NetworkWeather
from sim.world import NS, SimWorld


def serving(seed: int = 1) -> tuple[SimWorld, SimBroker]:
    world = SimWorld(seed)
    broker = SimBroker(world.host("broker"))
    broker.boot()
    world.run(NS, lambda: broker.node is not None)
    assert broker.node is not None
    return world, broker


def test_acknowledged_records_are_read_after_each_kind_of_end() -> None:
    world, broker = serving()
    got: list[bytes | None] = []

    async def write(host: Host) -> None:
        async with Producer(bootstrap_servers=broker.address, edge=SimEdge(host)) as producer:
            for end in (broker.kill, broker.power_loss, broker.terminate):
                await producer.send_and_wait("t", end.__name__.encode())
                world.after(1, end)
                world.after(NS, broker.boot)
                await asyncio.sleep(2)

    async def read(host: Host) -> None:
        address, edge = broker.address, SimEdge(host)
        async with Consumer("t", bootstrap_servers=address, edge=edge, auto_offset_reset="earliest") as consumer:
            while len(got) < 3:
                got.append((await consumer.getone()).value)

    for name, main in (("writer", write), ("reader", read)):
        host = world.host(name)
        host.boot(main)
        assert world.run(world.now_ns + 120 * NS, lambda host=host: not host.is_running)  # type: ignore[misc]
    assert got == [b"kill", b"power_loss", b"terminate"]
    world.close()
    assert world.failures == []


def test_a_broker_whose_disk_fails_is_started_again_until_the_disk_works() -> None:
    world, broker = serving()
    host = broker.host
    host.disk.weather.failing_syncs = True
    broker.kill()
    broker.boot()
    world.run(world.now_ns + 5 * NS)
    assert host.incarnation > 5
    assert broker.node is None
    host.disk.weather.heal()
    assert world.run(world.now_ns + 5 * NS, lambda: broker.node is not None)
    world.close()
    assert world.failures == []


def test_an_unexpected_error_or_exception_of_the_broker_fails_the_run() -> None:
    world, broker = serving()
    log = SimLogger(broker.host)
    log.warning("disk_slow", ms=3)
    assert world.failures == []
    log.error("request_failed", exc_info=ValueError("odd"))
    try:
        raise KeyError("gone")
    except KeyError:
        log.exception("sweep_failed")
    log.error("group_not_stored", error="odd as well")
    assert [failure.host for failure in world.failures] == ["broker", "broker", "broker"]
    assert "odd" in str(world.failures[0])
    assert "gone" in str(world.failures[1])
    world.close()


def test_log_lines_of_the_client_are_in_the_transcript_and_an_error_fails_the_run() -> None:
    heard: list[tuple[str, str]] = []
    world = SimWorld(1, lambda now_ns, host, text: heard.append((host, text)))

    async def main(host: Host) -> None:
        logging.getLogger("semel._produce.sender").warning("late by %d", 3)
        logging.getLogger("semel._produce.sender").error("the Sender of %s failed", "me")

    world.host("client").boot(main)
    with captured():
        world.run(NS)
    assert ("client", "late by 3") in heard
    (failure,) = world.failures
    assert failure.host == "client"
    assert "the Sender of me failed" in failure.what
    world.close()


def test_the_final_reader_continues_while_it_passes_aborted_records() -> None:
    world, broker = serving()
    world.network.weather = NetworkWeather(latency_ms=(1.0, 1.0), spike_rate=0.0, windows=(1 << 20,))
    megabytes = 6

    async def write(host: Host) -> None:
        async with Producer(
            bootstrap_servers=broker.address, edge=SimEdge(host), transactional_id="id", max_batch_size=1 << 19
        ) as producer:
            await producer.begin_transaction()
            for _ in range(4 * megabytes):
                await producer.send("t", bytes(1 << 18))
            await producer.flush()
            await producer.abort_transaction()

    host = world.host("writer")
    host.boot(write)
    assert world.run(world.now_ns + 60 * NS, lambda: not host.is_running)
    world.network.weather = NetworkWeather(latency_ms=(20.0, 20.0), spike_rate=0.0, windows=(4096,))
    reading = FinalReading(broker.address, History(lambda: world.now_ns / 1_000_000), [], list)
    reader = world.host("reader")
    began_ns = world.now_ns
    reader.boot(reading.main)
    assert world.run(began_ns + 300 * NS, lambda: not reader.is_running)
    assert world.now_ns - began_ns > 60 * NS
    assert reading.final.undrained == []
    world.close()
    assert world.failures == []
