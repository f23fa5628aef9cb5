"""Runs one case and judges it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import msgspec
from semel import Admin, NewTopic

from sim.broker import PORT, SimBroker
from sim.checkers import check_all
from sim.client import SimEdge
from sim.ending import FinalReading
from sim.events import HistoryTopic
from sim.history import History
from sim.host import Host
from sim.logs import captured
from sim.old_clients.cases import RAW, LateRequestCase
from sim.old_clients.ours import OurProducer
from sim.old_clients.raw import GROUP, INPUT, OUTPUT, TIMEOUT_MS, RawProducer
from sim.old_clients.slots import TimeSlots
from sim.run import Listener
from sim.workloads.base import ClientContext
from sim.world import NS, SimWorld

MS = 1_000_000
SETTINGS: dict[str, Any] = {
    "auto.create.topics.enable": False,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


class LateRequestResult(msgspec.Struct, kw_only=True):
    """The result of a case. `anomalies`: texts by checker. `refused`: errors that the client got instead."""

    anomalies: dict[str, str]
    failures: list[str]
    refused: list[str]


def play(case: LateRequestCase, listener: Listener | None = None) -> LateRequestResult:
    """Run a case; always the same for the same case. Raises Stuck."""
    gc.disable()
    try:
        with captured():
            return _play(case, listener)
    finally:
        gc.enable()


def _play(case: LateRequestCase, listener: Listener | None) -> LateRequestResult:
    world = SimWorld("old clients", listener)
    network = world.network
    network.watching = True
    network.weather.latency_ms, network.weather.spike_rate, network.weather.split_rate = (0.1, 0.5), 0.0, 0.0
    history = History(lambda: world.now_ns / MS)
    history.declare(HistoryTopic(OUTPUT, 2), HistoryTopic(INPUT, 2))
    settings = {**SETTINGS, "transaction.version": 1 if case.client == "semel, version 1" else 2}
    broker = SimBroker(world.host("broker"), settings)
    broker.host.disk.weather.sync_ms = (0.05, 0.2)
    broker.boot()
    assert world.run(10 * NS, lambda: broker.node is not None)
    refused: list[str] = []

    async def prepare(host: Host) -> None:
        async with Admin(bootstrap_servers=broker.address, edge=SimEdge(host)) as admin:
            await admin.create_topics([NewTopic(OUTPUT, 2), NewTopic(INPUT, 2)])

    async def work(host: Host) -> None:
        producer: RawProducer | OurProducer
        slots = TimeSlots(host)
        if case.client in RAW:
            producer = RawProducer(case, ("broker", PORT), slots, history.recorder("old"))
        else:
            context = ClientContext(edge=SimEdge(host), bootstrap_servers=broker.address, history=history)
            producer = OurProducer(case, context, slots)
        await producer.run()
        assert slots.something_was_late
        refused.extend(producer.refused)
        await asyncio.sleep(2 * TIMEOUT_MS / 1000)  # open transactions are aborted by then

    alone(world, "setup", prepare)
    alone(world, "client", work)
    network.heal()
    reading = FinalReading(broker.address, history, [GROUP], broker.nodes)
    alone(world, "reader", reading.main)
    world.close()
    found = check_all(history, reading.final)
    return LateRequestResult(
        anomalies={anomaly.checker: anomaly.text for anomaly in found},
        failures=[str(failure) for failure in world.failures],
        refused=refused,
    )


def alone(world: SimWorld, name: str, main: Callable[[Host], Any]) -> None:
    """Run one process to its end."""
    host = world.host(name)
    host.boot(main)
    if not world.run(world.now_ns + 120 * NS, lambda: not host.is_running):
        world.fail(name, "has not finished")
