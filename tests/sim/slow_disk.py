"""Brokers on slow disks, with clients that make them create, roll, sweep and delete many logs, and a bystander.

The brokers are the unchanged Node. The seed decides their number, the time of a sync, the hangs of a disk, and the acts
of the clients. These rules are checked: the disk holds no turn of a broker's loop for long (`stalls`); the broker
answers each request of the bystander in time, because none of them needs the disk; brokers with other disks lead in
place of one whose disk hangs; and all work continues when the disk does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import msgspec
from broker.wire import Wire, fetch_request
from semel import Admin, Consumer, NewTopic, Producer, TopicPartition
from semel.admin import QuotaEntity, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from semel.errors import KafkaError
from semel_broker.cluster.image import Place
from semel_protocol.messages.k01_fetch import FetchResponse
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.schema import Message

from sim import faults
from sim.broker import PORT
from sim.checkers.anomaly import Anomaly
from sim.client import SimEdge
from sim.cluster import NAMES_OF, SimCluster
from sim.control import Listener
from sim.disk import DiskWeather
from sim.faults import Fault, FaultTargets
from sim.host import Host
from sim.logs import captured
from sim.network import NetworkWeather
from sim.run import RunVerdict
from sim.stalls import TURN_MS_MAX, LoopStalls
from sim.world import NS, SimWorld, StuckHost

CHECKERS = ("loop-waits-for-disk", "bystander-waits", "leadership-stays", "nothing-goes-on")
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "log.flush.offset.checkpoint.interval.ms": 2_000,
    "log.cleaner.backoff.ms": 1_000,
}
CACHED = "cached"
NETWORK_MS = (0.05, 0.5)
PROMPT_S = TURN_MS_MAX / 1_000 + 0.01
"""One turn that waits as long as a turn may, and the network."""
STARTS_WITHIN_NS = 60 * NS
WORK_FOR_NS = 20 * NS
AFTER_A_HANG_NS = 5 * NS
GOES_ON_WITHIN_NS = 60 * NS
FOR_GOOD_MS = 45_000
"""A hang of this length outlasts the work."""
LEADERSHIP_LOOK_NS = NS // 2
LEADERSHIP_MOVES_S = 12.0
"""disk.hang.timeout.ms, the interval of the looks, and the transactions of the controller."""
SLOW_MS = ((30.0, 30.0), (30.0, 300.0), (300.0, 300.0))
PARTITIONS = 20
CLIENT: Any = {"request_timeout_ms": 40_000}
LOST = (OSError, EOFError, TimeoutError)


class Clients(msgspec.Struct):
    """The clients of one host: the next names are numbered, so that each act finds something new."""

    host: Host
    address: str
    number: int = 0

    def name(self, kind: str) -> str:
        self.number += 1
        return f"{self.host.name}-{kind}-{self.number}"

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.address, edge=SimEdge(self.host), **CLIENT)

    def producer(self, **settings: Any) -> Producer:
        return Producer(bootstrap_servers=self.address, edge=SimEdge(self.host), linger_ms=0, **CLIENT, **settings)

    async def topic(self, partitions: int = 1, **configs: str) -> str:
        topic = self.name("topic")
        async with self.admin() as admin:
            await admin.create_topics([NewTopic(topic, partitions, topic_configs=configs)])
        return topic


async def first_records(clients: Clients) -> None:
    """The first record of each of many partitions, and a sweep over them."""
    topic = await clients.topic(PARTITIONS)
    async with clients.producer() as producer:
        await asyncio.gather(*[producer.send_and_wait(topic, b"x", partition=each) for each in range(PARTITIONS)])
    await asyncio.sleep(3)


async def rolls(clients: Clients) -> None:
    """Segments that are rolled, then deleted by DeleteRecords."""
    topic = await clients.topic(1, **{"segment.bytes": "20000"})
    async with clients.producer() as producer:
        for _ in range(8):
            await producer.send_and_wait(topic, bytes(15_000), partition=0)
    async with clients.admin() as admin:
        await admin.delete_records({TopicPartition(topic, 0): 6})


async def transactions(clients: Clients) -> None:
    """A new transactional id, and three transactions of it: the last one is resumed by another producer's start."""
    topic, own = await clients.topic(3), clients.name("id")
    for _ in range(2):
        async with clients.producer(transactional_id=own) as producer, producer.transaction():
            await producer.send(topic, b"y", partition=0)


async def classic_group(clients: Clients) -> None:
    await _group(clients, "classic")


async def consumer_group(clients: Clients) -> None:
    await _group(clients, "consumer")


async def _group(clients: Clients, protocol: str) -> None:
    """A new group reads and commits."""
    settings: Any = {"auto_offset_reset": "earliest", "group_protocol": protocol, **CLIENT}
    async with Consumer(
        CACHED,
        bootstrap_servers=clients.address,
        edge=SimEdge(clients.host),
        group_id=clients.name("group"),
        **settings,
    ) as consumer:
        await consumer.getone()
        await consumer.commit()


async def topics_deleted(clients: Clients) -> None:
    topic = await clients.topic(5)
    async with clients.producer() as producer:
        for each in range(5):
            await producer.send_and_wait(topic, b"x", partition=each)
    async with clients.admin() as admin:
        await admin.delete_topics([topic])


async def compaction(clients: Clients) -> None:
    """A compacted topic with small segments, whose keys are overwritten."""
    configs = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
    topic = await clients.topic(1, **configs)
    async with clients.producer() as producer:
        for number in range(20):
            await producer.send_and_wait(topic, bytes(1_000), key=b"%d" % (number % 3), partition=0)
    await asyncio.sleep(4)


async def many_partitions(clients: Clients) -> None:
    await clients.topic(60)


async def quotas(clients: Clients) -> None:
    async with clients.admin() as admin:
        await admin.alter_client_quotas({QuotaEntity(client_id=clients.name("client")): {"producer_byte_rate": 1e9}})


async def credentials(clients: Clients) -> None:
    async with clients.admin() as admin:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        user = UserScramCredentialUpsertion(clients.name("user"), info, "a password", b"salt")
        await admin.alter_user_scram_credentials([user])


ACTS: tuple[Callable[[Clients], Awaitable[None]], ...] = (
    first_records,
    rolls,
    transactions,
    classic_group,
    consumer_group,
    topics_deleted,
    compaction,
    many_partitions,
    quotas,
    credentials,
)


class Act(msgspec.Struct, frozen=True):
    """The repeated act of the clients of one host."""

    host: str
    what: str

    async def do(self, clients: Clients) -> None:
        await next(act for act in ACTS if act.__name__ == self.what)(clients)


class SlowDiskRun:
    """One run of a seed. `anomalies`: findings. `waits`: seconds of the bystander's requests."""

    about = "disks"

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        self.seed = seed
        rng = Random(f"slow disk/{seed}")
        self.world = world = SimWorld(seed, listener)
        world.network.weather = NetworkWeather(latency_ms=NETWORK_MS, spike_rate=0.0)
        self.slow_ms = rng.choice(SLOW_MS)
        brokers = rng.choice((1, 1, 3))
        self.cluster = SimCluster(world, brokers, SETTINGS, DiskWeather(sync_ms=(0.05, 0.4)))
        self.acts = draw(rng)
        self.hangs = draw_hangs(rng, NAMES_OF[brokers])
        self.stalls = [LoopStalls(broker) for broker in self.cluster.brokers.values()]
        self.anomalies: list[Anomaly] = []
        self.waits: list[float] = []
        self.done: dict[str, int] = {}
        self._is_prepared = False
        self._has_gone_on = False
        self._led_late: set[Place] = set()

    @property
    def faults(self) -> Sequence[object]:
        """The acts of the clients, then the times at which disks hang."""
        return [*self.acts, *self.hangs]

    def judged(self) -> RunVerdict:
        """Execute the run and give the verdict."""
        self.execute()
        world = self.world
        return RunVerdict(
            seed=self.seed,
            digest=world.digest(),
            anomalies=self.anomalies,
            failures=[str(failure) for failure in world.failures],
            simulated_s=world.now_ns / NS,
            steps=world.steps,
            tally=world.tally,
        )

    def execute(self) -> list[str]:
        """Run, and return all findings as text."""
        world = self.world
        with captured():
            try:
                self._execute()
            except StuckHost as error:
                self._note(str(error))
            finally:
                world.close()
        for stalls in self.stalls:
            self.anomalies += stalls.found()
        return [*map(str, self.anomalies), *map(str, world.failures)]

    def _execute(self) -> None:
        world = self.world
        self.cluster.boot()
        if not world.run(STARTS_WITHIN_NS, self.cluster.has_formed):
            world.fail("world", "the broker does not start")
            return
        world.host("setup").boot(self._prepare)
        world.run(world.now_ns + STARTS_WITHIN_NS, lambda: self._is_prepared)
        for broker in self.cluster.brokers.values():
            broker.host.disk.turn_slow(self.slow_ms)
            world.host(f"bystander-{broker.host.name}").boot(self._stand_by)
        for act in self.acts:
            self._boot_client(act)
        targets = FaultTargets(world, self.cluster.brokers, lambda name: None)
        faults.schedule(self.hangs, targets)
        if len(self.cluster.brokers) > 1:
            world.after(LEADERSHIP_LOOK_NS, self._look_at_leaders)
        ends_ns = [(hang.at_ms + min(hang.lasting_ms, FOR_GOOD_MS)) * NS // 1_000 for hang in self.hangs]
        world.run(world.now_ns + max([WORK_FOR_NS, *(end_ns + AFTER_A_HANG_NS for end_ns in ends_ns)]))
        if self.hangs:
            self._go_on()

    def _go_on(self) -> None:
        """The disks are quick again: without a restart writes are stored, and all replicas are in sync."""
        world = self.world
        for broker in self.cluster.brokers.values():
            broker.host.disk.weather.heal()
        world.host("afterwards").boot(self._write_afterwards)
        if not world.run(world.now_ns + GOES_ON_WITHIN_NS, lambda: self._has_gone_on and self._is_whole()):
            what = "all replicas are in sync" if self._has_gone_on else "a record is stored"
            self.anomalies.append(Anomaly("nothing-goes-on", f"after the hang it takes too long until {what}"))

    def _is_whole(self) -> bool:
        """Whether all replicas of the bystander's topic are in sync."""
        nodes = self.cluster.nodes()
        views = [view for view in nodes[0].broker.feed.image.partitions() if view.topic == CACHED]
        return all(len(view.state.isr) == len(nodes) for view in views)

    async def _write_afterwards(self, host: Host) -> None:
        async with Clients(host, self.cluster.address).producer() as producer:
            await producer.send_and_wait(CACHED, b"y", partition=0)
        self._has_gone_on = True

    def _look_at_leaders(self) -> None:
        """While a disk hangs, brokers with other disks lead, where they are in sync; of a new topic a moment later."""
        self.world.after(LEADERSHIP_LOOK_NS, self._look_at_leaders)
        before, self._led_late = self._led_late, set()
        for broker in self.cluster.brokers.values():
            call = broker.host.disk.oldest_call()
            if call is None or call.seconds < LEADERSHIP_MOVES_S or broker.node is None:
                continue
            me = broker.node.broker.node_id
            other = next(node for node in self.cluster.nodes() if node is not broker.node)
            for view in other.broker.feed.image.partitions():
                if view.state.leader != me or len(view.state.isr) == 1:
                    continue
                self._led_late.add(view.place)
                if view.place in before:
                    self._note(
                        f"{broker.host.name} leads {view.topic}-{view.index}, in sync {view.state.isr}: a call for "
                        f"{call.path} waits for {call.seconds:.1f} s",
                        "leadership-stays",
                    )

    async def _prepare(self, host: Host) -> None:
        async with Clients(host, self.cluster.address).admin() as admin:
            await admin.create_topics([NewTopic(CACHED, 1)])
        async with Clients(host, self.cluster.address).producer() as producer:
            await producer.send_and_wait(CACHED, b"x", partition=0)
        self._is_prepared = True

    def _boot_client(self, act: Act) -> None:
        async def main(host: Host) -> None:
            clients = Clients(host, self.cluster.address)
            while True:
                try:
                    await act.do(clients)
                    self.done[act.what] = self.done.get(act.what, 0) + 1
                except (KafkaError, TimeoutError) as error:  # a sync that takes longer than a time-out
                    self.world.note(host.name, f"{act.what} failed: {type(error).__name__}")
                await asyncio.sleep(host.rng.uniform(0.0, 1.0))

        self.world.host(act.host).boot(main)

    async def _stand_by(self, host: Host) -> None:
        name = host.name.partition("-")[2]
        stalls = next(each for each in self.stalls if each.name == name)
        rng = self.world.random(host.name)
        wire = await self._connected(name)
        while True:
            await asyncio.sleep(rng.uniform(0.01, 0.05))
            what, request = rng.choice(REQUESTS)
            began_ns = self.world.now_ns
            how = "was answered"
            try:
                answer = await wire.call(request)
                if isinstance(answer, FetchResponse) and len(self.cluster.brokers) == 1:
                    how = answered(answer)
            except LOST as error:
                how = f"failed with {error!r}"
                wire.writer.transport.abort()
                wire = await self._connected(name)
            waited_s = (self.world.now_ns - began_ns) / NS
            self.waits.append(waited_s)
            if (waited_s > PROMPT_S or how != "was answered") and stalls.excused_until_ns < began_ns:
                self._note(f"{what} to {name} {how} after {waited_s:.3f} s")

    async def _connected(self, name: str) -> Wire:
        return Wire(*await asyncio.open_connection(name, PORT))

    def _note(self, what: str, checker: str = "bystander-waits") -> None:
        if len(self.anomalies) < 10:
            self.anomalies.append(Anomaly(checker, f"{self.world.now_ns / NS:.6f} {what}"))
            self.world.tell("checker", str(self.anomalies[-1]))


REQUESTS: tuple[tuple[str, Message], ...] = (
    ("ApiVersions", ApiVersionsRequest()),
    ("Metadata", MetadataRequest(topics=[MetadataRequestTopic(name=CACHED)])),
    ("Fetch", fetch_request(CACHED, 0, max_wait_ms=0)),
)


def answered(answer: FetchResponse) -> str:
    """The answer to a fetch of a record that the kernel has in memory."""
    (topic,) = answer.responses
    (row,) = topic.partitions
    return "was answered" if row.records and not row.error_code else f"was answered with {row.error_code}"


def draw(rng: Random) -> list[Act]:
    """The acts of the clients of one run: a few of them, each on two hosts, or all of them."""
    chosen = rng.sample([act.__name__ for act in ACTS], rng.choice((1, 2, 3, len(ACTS))))
    return [Act(f"client-{number}", what) for number, what in enumerate(chosen * (1 if len(chosen) > 3 else 2), 1)]


def draw_hangs(rng: Random, brokers: Sequence[str]) -> list[Fault]:
    """In a third of the runs one disk hangs: for up to half a minute, or until the end."""
    if rng.random() >= 1 / 3:
        return []
    at_ms, lasting_ms = rng.randrange(2_000, 10_000), rng.choice((2_000, 10_000, 30_000, FOR_GOOD_MS))
    return [Fault(at_ms=at_ms, kind="hanging disk", host=rng.choice(brokers), lasting_ms=lasting_ms)]
