"""Time in slots, and requests that are late by a number of slots."""

from __future__ import annotations

import asyncio

from semel import Admin

from sim.client import SimEdge
from sim.history import Recorder
from sim.holds import Hold
from sim.host import Host
from sim.old_clients.cases import API_KEYS

SLOT_MS = 200
REQUEST_MS = 60
NS_PER_MS = 1_000_000


class TimeSlots:
    """The clock of one client on `host`. The first slot begins one slot length after the first call of `next`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._hold: Hold | None = None
        self._next_ns = 0

    async def next(self) -> None:
        """Wait for the start of the next slot."""
        now_ns = self._host.world.now_ns
        self._next_ns = now_ns + SLOT_MS * NS_PER_MS if not self._next_ns else self._next_ns + SLOT_MS * NS_PER_MS
        assert self._next_ns >= now_ns, "a step took longer than a slot"
        await asyncio.sleep((self._next_ns - now_ns) / 1_000 / NS_PER_MS)

    def hold(self, api: str, slots: int) -> None:
        """The next request of this API arrives in the middle of a slot, `slots` slots after this one."""
        delay_ms = slots * SLOT_MS + SLOT_MS * 0.6
        self._hold = Hold(api_key=API_KEYS[api], delay_ms=delay_ms, source=self._host.name)
        self._host.world.network.hold(self._hold)

    @property
    def something_was_late(self) -> bool:
        return self._hold is not None and self._hold.count == 0

    async def look(self, address: str, group: str, recorder: Recorder) -> None:
        """Record the group's committed offsets."""
        since_ms = recorder.history.now_ms()
        async with Admin(bootstrap_servers=address, edge=SimEdge(self._host)) as admin:
            found = await admin.list_consumer_group_offsets(group)
        recorder.offsets_seen(group, {place: at.offset for place, at in found.items()}, since_ms=since_ms)
