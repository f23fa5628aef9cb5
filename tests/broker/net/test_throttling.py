"""The share of the event loop's time: which work counts, and which connections are muted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.wire import EventLog, Wire
from semel_broker.config.loading import load
from semel_broker.context import Broker, RequestContext
from semel_broker.counters.counters import Counters
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.server import Server
from semel_broker.scheduling.turns import Turns
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from semel_protocol.quotas import QuotaEntity

HEARTBEAT = 12


class SlowHandlerServer:
    """A server with one handler: it works for `steps` seconds each, and waits for a second between two of them.

    Only steps advance the clock of the work. Only waits advance the virtual clock of the loop.
    """

    def __init__(self) -> None:
        self.quotas = ClientQuotas()
        self.steps = [0.0]
        self.fails = False
        self._worked = 0.0
        self.log = EventLog()

    async def start(self) -> SlowHandlerServer:
        config = load(overrides=[])
        loop = asyncio.get_running_loop()
        turns = Turns(loop, lambda: 0.0)
        world = SimpleNamespace(monotonic=lambda: self._worked)
        broker = cast(
            "Broker",
            SimpleNamespace(log=self.log, config=config, turns=turns, world=world, counters=Counters(), telemetry=None),
        )
        dispatcher = Dispatcher(broker, {HEARTBEAT: self._work}, quotas=self.quotas)
        self.server = Server(dispatcher, config, self.log, loop, turns, quotas=self.quotas)
        self.port = await self.server.listen("127.0.0.1", 0)
        return self

    def limit(self, percent: float) -> None:
        self.quotas.table.change({QuotaEntity(user="ANONYMOUS"): {"request_percentage": percent}})
        self.quotas.changed()

    async def _work(self, request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
        for number, seconds in enumerate(self.steps):
            if number:
                await asyncio.sleep(1)
            self._worked += seconds
        if self.fails:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "no such member")
        return HeartbeatResponse()


@pytest.fixture
async def worker() -> AsyncIterator[SlowHandlerServer]:
    made = await SlowHandlerServer().start()
    yield made
    await made.server.stop(0.1)


async def beat(wire: Wire) -> Any:
    return await wire.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))


async def test_a_request_that_works_for_long_is_throttled(worker: SlowHandlerServer) -> None:
    worker.limit(10)
    worker.steps = [1.05]
    wire = await Wire.connect(worker.port)
    assert (await beat(wire)).throttle_time_ms == pytest.approx(500, abs=1)
    began = asyncio.get_running_loop().time()
    worker.steps = [0.0]
    await beat(wire)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.5, abs=0.01)


async def test_all_steps_of_a_request_count_and_its_waits_do_not(worker: SlowHandlerServer) -> None:
    worker.limit(10)
    worker.steps = [0.35, 0.35, 0.35]
    wire = await Wire.connect(worker.port)
    assert (await beat(wire)).throttle_time_ms == pytest.approx(500, abs=1)
    assert worker.quotas.throttled["request_percentage"].count == 1


async def test_a_refused_request_counts(worker: SlowHandlerServer) -> None:
    worker.limit(10)
    worker.steps, worker.fails = [0.5, 0.55], True
    wire = await Wire.connect(worker.port)
    answer = await beat(wire)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.throttle_time_ms == pytest.approx(500, abs=1)


async def test_a_client_that_only_waits_is_not_throttled(worker: SlowHandlerServer) -> None:
    worker.limit(1)
    worker.steps = [0.0] * 5
    wire = await Wire.connect(worker.port)
    assert (await beat(wire)).throttle_time_ms == 0
    assert not worker.quotas.throttled


async def test_a_quota_that_begins_during_a_request_does_not_count_its_waits(worker: SlowHandlerServer) -> None:
    worker.steps = [0.0, 5.0]
    wire = await Wire.connect(worker.port)
    answer = asyncio.ensure_future(beat(wire))
    await asyncio.sleep(0.5)
    worker.limit(1)
    assert (await answer).throttle_time_ms == 0
