"""The plan of one run, drawn from its seed: workloads, faults, settings, behaviour of network and disks. All is data.

A plan can be stored as JSON and run again. Shrinking removes elements from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import msgspec

from sim import cluster_swarm, rights, swarm
from sim.broker import LEFT_LOGS_TOGETHER, OPENED_AT_START, RECOMPRESSED_AT_ONCE
from sim.cluster import BROKER, KEEPS, NAMES_OF, STORE
from sim.disk import DiskWeather
from sim.faults import DISK_FAULTS, WHICHEVER, Fault
from sim.network import NetworkWeather
from sim.workloads import (
    ALWAYS_DRAWN,
    CONSUMER_CHURN,
    CONSUMER_PIPELINE,
    CONSUMERS,
    RENEWAL,
    WITH_CONSUMERS,
    WORKLOADS,
    intruder,
)
from sim.workloads.plan import WorkloadPlan

NS = 1_000_000_000
FAULTS_UNTIL_MS = (5_000, 40_000)
SHARES = {CONSUMERS: 0.1, CONSUMER_PIPELINE: 0.05, CONSUMER_CHURN: 0.05, RENEWAL: 0.05}
"""The shares of the runs that have one of these workloads beside the others."""
INTRUDERS_SHARE = 0.15
"""The share of the runs with an intruder, of those whose producers it can imitate."""
SLOW_DISKS_SHARE = 0.1
"""The share of the runs whose disks are slow for a while, and whose loops must not wait for them."""
LATE_OPENING_SHARE = 0.15
"""The share of the runs of one broker that opens most logs after it listens."""
SLOW_AND_LATE_SHARE = 0.4
"""The share of these whose disk is slow for a while. Then the opening of a log must not wait for it."""
Finale = Literal["none", "kill", "power loss", "terminate"]


class RunPlan(msgspec.Struct, kw_only=True):
    """`brokers`: 1 or 3. `finale`: the way in which each broker ends after the work, before the final state is read.
    `rot`: the number of bits that are flipped in cold segments after that; then the records are read once more.
    """

    seed: int
    workloads: list[WorkloadPlan]
    brokers: int = 1
    faults: list[Fault] = []
    broker: dict[str, Any] = {}
    network: NetworkWeather = msgspec.field(default_factory=NetworkWeather)
    disk: DiskWeather = msgspec.field(default_factory=DiskWeather)
    finale: Finale = "none"
    rot: int = 0

    @property
    def clients(self) -> list[str]:
        """The names of all client hosts."""
        return list(self.roles)

    @property
    def roles(self) -> dict[str, str]:
        """The role of each client host, by its name."""
        return {client.name: client.role for workload in self.workloads for client in workload.clients}

    @property
    def has_rights(self) -> bool:
        """Whether the brokers have an authorizer."""
        return "authorizer.class.name" in self.broker

    @property
    def has_consumers(self) -> bool:
        """Whether there is a group of the consumer protocol."""
        return any(workload.kind in WITH_CONSUMERS for workload in self.workloads)

    @property
    def has_retention(self) -> bool:
        """Whether retention deletes records of a topic."""
        return any(topic.cleanup == "delete" for workload in self.workloads for topic in workload.topics)

    @property
    def has_slow_disks(self) -> bool:
        """Whether a fault makes the syncs of a broker slow; then the brokers' loops are watched."""
        return any(fault.kind in DISK_FAULTS for fault in self.faults)

    @property
    def opens_late(self) -> bool:
        """Whether the broker opens most logs after it listens."""
        return OPENED_AT_START in self.broker

    @property
    def keeps_deletions(self) -> bool:
        """Whether an acknowledged deletion of records must last: see `Final.keeps_deletions`."""
        is_damaged = any(fault.kind == "damage" for fault in self.faults)
        return self.brokers == 1 and not is_damaged and self.settings.get("durability") != "os"

    @property
    def hosts(self) -> list[str]:
        """All hosts that a fault can name."""
        return [*NAMES_OF[self.brokers], *self.clients, STORE, WHICHEVER]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the brokers: those of the run, then those of its workloads, which take precedence."""
        merged = dict(self.broker)
        for workload in self.workloads:
            merged.update(workload.broker)
        return merged


def draw(seed: int, kinds: Sequence[str] = (), brokers: int = 1) -> RunPlan:
    """The plan of this seed, with workloads of `kinds` only if any are given. A plan for several brokers has the same
    workloads as the plan for one broker, and other faults and settings.
    """
    rng = Random(f"plan/{seed}")
    names = sorted(kinds or ALWAYS_DRAWN)
    chosen = _one_timing(rng.sample(names, min(len(names), rng.choice((1, 1, 2)))))
    workloads = [WORKLOADS[name].draw(rng, f"{chr(97 + place)}-") for place, name in enumerate(chosen)]
    if not kinds:
        workloads += draw_consumers(Random(f"consumers/{seed}"))
    settings = draw_settings(rng) | draw_recompression(Random(f"recompression/{seed}"))
    settings |= rights.draw_settings(Random(f"rights/{seed}"))
    plan = RunPlan(
        seed=seed,
        workloads=workloads,
        broker=settings,
        network=draw_network(rng),
        disk=DiskWeather(sync_ms=rng.choice(((0.05, 0.5), (0.05, 4.0), (2.0, 30.0))), stale_tails=rng.random() < 0.2),
    )
    fsync = plan.settings.get("durability") != "os"
    plan.finale = rng.choice(("none", "kill", "terminate", *(("power loss", "power loss") if fsync else ())))
    until_ms = rng.randrange(*FAULTS_UNTIL_MS)
    plan.faults = swarm.draw(rng, plan.roles, BROKER, until_ms, fsync=fsync)
    plan.faults = with_revocations(plan, until_ms)
    plan.rot = rng.choice((0, 0, 0, 1, 4))
    plan = plan if brokers == 1 else spread(plan, brokers)
    add_intruder(plan, Random(f"intruder/{seed}"), share=INTRUDERS_SHARE)
    add_slow_disks(plan, Random(f"slow disks/{seed}/{brokers}"), until_ms)
    rng = Random(f"late opening/{seed}")
    return open_late(plan, rng, until_ms) if brokers == 1 and rng.random() < LATE_OPENING_SHARE else plan


def open_late(plan: RunPlan, rng: Random, until_ms: int) -> RunPlan:
    """The broker opens a few logs before it listens, and the others later; faults meet it then."""
    plan.broker |= {OPENED_AT_START: rng.choice((0, 1, 2, 2, 4)), LEFT_LOGS_TOGETHER: rng.choice((1, 1, 16))}
    plan.disk.opening_ms = rng.choice((0.0, 5.0, 50.0, 500.0))
    fsync = plan.settings.get("durability") != "os"
    found = [*swarm.draw_openings(rng, BROKER, until_ms, fsync=fsync)]
    if fsync and rng.random() < SLOW_AND_LATE_SHARE:
        found += swarm.draw_slow_disks(rng, (BROKER,), until_ms)
    plan.faults = sorted([*plan.faults, *found], key=lambda fault: fault.at_ms)
    return plan


def add_slow_disks(plan: RunPlan, rng: Random, until_ms: int) -> None:
    """Slow disks in their share of the runs that sync at all."""
    if rng.random() < SLOW_DISKS_SHARE and plan.settings.get("durability") != "os":
        found = swarm.draw_slow_disks(rng, NAMES_OF[plan.brokers], until_ms)
        plan.faults = sorted([*plan.faults, *found], key=lambda fault: fault.at_ms)


def add_intruder(plan: RunPlan, rng: Random, *, share: float) -> None:
    """An intruder beside the producers of a workload, in this share of the runs that have such a workload. It is added
    after the faults: none is aimed at it."""
    workload = next((each for each in plan.workloads if each.kind in intruder.KINDS), None)
    if workload is not None and rng.random() < share:
        workload.clients.append(intruder.draw(rng, workload.prefix, workload.topics))


def _one_timing(kinds: list[str]) -> list[str]:
    """At most one kind with a group of the consumer protocol: the brokers have one session timeout for all of them,
    which the members must know."""
    first = next((kind for kind in kinds if kind in WITH_CONSUMERS), None)
    return [kind for kind in kinds if kind == first or kind not in WITH_CONSUMERS]


def draw_consumers(rng: Random) -> list[WorkloadPlan]:
    """A group of the consumer protocol beside the other workloads, in a tenth of the runs; a pipeline with one in a
    twentieth; one of semel's clients that commit outside transactions in another twentieth; and in one more a topic
    that is deleted and created again."""
    share = rng.random()
    for kind, part in SHARES.items():
        if share < part:
            return [WORKLOADS[kind].draw(rng, "k-")]
        share -= part
    return []


def spread(plan: RunPlan, brokers: int) -> RunPlan:
    """The plan for `brokers` brokers: it adds cluster settings, and draws faults of several brokers."""
    rng = Random(f"plan/{plan.seed}/{brokers}")
    plan.brokers, plan.rot = brokers, 0
    plan.broker |= draw_cluster_settings(rng) | draw_throttles(Random(f"throttles/{plan.seed}"))
    fsync = plan.settings.get("durability") != "os"
    until_ms = rng.randrange(*FAULTS_UNTIL_MS)
    plan.faults = cluster_swarm.draw(rng, plan.roles, NAMES_OF[brokers], until_ms, fsync=fsync)
    plan.faults = with_revocations(plan, until_ms)
    return plan


def with_revocations(plan: RunPlan, until_ms: int) -> list[Fault]:
    """The faults of a plan, and those that take rights from its clients if its brokers have an authorizer."""
    if not plan.has_rights:
        return plan.faults
    taken = swarm.draw_revocations(Random(f"revocations/{plan.seed}"), plan.roles, until_ms)
    return sorted([*plan.faults, *taken], key=lambda fault: fault.at_ms)


def draw_cluster_settings(rng: Random) -> dict[str, Any]:
    """Timeouts between the brokers, and the number of transactions whose changes the store keeps."""
    return {
        "broker.session.timeout.ms": rng.choice((2_000, 3_000, 6_000)),
        "replica.lag.time.max.ms": rng.choice((1_000, 3_000, 10_000)),
        "replica.fetch.wait.max.ms": rng.choice((50, 500)),
        KEEPS: rng.choice((10, 100, 1_000)),
    }


def draw_recompression(rng: Random) -> dict[str, Any]:
    """A codec of the topics in a tenth of the runs, and the bytes recompressed at once before later batches queue.

    Batches that become uncompressed may be larger than the smallest segments, which would refuse them for ever.
    """
    if rng.random() >= 0.1:
        return {}
    codec = rng.choice(("gzip", "lz4", "snappy", "zstd", "uncompressed"))
    drawn = {"compression.type": codec, RECOMPRESSED_AT_ONCE: rng.choice((0, 1_000, 128 << 10))}
    return drawn | ({"log.segment.bytes": 1 << 20} if codec == "uncompressed" else {})


def draw_throttles(rng: Random) -> dict[str, Any]:
    """Rates in bytes per second for replicas that are not in sync; mostly no limit."""
    sides = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    return {side: rng.choice((20_000, 200_000)) for side in sides if rng.random() < 0.2}


def draw_network(rng: Random) -> NetworkWeather:
    """Short or long latencies, few or many spikes."""
    return NetworkWeather(
        latency_ms=rng.choice(((0.05, 0.5), (0.1, 2.0), (1.0, 40.0))),
        spike_rate=rng.choice((0.0, 0.01, 0.1)),
        spike_ms=rng.choice((5.0, 50.0, 1_000.0)),
        split_rate=rng.choice((0.0, 0.1, 0.7)),
        give_up_ns=rng.choice((5, 20, 120)) * NS,
    )


def draw_settings(rng: Random) -> dict[str, Any]:
    """Limits and intervals of the broker, often so small that a run reaches them."""
    few = rng.choice((1, 2, 3))
    return {
        "durability": rng.choice(("fsync", "fsync", "fsync", "os")),
        "offsets.topic.num.partitions": few,
        "transaction.state.log.num.partitions": few,
        "transaction.version": rng.choice((2, 2, 2, 1)),
        "log.segment.bytes": rng.choice((2_048, 16_384, 1 << 30)),
        "log.index.interval.bytes": rng.choice((0, 256, 4_096)),
        "log.flush.offset.checkpoint.interval.ms": rng.choice((500, 5_000, 60_000)),
        "log.cleaner.backoff.ms": rng.choice((500, 15_000)),
        "log.retention.check.interval.ms": rng.choice((1_000, 300_000)),
        "offsets.topic.segment.bytes": rng.choice((2_048, 100 << 20)),
        "transaction.state.log.segment.bytes": rng.choice((2_048, 100 << 20)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": rng.choice((200, 1_000, 10_000)),
        "group.initial.rebalance.delay.ms": rng.choice((0, 300, 3_000)),
    }
