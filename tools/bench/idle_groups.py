"""Many groups of one member each that only send heartbeats; the program that `bench.groups` runs.

Members speak the raw wire, one connection each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

import psutil
from broker.consumers import HeartbeatingMember
from broker.members import WireMember
from broker.wire import Wire
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest

INTERVALS_S = {"classic": 3.0, "consumer protocol": 5.0}
"""Kafka's defaults: of its clients, and of its broker."""
JOINS_AT_ONCE = 100
UNAVAILABLE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
TRIES = 100
SYNC_VERSION = 4
"""The last version of SyncGroup in which Kafka does not want the protocol's type and name (KIP-559)."""
SETTLE_S, MEASURED_S = 6.0, 15.0
Beat = Callable[[], Awaitable[int]]


class IdleGroups:
    """All members. `sent`: heartbeats so far."""

    def __init__(self, address: str, protocol: str, groups: int, pid: int) -> None:
        self._port = int(address.rpartition(":")[2])
        self._protocol, self._groups, self._broker = protocol, groups, psutil.Process(pid)
        self._joins = asyncio.Semaphore(JOINS_AT_ONCE)
        self._joined = 0
        self._all_joined = asyncio.Event()
        self.sent = 0

    async def measured(self) -> dict[str, float]:
        """The broker's CPU as a share of a core, without groups and with them, and milliseconds for each heartbeat."""
        wire = await Wire.connect(self._port)
        await wire.create_topic("t", 1)

        async def coordinator() -> int:
            return int((await wire.call(FindCoordinatorRequest(key="group-0"), 2)).error_code)

        await self._until_served(coordinator)
        await asyncio.sleep(SETTLE_S)
        without_s, _ = await self._spent()
        async with asyncio.TaskGroup() as tasks:
            members = [tasks.create_task(self._member(number)) for number in range(self._groups)]
            await self._all_joined.wait()
            await asyncio.sleep(SETTLE_S)
            spent_s, count = await self._spent()
            for member in members:
                member.cancel()
        return {
            "without": without_s / MEASURED_S,
            "share": spent_s / MEASURED_S,
            "ms": (spent_s - without_s) / count * 1000,
        }

    async def _spent(self) -> tuple[float, int]:
        """The broker's seconds of CPU, and the heartbeats, of the time measured."""
        began_s, sent = self._cpu_s(), self.sent
        await asyncio.sleep(MEASURED_S)
        return self._cpu_s() - began_s, self.sent - sent

    async def _member(self, number: int) -> None:
        async with self._joins:
            beat = await self._join(f"group-{number}")
        self._joined += 1
        if self._joined == self._groups:
            self._all_joined.set()
        while True:
            await asyncio.sleep(INTERVALS_S[self._protocol])
            code = await beat()
            assert code == 0, f"group-{number}: heartbeat answered {ErrorCode(code).name}"
            self.sent += 1

    async def _join(self, group: str) -> Beat:
        """Join a group as its only member; return what sends a heartbeat."""
        wire = await Wire.connect(self._port)
        if self._protocol == "classic":
            member = WireMember(wire, group)

            async def join() -> int:
                return int((await member.join()).error_code)

            await self._until_served(join)
            answer = await member.sync({member.member_id: b"all"}, SYNC_VERSION)
            assert answer.assignment == b"all", f"{group}: {ErrorCode(answer.error_code).name}"
            return member.heartbeat
        consumer = HeartbeatingMember(wire, f"member-of-{group}", group)
        await self._until_served(consumer.beat)
        while not consumer.partitions:
            assert await consumer.beat() == 0, group
        return lambda: consumer.beat(topic_partitions=None)

    async def _until_served(self, request: Beat) -> None:
        """Repeat a request until the broker serves the group. A fresh Apache Kafka makes and loads its topic first."""
        for _ in range(TRIES):
            code = await request()
            if code not in UNAVAILABLE:
                break
            await asyncio.sleep(0.2)
        assert code == 0, ErrorCode(code).name

    def _cpu_s(self) -> float:
        times = self._broker.cpu_times()
        return float(times.user + times.system)


async def main() -> None:
    sys.stdout.write(json.dumps(await IdleGroups(**json.loads(sys.argv[1])).measured()))


if __name__ == "__main__":
    asyncio.run(main())
