"""What every workload is: a plan drawn from a seed, and bodies of clients that carry it out with the real client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import Any

import msgspec
from semel._edge import Edge
from sim.history import History
from sim.workloads.plan import ClientPlan, Script, WorkloadPlan


class Desk(msgspec.Struct, kw_only=True):
    """What a client body is given: the outside world of its host, where the brokers are, and where to write down.

    `history` may be None only in bodies that record nothing (`prepare`).
    """

    edge: Edge
    bootstrap_servers: str
    history: History

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings of any client on this host."""
        return {"bootstrap_servers": self.bootstrap_servers, "edge": self.edge, **more}


class Workload(ABC):
    """A kind of workload; it holds nothing of a run."""

    name: str

    @abstractmethod
    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        """A plan of 20 to 60 s."""

    @abstractmethod
    async def client(self, plan: WorkloadPlan, client: ClientPlan, desk: Desk, script: Script) -> None:
        """The main of one client host. Returns when its script is done; killed and booted again, it goes on."""

    async def settle(self, plan: WorkloadPlan, desk: Desk) -> None:
        """When all is healed and every script is done: what has to end does so. Run on a host of its own.

        Raises AssertionError saying what does not end.
        """
        return
