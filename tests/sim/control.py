"""A cluster without logs: registrations, controllers, and leaders that change the ISR, over the store.

Three hosts run the parts of `cluster/` and nothing else of a broker. A run is therefore fast, and consists mostly of
elections. A run must keep three rules. The elections in the store are right (bad-election). No broker takes its
registration as valid after others have seen it end (false-commit). After the faults every partition has a live leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

import msgspec
from semel_broker import world as broker_world
from semel_broker.cluster import reassignments, records
from semel_broker.cluster.controller import Controller
from semel_broker.cluster.etcd.messages import PutRequest, RequestOp, TxnRequest
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import PartitionView
from semel_broker.cluster.records import BrokerRecord, PartitionState, TopicRecord
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.steps import Step
from semel_broker.cluster.store import Expect, Put, StoreError, StoreUnavailableError
from semel_broker.config.loading import BrokerConfig

from sim import faults
from sim.broker import SimBroker, SimLogger
from sim.checkers.anomaly import Anomaly, few
from sim.checkers.elections import Register
from sim.cluster import NAMES_OF, STORE
from sim.cluster_faults import CLUSTER_FAULTS
from sim.faults import KINDS, Fault, FaultTargets
from sim.host import Host
from sim.network import NetworkWeather
from sim.run import RunVerdict
from sim.store import NAMESPACE, SimStore
from sim.swarm import lasting
from sim.world import NS, SimWorld, StuckHost

WORK_FOR_NS = 60 * NS
SETTLED_WITHIN_NS = 60 * NS
TOPICS = 4
IMBALANCE_CHECK_S = 5
ALONE = ("kill broker", "power loss", "terminate broker", "pause broker", "clock", "slow disk")
"""Faults of single brokers that have an effect without logs."""

Listener = Callable[[int, str, str], None]
"""See `SimWorld`."""


class ControlNode:
    """The parts of one running broker process."""

    def __init__(self, registration: Registration, feed: Feed, controller: Controller) -> None:
        self.registration, self.feed, self.controller = registration, feed, controller


class ControlBroker(SimBroker):
    """A broker process that consists of registration, feed and controller, without a Node."""

    def __init__(self, host: Host, node_id: int, store: SimStore, ttl_ms: int, *, is_synced: bool) -> None:
        super().__init__(host)
        self.control_settings = BrokerConfig(
            node_id=node_id,
            broker_session_timeout_ms=ttl_ms,
            leader_imbalance_check_interval_seconds=IMBALANCE_CHECK_S,
        )
        self.store, self._is_synced = store, is_synced
        self._control: ControlNode | None = None

    @property
    def control(self) -> ControlNode | None:
        """The parts of the running process; None until they are open."""
        return self._control if self.host.is_running else None

    async def _main(self, host: Host) -> None:
        self._control = None
        self._stop = asyncio.get_running_loop().create_future()
        world = broker_world.World(
            now_ms=host.now_ms, monotonic=host.monotonic, rng=host.rng, disk=host.disk, log=SimLogger(host)
        )
        store = EtcdStore([self.store.url], namespace=NAMESPACE, world=world)
        feed = await self._open(store, world)
        registration = Registration(world, self.control_settings, store, feed)
        await self._open_more(world, store, feed, registration)
        controller = Controller(world, self.control_settings, store, feed, registration)
        controller.start()
        me = self.control_settings.node_id
        self._control = control = ControlNode(registration, feed, controller)
        directory_id = f"directory of {me}"
        await registration.register(
            BrokerRecord(
                node_id=me,
                incarnation="",
                directory_id=directory_id,
                host=host.name,
                port=9092,
                is_synced=self._is_synced,
            )
        )
        host.world.note(host.name, "serves")
        keeping = asyncio.get_running_loop().create_task(self._change(control, store, host.rng))
        keeping.add_done_callback(self._has_changed)
        await self._stop
        keeping.cancel()
        await registration.leave()
        await controller.close()
        await self._close_more()
        await feed.close()
        await store.close()
        host.world.note(host.name, "stopped")

    async def _open_more(
        self, world: broker_world.World, store: EtcdStore, feed: Feed, registration: Registration
    ) -> None:
        """For subclasses: open more parts of the broker before it registers."""

    async def _close_more(self) -> None:
        """For subclasses: close these parts after the broker has left the cluster."""

    async def _open(self, store: EtcdStore, world: broker_world.World) -> Feed:
        while True:
            try:
                return await Feed.open(store, world.log)
            except StoreUnavailableError:
                await asyncio.sleep(0.2)

    def _has_changed(self, keeping: asyncio.Task[None]) -> None:
        if not keeping.cancelled() and (error := keeping.exception()) is not None:
            self.host.world.fail(self.host.name, "the task that changes partitions has failed", error)

    async def _change(self, control: ControlNode, store: EtcdStore, rng: Random) -> None:
        """Change partitions as brokers and operators do: shrink and grow ISRs, start and cancel reassignments."""
        while True:
            await asyncio.sleep(rng.expovariate(4))
            views = list(control.feed.image.partitions())
            if not views:
                continue
            step = moved(control, rng.choice(views), rng) if rng.random() < 0.1 else None
            led = [view for view in views if view.state.leader == control.registration.node_id]
            if step is None and led and control.registration.is_valid():
                step = isr_changed(control, rng.choice(led), rng)
            if step is None:
                continue
            try:
                revision = await store.transact(step.expects, step.changes)
            except StoreError:
                continue
            if revision is not None:
                await control.feed.reached(revision)


def isr_changed(control: ControlNode, view: PartitionView, rng: Random) -> Step | None:
    """A step that removes a follower from the ISR or adds it, with a real leader's expectations. None: no change."""
    image, me = control.feed.image, view.state.leader
    others = [each for each in view.replicas if each != me]
    if not others:
        return None
    isr, who = list(view.state.isr), rng.choice(others)
    registered = image.registration(who)
    expects = [Expect(view.key, view.revision), Expect(records.broker_key(me), control.registration.epoch)]
    if who in isr:
        if rng.random() < 0.7:
            return None
        isr.remove(who)
    elif registered is not None and image.is_admitted(who):
        isr.append(who)
        expects.append(Expect(records.broker_key(who), registered.revision))
    else:
        return None
    state = PartitionState(me, view.state.leader_epoch, isr)
    return Step(expects=tuple(expects), changes=(Put(view.key, msgspec.json.encode(state)),), what="isr")


def moved(control: ControlNode, view: PartitionView, rng: Random) -> Step | None:
    """A step that moves a partition to two or three random brokers, or cancels its reassignment. None if impossible."""
    image = control.feed.image
    topic = image.by_id[view.topic_id]
    is_given_up = view.reassignment is not None and rng.random() < 0.3
    target = None if is_given_up else rng.sample((1, 2, 3), rng.choice((2, 3)))
    step, _ = reassignments.alter(image, topic, {view.index: target})
    return step


class ControlRun:
    """One run of a seed. `wrong`, `believed`: findings as text."""

    about = "elections"
    broker: type[ControlBroker] = ControlBroker

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        self.seed = seed
        rng = Random(f"control/{seed}")
        self.world = world = SimWorld(seed, listener)
        world.network.weather = NetworkWeather(latency_ms=rng.choice(((0.1, 2.0), (1.0, 40.0))))
        self.store = SimStore(world.host(STORE), keeps=rng.choice((5, 50, 1_000)))
        names = NAMES_OF[3]
        ttl_ms, is_synced = rng.choice((2_000, 3_000, 6_000)), rng.random() < 0.7
        self.brokers: Mapping[str, ControlBroker] = {
            name: self.broker(world.host(name), number, self.store, ttl_ms, is_synced=is_synced)
            for number, name in enumerate(names, 1)
        }
        self.targets = FaultTargets(world, self.brokers, lambda name: None, self.store)
        self.faults = list(draw(rng, names))
        self.wrong: list[str] = []
        self.believed: list[str] = []

    def judged(self) -> RunVerdict:
        """Execute the run and give the verdict."""
        self.execute()
        elected = list(Register().read(self.store.told()))
        return RunVerdict(
            seed=self.seed,
            digest=self.world.digest(),
            anomalies=[
                *([Anomaly("false-commit", few(self.believed))] if self.believed else []),
                *([Anomaly("bad-election", few(elected))] if elected else []),
            ],
            failures=[*self.wrong, *map(str, self.world.failures)],
        )

    def execute(self) -> list[str]:
        """Run, and return all findings as text."""
        world = self.world
        try:
            self.store.boot()
            for broker in self.brokers.values():
                broker.boot()
                world.run(world.now_ns + NS // 100)
            self._create_topics()
            faults.schedule(self.faults, self.targets)
            world.run(world.now_ns + WORK_FOR_NS, self._look)
            faults.heal(self.targets)
            world.run(world.now_ns + WORK_FOR_NS, self._look)
            self._rest()
            if not world.run(world.now_ns + SETTLED_WITHIN_NS, self._is_well):
                self.wrong.append("the cluster is not healthy at the end")
        except StuckHost as error:
            self.wrong.append(str(error))
        finally:
            world.close()
        return [*self.wrong, *self.believed, *Register().read(self.store.told()), *map(str, world.failures)]

    def _create_topics(self) -> None:
        """Write the topics directly into the store, as soon as the brokers are registered."""
        world = self.world
        world.run(world.now_ns + 10 * NS, self._is_well)
        for number in range(TOPICS):
            replicas = [[(number + place) % 3 + 1 for place in range(3)] for _ in range(2)]
            topic = TopicRecord(f"t{number}", f"id-{number}", replicas, {})
            put = PutRequest(f"{NAMESPACE}{records.topic_key(topic.name)}".encode(), msgspec.json.encode(topic))
            self.store.etcd.txn(TxnRequest([], [RequestOp(put)]))

    def _rest(self) -> None:
        """For subclasses: stop changes before the final check."""

    @property
    def nodes(self) -> list[ControlNode]:
        """The running nodes."""
        return [node for broker in self.brokers.values() if (node := broker.control) is not None]

    def _look(self) -> bool:
        """Check that each valid registration is the one in the store. True stops the run: something was found."""
        for node in self.nodes:
            registration = node.registration
            if registration.is_valid():
                key = f"{NAMESPACE}{records.broker_key(registration.node_id)}".encode()
                there = self.store.etcd.revision_of(key)
                if there != registration.epoch:
                    self.believed.append(
                        f"{self.world.now_ns / NS:.6f} broker {registration.node_id} takes its registration as valid: "
                        f"{registration.epoch}; the store has {there}"
                    )
        return bool(self.believed)

    def _is_well(self) -> bool:
        nodes = self.nodes
        if len(nodes) < len(self.brokers) or sum(node.controller.is_active for node in nodes) != 1:
            return False
        images = [node.feed.image for node in nodes]
        return all(
            len(image.live()) == len(nodes) and all(image.is_admitted(view.state.leader) for view in image.partitions())
            for image in images
        )


def draw(rng: Random, brokers: Sequence[str]) -> Iterator[Fault]:
    """The faults of one run, drawn from the seed."""
    kinds = {**{name: KINDS[name] for name in ALONE}, **CLUSTER_FAULTS}
    share = rng.choice((0.15, 0.3, 0.6))
    for name, kind in kinds.items():
        if rng.random() >= share:
            continue
        mean_ms = rng.uniform(*kind.every_ms)
        at_ms = rng.expovariate(1 / mean_ms)
        while at_ms < 50_000:
            host = STORE if kind.meets == "store" else rng.choice(brokers)
            lasting_ms = lasting(rng, *kind.lasting_ms)
            yield Fault(at_ms=int(at_ms), kind=name, host=host, lasting_ms=lasting_ms, args=kind.args(rng, ""))
            at_ms += lasting_ms + rng.expovariate(1 / mean_ms)
