"""The brokers that a demo runs on: one process, or three of a cluster. Both can be struck, and come back."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from rich.console import Console

Tell = Callable[[str], None]


class Watched(NamedTuple):
    """What is looked at when somebody is to be struck: who leads, who coordinates."""

    topics: list[str]
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    transaction_groups: tuple[str, ...] = ()


class Brokers(Protocol):
    """Somebody serves at `address`; topics get `replicas` replicas each. `kills`: SIGKILLs so far."""

    replicas: int

    @property
    def data_dir(self) -> Path:
        """Of one of them."""

    @property
    def address(self) -> str: ...

    @property
    def kills(self) -> int: ...

    async def start(self) -> str:
        """Starts all of them; says where they are."""

    async def strike(self, rng: random.Random, tell: Tell, say: Tell) -> None:
        """SIGKILL for one of them, which comes back on the same data.

        `tell` hears once who was killed, `say` what became of it. A strike waits until the last one is got over.
        """

    async def settled(self) -> None:
        """Whoever was killed is back."""

    async def stop(self) -> None: ...

    def is_sound(self, console: Console, topics: list[str]) -> bool:
        """After `stop`: shows what there is to say of the brokers, and whether that is as it should be."""
