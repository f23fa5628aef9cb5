"""A cluster without clients in which topics are created and deleted, to check that all brokers follow the changes.

As `control`, with the topics of every broker. All brokers create, delete, grow, configure and move topics of a few
names at the same time, under the same faults. At the end every broker must know exactly the topics of the store, have
its own replicas in their roles, and have no directory of another topic.

An operator changes a topic and a quota of its own, through one broker after the other. A request that it gives up, or
whose broker dies, may still be carried out. Once a later request about the same thing is answered, it must not be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import cast

import msgspec
from semel_broker import world as broker_world
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.records import QuotaRecord, TopicRecord, quota_key, topic_key
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.store import StoreError
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import load
from semel_broker.partitions.partition import Role
from semel_broker.security.quota_store import QuotaStore
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_broker.topics.topics import Topics
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.quotas import PRODUCER_BYTE_RATE, QuotaEntity
from semel_protocol.records import Record, build_batch
from semel_storage import checkpoints
from semel_storage.log_directory import STRAY_SUFFIX, LogDirectory

from sim.broker import DATA, SimLogger
from sim.control import ControlBroker, ControlNode, ControlRun, Listener
from sim.disk import DiskWeather
from sim.faults import Fault
from sim.store import NAMESPACE, SimStore
from sim.world import NS

MINE, SETTING = "mine", "retention.ms"
"""The topic of the operator, and the setting that it changes."""
OPERATED = QuotaEntity(user="operated")
TOPIC_KEY, QUOTA_KEY = topic_key(MINE), quota_key(OPERATED)
NAMES = ("a", "b", "c.d", "c_d", "e")
"""Few names, so that a name is used again while the deletion of the former topic is still in progress."""
BATCH = build_batch([Record(0, 0, None, b"x")])
LOOK_EVERY_NS = NS // 20
HANDS = 3
"""The number of tasks on each broker that change topics."""
REFUSALS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class Operator:
    """The state of the topics as an operator knows it from the answers of all brokers. One request is under way at a
    time.

    `known`: for each key the part that the operator changes, as of the last answered request about it, or None. A key
    is missing while the outcome of a request is unknown.
    """

    def __init__(self, store: SimStore) -> None:
        self.known: dict[str, str | float | None] = {}
        self.answers = self.unanswered = 0
        self.wrong: list[str] = []
        self._store = store
        self._is_under_way: Callable[[], bool] = lambda: False

    @property
    def is_busy(self) -> bool:
        return self._is_under_way()

    def begin(self, is_under_way: Callable[[], bool]) -> None:
        """A request is sent. `is_under_way`: whether the process that carries it out lives and has not answered."""
        self._is_under_way = is_under_way

    def ask(self, key: str) -> None:
        self.known.pop(key, None)
        self.unanswered += 1

    def answered(self, key: str, what: str, *, exists: bool) -> None:
        """The request about this key was answered: the topic or setting exists, or it does not."""
        self.answers += 1
        self.unanswered -= 1
        self.known[key] = there = self._there(key)
        if (there is not None) != exists:
            self.wrong.append(f"the operator was answered {what} for {key}, and the store has {there!r}")

    def late_changes(self) -> Iterator[str]:
        """Differences between the store and its state at the last answers, while no request is under way."""
        for key, known in self.known.items() if not self.is_busy else ():
            if (there := self._there(key)) != known:
                yield f"{key} was {known!r} when the operator was answered, and is {there!r}"

    def _there(self, key: str) -> str | float | None:
        name = f"{NAMESPACE}{key}".encode()
        if not self._store.etcd.revision_of(name):
            return None
        value = self._store.etcd.value_of(name)
        if key == TOPIC_KEY:
            return msgspec.json.decode(value, type=TopicRecord).configs.get(SETTING, "")
        return msgspec.json.decode(value, type=QuotaRecord).values[PRODUCER_BYTE_RATE]


class TopicBroker(ControlBroker):
    """A broker with topics. `is_at_rest`: its tasks change nothing any more. `operator`: shared by all brokers."""

    operator: Operator
    topics: Topics | None = None
    is_at_rest = False

    def boot(self) -> None:
        """Start the process, without the topics of the process before."""
        if not self.host.is_running:
            self.topics = None
        super().boot()

    async def _open_more(
        self, world: broker_world.World, store: EtcdStore, feed: Feed, registration: Registration
    ) -> None:
        me = self.control_settings.node_id
        config = load(overrides=[f"node.id={me}", f"host.name={self.host.name}", f"etcd.endpoints={self.store.url}"])
        self._logs = LogDirectory.open(world.disk, DATA, node_id=me, cluster_id="", directory_id=f"directory of {me}")
        self.topics = await Topics.open(
            world=world, config=config, store=store, feed=feed, logs=self._logs, lease=registration
        )
        registration.on_admitted.append(self.topics.local.take_roles)
        registration.on_lost.append(self.topics.local.resign)

    @property
    def known(self) -> Topics | None:
        """The topics of the running process; None until they are open."""
        return self.topics if self.host.is_running else None

    async def _close_more(self) -> None:
        topics, self.topics = self.topics, None  # so that no check reads topics that are closing
        assert topics is not None
        await topics.close()
        self._logs.close()

    async def _change(self, control: ControlNode, store: EtcdStore, rng: Random) -> None:
        asked = [self._ask(rng) for _ in range(HANDS)]
        quotas = QuotaStore(store, control.feed, ClientQuotas(), SimLogger(self.host))
        await asyncio.gather(super()._change(control, store, rng), self._operate(quotas, rng), *asked)

    async def _operate(self, quotas: QuotaStore, rng: Random) -> None:
        """Carry out the operator's requests that go to this broker."""
        while not self.is_at_rest:
            await asyncio.sleep(rng.expovariate(1))
            if self.operator.is_busy:
                continue
            under_way, incarnation = [True], self.host.incarnation
            self.operator.begin(partial(self._works_on, under_way, incarnation))
            try:
                await asyncio.wait_for(self._one_of_operator(quotas, rng), rng.choice((0.2, 1.0, 4.0)))
            except (TimeoutError, StoreError):
                pass  # given up: the store may carry it out
            finally:
                under_way.clear()

    def _works_on(self, under_way: list[bool], incarnation: int) -> bool:
        return bool(under_way) and self.host.is_running and self.host.incarnation == incarnation

    async def _one_of_operator(self, quotas: QuotaStore, rng: Random) -> None:
        """One request of the operator: its refusals are answers, too."""
        operator, topics, value = self.operator, self.topics, rng.randrange(1, 9)
        assert topics is not None
        what = rng.choice(("create", "delete", "configure", "set quota", "remove quota"))
        key = QUOTA_KEY if "quota" in what else TOPIC_KEY
        exists = what in ("create", "configure", "set quota")
        operator.ask(key)
        try:
            match what:
                case "create":
                    await topics.create(
                        NewTopic(name=MINE, partitions=1, replication_factor=1, configs={SETTING: str(value)})
                    )
                case "delete":
                    await topics.delete(MINE)
                case "configure":
                    await topics.alter_configs(MINE, lambda configs: {**configs, SETTING: str(value)})
                case "set quota":
                    await quotas.alter(OPERATED, [(PRODUCER_BYTE_RATE, float(value), False)])
                case "remove quota":
                    await quotas.alter(OPERATED, [(PRODUCER_BYTE_RATE, 0.0, True)])
        except KafkaError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                return
            if error.code not in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise
            what, exists = error.code.name, error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        operator.answered(key, what, exists=exists)

    async def _ask(self, rng: Random) -> None:
        """Change one topic after the other through this broker."""
        while not self.is_at_rest:
            await asyncio.sleep(rng.expovariate(2))
            try:
                await self._one(rng)
            except StoreError:
                continue
            except KafkaError as error:
                if error.code not in REFUSALS:
                    raise

    async def _one(self, rng: Random) -> None:
        topics, name = self.topics, rng.choice(NAMES)
        assert topics is not None
        match rng.choice(("create", "create", "delete", "grow", "configure", "write")):
            case "create":
                factor = rng.choice((1, 2, 3))
                replicas = {index: rng.sample((1, 2, 3), factor) for index in range(rng.choice((1, 2)))}
                await topics.create(NewTopic(name=name, assignments=replicas))
            case "delete":
                await topics.delete(name)
            case "grow":
                await topics.add_partitions(name, topics.required(name).partition_count + 1)
            case "configure":
                await topics.alter_configs(name, lambda configs: {**configs, "retention.ms": str(rng.randrange(1, 9))})
            case "write":
                for partition in topics.here():
                    if partition.topic == name and partition.is_leading:
                        partition.append(bytearray(BATCH), header=read_header(BATCH))  # not waiting for its sync
                    elif partition.topic == name:
                        partition.open()  # its directory is there from now on


class TopicRun(ControlRun):
    """One run of a seed. `wrong`: findings."""

    about = "topics"
    broker = TopicBroker
    _looked_ns = 0

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        super().__init__(seed, listener)
        self.operator = Operator(self.store)
        for broker in self._own():
            broker.operator = self.operator
        if self.world.random("disks").random() < 0.5:  # partitions always close slowly
            self.faults = [fault for fault in self.faults if fault.kind != "slow disk"]
            for broker in self._own():
                broker.host.disk.weather = DiskWeather(sync_ms=(50.0, 2_000.0))

    def _create_topics(self) -> None:
        """The tasks create the topics."""
        self.world.run(self.world.now_ns + 10 * NS, self._is_well)

    def _rest(self) -> None:
        for broker in self._own():
            broker.is_at_rest = True

    def _look(self) -> bool:
        """Check that the topics of each broker agree with its image."""
        if self.world.now_ns >= self._looked_ns + LOOK_EVERY_NS:
            self._looked_ns = self.world.now_ns
            for broker in self._own():
                if (known := broker.known) is not None:
                    self.wrong += [
                        f"{self.world.now_ns / NS:.6f} {broker.host.name}: {what}" for what in strange(known)
                    ]
            self.wrong += [*self.operator.wrong, *self.operator.late_changes()]
        return super()._look() or bool(self.wrong)

    def _is_well(self) -> bool:
        """Also check that no files of deleted topics are left."""
        return super()._is_well() and not any(
            broker.known is None or list(strange(broker.known)) or list(left(broker.known)) for broker in self._own()
        )

    def _own(self) -> list[TopicBroker]:
        return [cast(TopicBroker, broker) for broker in self.brokers.values()]


class SlowStoreRun(TopicRun):
    """A run with short times in which the store takes seconds for a write that it has received. Later ones are quick
    again, so a request that timed out is carried out behind a newer answer unless the product prevents it."""

    about = "topics with a slow store"

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        super().__init__(seed, listener)
        self.faults = [
            Fault(at_ms=at_ms, kind="slow store", host="store", lasting_ms=300, args={"factor": 1_000})
            for at_ms in range(500, 58_000, 1_500)
        ]


def strange(topics: Topics) -> Iterator[str]:
    """Differences between a broker's topics and partitions and its image."""
    image, me = topics.feed.image, topics._config.node_id
    there = {kept.value.name: kept.value for kept in image.topics.values()}
    known = {topic.name: topic.record for topic in topics._by_name.values()}
    if known != there:
        yield f"knows {known}, the image has {there}"
        return
    if sorted(topic.topic_id for topic in topics._by_name.values()) != sorted(topics._by_id):
        yield "the topics by id differ from the topics by name"
    if topics._partition_count != sum(len(record.replicas) for record in there.values()):
        yield f"counts {topics._partition_count} partitions"
    for view in image.partitions():
        partition = topics.local.get(view.topic_id, view.index)
        if me not in view.replicas:
            if partition is not None:
                yield f"has {view.topic}-{view.index}, which belongs to {view.replicas}"
        elif partition is None:
            if len(view.replicas) > 1 and not topics._is_being_removed(view.topic, view.index):
                yield f"has no replica of {view.topic}-{view.index}"
        elif partition.role is not Role.NONE and len(view.replicas) > 1 and partition.leader != view.state.leader:
            yield f"{view.topic}-{view.index} is led by {view.state.leader}, not {partition.leader}"
    for partition in topics.here():
        if image.partition(partition.topic_id, partition.index) is None:
            yield f"has {partition.topic}-{partition.index} of {partition.topic_id}, which does not exist"


def left(topics: Topics) -> Iterator[str]:
    """Directories and removals left over from deleted or moved partitions, and set-aside directories of live topics."""
    image, me = topics.feed.image, topics._config.node_id
    yield from (f"removes {key}" for key in topics._removals)
    yield from (
        f"has not confirmed the deletion of {topic_id} on {node_id}"
        for topic_id, node_id in image.deletions
        if node_id == me
    )
    logs = topics.local._logs
    for name, index in logs.partitions():
        topic = topics.get(name)
        view = None if topic is None else image.partition(topic.record.topic_id, index)
        if topic is None or view is None or me not in view.replicas or logs.topic_id(name, index) != topic.topic_id:
            yield f"has a directory {name}-{index}"
    # A broker that was away sets aside the directory of a replica that was moved and then deleted: no loss.
    for name in logs.disk.listdir(logs.root):
        if name.endswith(STRAY_SUFFIX) and _id_in(logs, name) in topics._by_id:
            yield f"has set {name} aside, whose topic exists"


def _id_in(logs: LogDirectory, directory: str) -> bytes | None:
    """The id of the topic for which a directory was made."""
    return checkpoints.read_topic_id(logs.disk, f"{logs.root}/{directory}/{checkpoints.PARTITION_METADATA}")
