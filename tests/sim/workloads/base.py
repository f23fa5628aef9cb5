"""What every workload is: a plan drawn from a seed, and bodies of clients that carry it out with the real client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Protocol

import msgspec
from semel._edge import Edge
from semel.errors import CorruptRecordException, KafkaError, KafkaProtocolError
from semel.errors.base import MisconfiguredError

from sim.history import History
from sim.workloads.board import Board
from sim.workloads.plan import ClientPlan, Script, WorkloadPlan


class FaultFreePhase(msgspec.Struct):
    """When all faults are over. `has_come`: they are. `waiting`: clients that have nothing left to do before.

    `standing`: who has not gone on although it had come.
    """

    has_begun: bool = False
    waiting: dict[str, None] = {}
    stalled: list[str] = []


class ClientContext(msgspec.Struct, kw_only=True):
    """What a client body is given: the outside world of its host, where the brokers are, and where to write down.

    `rest`: lets its process stand still until somebody wakes it, or the faults are over.
    """

    edge: Edge
    bootstrap_servers: str
    history: History
    fault_free: FaultFreePhase = msgspec.field(default_factory=FaultFreePhase)
    pause_process: Callable[[], None] = lambda: None
    boards: dict[str, Board] = {}
    """What drivers keep outside of themselves, by the prefix of their workload."""

    def board(self, prefix: str) -> Board:
        """That of this workload."""
        return self.boards.setdefault(prefix, Board())

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings of any client on this host."""
        return {"bootstrap_servers": self.bootstrap_servers, "edge": self.edge, **more}


Role = Callable[[WorkloadPlan, ClientPlan, ClientContext, Script], Awaitable[None]]


class Workload(ABC):
    """A kind of workload; it holds nothing of a run. `roles`: what its clients do, by the role in their plans."""

    name: str
    roles: Mapping[str, Role]

    @abstractmethod
    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        """A plan of 20 to 60 s."""

    async def client(self, plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
        """The main of one client host. Returns when its script is done; killed and booted again, it goes on."""
        await self.roles[client.role](plan, client, context, script)

    async def settle(self, plan: WorkloadPlan, context: ClientContext) -> None:  # noqa: B027 (most have nothing to settle)
        """When all is healed and every script is done: what has to end does so. Run on a host of its own.

        Raises AssertionError saying what does not end.
        """


NEVER_EXPECTED = (CorruptRecordException, KafkaProtocolError, MisconfiguredError)
"""No fault that the simulator knows leads to these."""


def raise_unexpected(error: KafkaError) -> None:
    """An error that faults explain is part of a client's life. Raises one that they do not."""
    if isinstance(error, NEVER_EXPECTED):
        raise error


class Stoppable(Protocol):
    async def stop(self) -> None: ...


async def stop(client: Stoppable) -> None:
    """Stops a producer or consumer, whatever it has to say about it."""
    try:
        await client.stop()
    except KafkaError as error:
        raise_unexpected(error)
