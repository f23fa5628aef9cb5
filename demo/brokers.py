"""The interface of the brokers of a demo, which can be killed and restarted."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from rich.console import Console

Print = Callable[[str], None]


class KillTargets(NamedTuple):
    """The topics, groups and transactions whose leaders and coordinators are candidates for a kill."""

    topics: list[str]
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    transaction_groups: tuple[str, ...] = ()


class DemoBrokers(Protocol):
    """Brokers that listen at `address`. Topics get `replicas` replicas. `kills`: the SIGKILLs so far."""

    replicas: int

    @property
    def data_dir(self) -> Path:
        """The data directory of one broker."""

    @property
    def address(self) -> str: ...

    @property
    def kills(self) -> int: ...

    async def start(self) -> str:
        """Start all brokers; return a line with their addresses."""

    async def kill_one(self, rng: random.Random, announce: Print, say: Print) -> None:
        """Kill one broker with SIGKILL and restart it on the same data.

        Calls `announce` once with the name of the broker, and `say` with the recovery. Waits first for the recovery of
        the previous kill.
        """

    async def wait_until_recovered(self) -> None:
        """Wait until the last killed broker has recovered."""

    async def stop(self) -> None: ...

    def is_sound(self, console: Console, topics: list[str]) -> bool:
        """Show a report about the brokers after `stop`; return False for an unexpected exit or differing replicas."""
