"""The parts of every workload: a plan drawn from a seed, and client code that carries it out with the real client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Protocol

import msgspec
from semel._edge import Edge
from semel.errors import (
    CorruptRecordException,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaProtocolError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from semel.errors.base import MisconfiguredError

from sim.history import History
from sim.workloads.plan import ClientPlan, Script, WorkloadPlan
from sim.workloads.shared_state import SharedState


class LastTopic(msgspec.Struct, frozen=True):
    """The topic that stays under a name that several topics had one after the other."""

    topic_id: bytes
    partitions: int


class FaultFreePhase(msgspec.Struct):
    """The time after all faults. `has_begun`: they are over. `waiting`: clients with nothing left to do until then.

    `stalled`: clients that made no progress in this phase, as text. `settled`: clients whose group has come to rest.
    `members`: by group, its members, and the clients that will be members again. `last_topics`: by name.
    """

    has_begun: bool = False
    waiting: dict[str, None] = {}
    stalled: list[str] = []
    settled: dict[str, None] = {}
    members: dict[str, dict[str, None]] = {}
    last_topics: dict[str, LastTopic] = {}


class ClientContext(msgspec.Struct, kw_only=True):
    """The environment of a client's code: the edge of its host, the bootstrap servers, the history to write to.

    `pause_process`: pauses the process until it is resumed, at the latest when the faults are over.
    """

    edge: Edge
    bootstrap_servers: str
    history: History
    fault_free: FaultFreePhase = msgspec.field(default_factory=FaultFreePhase)
    pause_process: Callable[[], None] = lambda: None
    shared_states: dict[str, SharedState] = {}
    """The shared state of drivers and workers, by the prefix of their workload."""

    def shared_state(self, prefix: str) -> SharedState:
        """The state that the drivers and workers of this workload share."""
        return self.shared_states.setdefault(prefix, SharedState())

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings for any client on this host."""
        return {"bootstrap_servers": self.bootstrap_servers, "edge": self.edge, **more}


Role = Callable[[WorkloadPlan, ClientPlan, ClientContext, Script], Awaitable[None]]


class Workload(ABC):
    """A kind of workload, without the state of a run. `roles`: the code of its clients, by the role in their plans."""

    name: str
    roles: Mapping[str, Role]

    @abstractmethod
    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        """A plan of 20 to 60 s."""

    async def client(self, plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
        """The main of one client host. It returns when the script is done. After a kill it continues the script."""
        await self.roles[client.role](plan, client, context, script)

    async def settle(self, plan: WorkloadPlan, context: ClientContext) -> None:  # noqa: B027 (most have nothing to settle)
        """Run on a host of its own after all faults and scripts: finishes work that must end.

        Raises AssertionError with the work that does not end.
        """


NEVER_EXPECTED = (CorruptRecordException, KafkaProtocolError, MisconfiguredError)
"""Errors that no fault of the simulator explains."""


REFUSED = (TopicAuthorizationFailedError, GroupAuthorizationFailedError, TransactionalIdAuthorizationFailed)
"""Refusals of a client whose rights the run takes away. Checkers look whether it did."""


def raise_unexpected(error: KafkaError) -> None:
    """Raise an error that no fault explains. All other errors are part of a client's life."""
    if isinstance(error, NEVER_EXPECTED) and not isinstance(error, REFUSED):
        raise error


class Stoppable(Protocol):
    async def stop(self) -> None: ...


async def stop(client: Stoppable) -> None:
    """Stop a producer or consumer; ignore errors that faults explain."""
    try:
        await client.stop()
    except KafkaError as error:
        raise_unexpected(error)
