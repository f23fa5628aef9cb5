"""PURE: the measured rates and token buckets, in bounded memory.

One that is silent for an hour is removed. At the bound the one that is silent for the longest time is removed: a client
with a new client id in each request does not fill the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

SENSORS_MAX = 10_000
SILENT_S = 3_600.0

S = TypeVar("S")


class Sensors(Generic[S]):
    """Sensors by name; `made` makes a new one."""

    def __init__(self, made: Callable[[], S], most: int = SENSORS_MAX) -> None:
        self._made, self._most = made, most
        self._sensors: OrderedDict[Hashable, tuple[S, float]] = OrderedDict()  # with the time of the last use

    def __len__(self) -> int:
        return len(self._sensors)

    def get(self, name: Hashable, now: float) -> S:
        """The sensor of this name."""
        found = self._sensors.pop(name, None)
        sensor = self._made() if found is None else found[0]
        self._sensors[name] = (sensor, now)
        while len(self._sensors) > self._most or now - next(iter(self._sensors.values()))[1] > SILENT_S:
            self._sensors.popitem(last=False)
        return sensor
