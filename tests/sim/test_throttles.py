"""Replication throttles take effect: the time that a moved replica needs, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from semel import Admin, NewTopic, Producer, TopicPartition
from semel.admin import ConfigResource, ConfigResourceType

from sim.client import SimEdge
from sim.cluster import SimCluster
from sim.disk import DiskWeather
from sim.host import Host
from sim.world import NS, SimWorld

RECORDS, RECORD_BYTES = 100, 4_000
RATE = 50_000
LEADER, FOLLOWER = 1, 2
PLACE = TopicPartition("t", 0)
SECONDS_AT_RATE = (RECORDS * RECORD_BYTES - RATE) / RATE
"""400 kB at 50 kB/s; the first second's worth is not delayed."""

Act = Callable[[Admin], Awaitable[None]]


async def alter(admin: Admin, kind: ConfigResourceType, name: str, **settings: str | None) -> None:
    values = {key.replace("_", "."): value for key, value in settings.items()}
    await admin.alter_configs([ConfigResource(kind, name, configs=values)])


def seconds_to_move(prepare: Act, amid: Act | None = None) -> float:
    """The time that 400 kB need to move to another broker. `amid`: called 2 s after the start of the move."""
    world = SimWorld(1)
    settings = {"replica.fetch.max.bytes": 20_000, "replica.fetch.response.max.bytes": 20_000}
    cluster = SimCluster(world, 3, settings, DiskWeather())
    cluster.boot()
    assert world.run(20 * NS, cluster.has_formed)
    host = world.host("admin")
    took: list[float] = []

    async def main(_: Host) -> None:
        edge = SimEdge(host)
        async with Admin(bootstrap_servers=cluster.address, edge=edge) as admin:
            await admin.create_topics(
                [NewTopic("t", replica_assignments={0: [LEADER]}, topic_configs={"min.insync.replicas": "1"})]
            )
            async with Producer(bootstrap_servers=cluster.address, edge=edge, linger_ms=0) as producer:
                for n in range(RECORDS):
                    await producer.send_and_wait("t", bytes([n]) * RECORD_BYTES)
            await prepare(admin)
            began = host.monotonic()
            await admin.alter_partition_reassignments({PLACE: [FOLLOWER]})
            if amid is not None:
                await asyncio.sleep(2)
                assert PLACE in await admin.list_partition_reassignments()
                await amid(admin)
            while await admin.list_partition_reassignments():
                await asyncio.sleep(0.02)
            took.append(host.monotonic() - began)

    host.boot(main)
    assert world.run(world.now_ns + 120 * NS, lambda: not host.is_running)
    assert not world.failures
    world.close()
    (seconds,) = took
    return seconds


async def nothing(admin: Admin) -> None:
    pass


def throttled(side: str, replicas: str, rate: str = str(RATE)) -> Act:
    """`side` leader or follower."""

    async def act(admin: Admin) -> None:
        broker = str(LEADER if side == "leader" else FOLLOWER)
        await alter(admin, ConfigResourceType.BROKER, broker, **{f"{side}_replication_throttled_rate": rate})
        await alter(admin, ConfigResourceType.TOPIC, "t", **{f"{side}_replication_throttled_replicas": replicas})

    return act


def test_without_a_throttle_a_move_is_fast() -> None:
    assert seconds_to_move(nothing) < 2


@pytest.mark.parametrize("replicas", ["*", "0:{}"])
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_listed_replica_moves_at_the_rate_of_its_side(side: str, replicas: str) -> None:
    own = LEADER if side == "leader" else FOLLOWER
    seconds = seconds_to_move(throttled(side, replicas.format(own)))
    assert SECONDS_AT_RATE - 0.5 < seconds < SECONDS_AT_RATE + 2


@pytest.mark.parametrize(("side", "replicas"), [("leader", "0:2,1:1"), ("follower", "0:1,1:2"), ("leader", "")])
def test_a_replica_that_is_not_listed_moves_without_a_limit(side: str, replicas: str) -> None:
    """0:2 is the replica of broker 2; the leader's side lists the leader."""
    assert seconds_to_move(throttled(side, replicas)) < 2


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("rate", ["0", "1"])
def test_a_raised_rate_takes_effect_at_once(side: str, rate: str) -> None:
    """A replica with hours to wait at the old rate continues at once at the new rate."""
    assert seconds_to_move(throttled(side, "*", rate), throttled(side, "*", str(10**9))) < 5
