"""Members of one group that join, leave and restart one after the other; the program that `bench.groups` runs.

Each member is a consumer of librdkafka or of semel's client, in a thread. Callbacks say when it has a partition and
when it gives it up; all times are of one monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil
import semel
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC, PARTITIONS = "shared", 60
HEARTBEAT_MS = 500
Config = dict[str, str | int | float | bool]
PROTOCOLS: dict[str, Config] = {
    "classic eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": HEARTBEAT_MS},
    "classic cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": HEARTBEAT_MS,
    },
    "consumer protocol": {"group.protocol": "consumer"},
}
SEMEL_PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic eager": {"partition_assignment_strategy": ["range"], "heartbeat_interval_ms": HEARTBEAT_MS},
    "classic cooperative": {
        "partition_assignment_strategy": ["cooperative-sticky"],
        "heartbeat_interval_ms": HEARTBEAT_MS,
    },
    "consumer protocol": {"group_protocol": "consumer"},
}
"""As PROTOCOLS, for semel's client."""
GROUP_APIS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat")
FETCH_WAIT_MS = 2_000
"""A long one: fetches of empty partitions are not what is measured."""
POLL_S = 0.2
SETTLED_TIMEOUT_S = 30.0


@dataclass
class Phase:
    """The figures of one phase. `requests`: None where the broker does not count them.

    `unsettled`: changes after which the partitions were not shared within the time allowed.
    """

    taken: int = 0
    assigned: int = 0
    longest_s: float = 0.0
    median_s: float = 0.0
    without_owner_s: float = 0.0
    length_s: float = 0.0
    cpu_s: float = 0.0
    requests: float | None = None
    overlaps: int = 0
    unsettled: int = 0


@dataclass
class ObservedOwnership:
    """The owners of all partitions, as the callbacks of members say."""

    partitions: int
    owners: dict[int, str] = field(default_factory=dict)
    free_since: dict[int, float] = field(default_factory=dict)
    gaps_s: list[float] = field(default_factory=list)
    phase: Phase = field(default_factory=Phase)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def assign(self, member: str, partitions: list[int], now_s: float) -> None:
        with self.changed:
            for partition in partitions:
                self.phase.assigned += 1
                self.phase.overlaps += partition in self.owners
                self.owners[partition] = member
                if partition in self.free_since:
                    self.gaps_s.append(now_s - self.free_since.pop(partition))
            self.changed.notify_all()

    def give_up(self, member: str, partitions: list[int], now_s: float, *, stays: bool) -> None:
        with self.changed:
            for partition in partitions:
                self.phase.taken += stays
                if self.owners.get(partition) == member:
                    del self.owners[partition]
                    self.free_since[partition] = now_s
            self.changed.notify_all()

    def is_shared(self, members: set[str]) -> bool:
        """Whether each partition has an owner and no member has two more than another."""
        counts = Counter(self.owners.values())
        return (
            len(self.owners) == self.partitions
            and set(counts) == members
            and max(counts.values()) - min(counts.values()) <= 1
        )

    def wait_until_shared(self, members: set[str]) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.is_shared(members), SETTLED_TIMEOUT_S):
                self.phase.unsettled += 1
                sys.stderr.write(f"not shared among {len(members)}: {sorted(self.owners.items())}\n")

    def end_phase(self) -> Phase:
        """The figures since the last end of a phase. Partitions that have no owner now do not count."""
        with self.changed:
            ended, gaps = self.phase, self.gaps_s
            self.phase, self.gaps_s = Phase(), []
        ended.longest_s, ended.without_owner_s = max(gaps, default=0.0), sum(gaps)
        ended.median_s = statistics.median(gaps) if gaps else 0.0
        return ended


class ConfluentThread(threading.Thread):
    """A consumer of librdkafka in a thread."""

    def __init__(self, name: str, config: Config, ownership: ObservedOwnership) -> None:
        super().__init__(name=name, daemon=True)
        self._config, self._ownership = config, ownership
        self._is_stopped = threading.Event()

    def run(self) -> None:
        consumer = Consumer(self._config)
        consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        while not self._is_stopped.is_set():
            consumer.poll(POLL_S)
        consumer.close()

    def stop(self) -> None:
        """Leave the group; return when the consumer is closed."""
        self._is_stopped.set()
        self.join()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ownership.assign(self.name, [each.partition for each in partitions], time.monotonic())

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        stays = not self._is_stopped.is_set()
        self._ownership.give_up(self.name, [each.partition for each in partitions], time.monotonic(), stays=stays)


class SemelThread(threading.Thread):
    """A consumer of semel's client in a thread with a loop of its own."""

    def __init__(self, name: str, config: dict[str, Any], ownership: ObservedOwnership) -> None:
        super().__init__(name=name, daemon=True)
        self._config, self._ownership = config, ownership
        self._is_stopped = threading.Event()

    def run(self) -> None:
        asyncio.run(self._consume())

    def stop(self) -> None:
        """Leave the group; return when the consumer is closed."""
        self._is_stopped.set()
        self.join()

    async def _consume(self) -> None:
        async with semel.Consumer(**self._config) as consumer:
            consumer.subscribe([TOPIC], listener=OwnershipListener(self.name, self._ownership, self._is_stopped))
            while not self._is_stopped.is_set():
                await consumer.getmany(timeout_ms=int(POLL_S * 1000))


class OwnershipListener(semel.ConsumerRebalanceListener):
    """Notes what the member has, and what it gives up."""

    def __init__(self, name: str, ownership: ObservedOwnership, is_stopped: threading.Event) -> None:
        self._name, self._ownership, self._is_stopped = name, ownership, is_stopped

    def on_partitions_assigned(self, assigned: list[semel.TopicPartition]) -> None:
        self._ownership.assign(self._name, [each.partition for each in assigned], time.monotonic())

    def on_partitions_revoked(self, revoked: list[semel.TopicPartition]) -> None:
        stays = not self._is_stopped.is_set()
        self._ownership.give_up(self._name, [each.partition for each in revoked], time.monotonic(), stays=stays)


class Rebalances:
    """A group that grows to `members`, restarts each member, and shrinks to one. `client`: librdkafka or semel."""

    def __init__(
        self, address: str, protocol: str, members: int, pid: int, metrics_port: int | None, client: str
    ) -> None:
        self._address, self._client = address, client
        self._config: Config = {
            "bootstrap.servers": address,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 30_000,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            **PROTOCOLS[protocol],
        }
        if protocol == "consumer protocol":
            del self._config["session.timeout.ms"]  # the broker decides
        self._semel_config: dict[str, Any] = {
            "bootstrap_servers": address,
            "group_id": "g",
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": FETCH_WAIT_MS,
            **SEMEL_PROTOCOLS[protocol],
        }
        self._count, self._broker, self._metrics_port = members, psutil.Process(pid), metrics_port
        self._ownership = ObservedOwnership(PARTITIONS)
        self._members: list[ConfluentThread | SemelThread] = []
        self._started = 0

    def run(self) -> dict[str, Phase]:
        admin = AdminClient({"bootstrap.servers": self._address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        self._start()
        self._settle()
        self._ownership.end_phase()
        found = {
            "join": self._phase(self._join_all),
            "restart": self._phase(self._restart_all),
            "leave": self._phase(self._leave_all),
        }
        self._members[0].stop()
        return found

    def _phase(self, act: Callable[[], None]) -> Phase:
        began_s, cpu_s, requests = time.monotonic(), self._cpu_s(), self._requests()
        act()
        ended = self._ownership.end_phase()
        ended.length_s, ended.cpu_s = time.monotonic() - began_s, self._cpu_s() - cpu_s
        if requests is not None:
            ended.requests = (self._requests() or 0) - requests
        return ended

    def _join_all(self) -> None:
        while len(self._members) < self._count:
            self._start()
            self._settle()

    def _restart_all(self) -> None:
        for _ in range(self._count):
            self._members.pop(0).stop()
            self._start()
            self._settle()

    def _leave_all(self) -> None:
        while len(self._members) > 1:
            self._members.pop(0).stop()
            self._settle()

    def _start(self) -> None:
        self._started += 1
        name = f"m{self._started}"
        if self._client == "semel":
            self._members.append(SemelThread(name, self._semel_config, self._ownership))
        else:
            self._members.append(ConfluentThread(name, self._config, self._ownership))
        self._members[-1].start()

    def _settle(self) -> None:
        self._ownership.wait_until_shared({member.name for member in self._members})

    def _cpu_s(self) -> float:
        times = self._broker.cpu_times()
        return float(times.user + times.system)

    def _requests(self) -> float | None:
        """Requests of groups so far, as semel's metrics count them."""
        if self._metrics_port is None:
            return None
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        wanted = tuple(f'semel_requests_total{{source="client",api="{api}"}}' for api in GROUP_APIS)
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(wanted))


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps({name: asdict(phase) for name, phase in Rebalances(**json.loads(sys.argv[1])).run().items()})
    )
