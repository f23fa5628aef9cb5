"""A server over handlers of the test, to test connections without a broker."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from broker.wire import EventLog, Wire
from semel_broker.config.limits import Limits
from semel_broker.config.loading import load
from semel_broker.context import Broker, Handler, RequestContext
from semel_broker.counters.counters import Counters
from semel_broker.handlers import k18_api_versions
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.server import Server
from semel_broker.scheduling.turns import Turns
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from support.virtual_time import loop_time

FETCH, PRODUCE, HEARTBEAT, API_VERSIONS, INIT_PRODUCER_ID = 1, 0, 12, 18, 22


class Bench:
    """A server over handlers of the test. It records the requests that they get."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.started: list[str] = []
        self.gates: dict[str, asyncio.Future[None]] = {}
        self.handlers: dict[int, Handler] = {
            PRODUCE: self._produce,
            HEARTBEAT: self._heartbeat,
            API_VERSIONS: k18_api_versions.handle,
        }
        self.server: Server | None = None
        self.port = 0

    async def start(self, limits: Limits | None = None, **settings: str) -> None:
        config = load(overrides=[f"{key.replace('_', '.')}={value}" for key, value in settings.items()])
        config.limits = limits or Limits()
        loop = asyncio.get_running_loop()
        turns = Turns(loop, loop_time)
        broker = cast(
            "Broker", SimpleNamespace(log=self.log, config=config, turns=turns, counters=Counters(), telemetry=None)
        )
        self.server = Server(Dispatcher(broker, self.handlers), config, self.log, loop, turns)
        self.port = await self.server.listen("127.0.0.1", 0)

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0.1)

    async def wire(self) -> Wire:
        return await Wire.connect(self.port)

    def hold(self, name: str) -> None:
        """Hold the answers to requests of this name until `let` is called."""
        self.gates[name] = asyncio.get_running_loop().create_future()

    def let(self, name: str) -> None:
        self.gates.pop(name).set_result(None)

    def reasons(self) -> list[object]:
        return [line["reason"] for line in self.log.of("connection_closed")]

    async def _produce(self, request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | None:
        name = request.topic_data[0].name
        self.started.append(name)
        ctx.order.next_may_start = True
        if request.acks == 0:
            return None
        if gate := self.gates.get(name):
            await gate
        return ProduceResponse(throttle_time_ms=int(name))

    async def _heartbeat(self, request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
        self.started.append(request.group_id)
        if gate := self.gates.get(request.group_id):
            await gate
        if request.group_id == "bug":
            raise ZeroDivisionError("a bug of ours")
        if request.group_id == "refuse":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "who?")
        return HeartbeatResponse()


def heartbeat(name: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=name, generation_id=1, member_id="m")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)
