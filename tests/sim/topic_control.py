"""A cluster without clients in which topics are created and deleted, to check that all brokers follow the changes.

As `control`, with the topics of every broker. All brokers create, delete, grow, configure and move topics of a few
names at the same time, under the same faults. At the end every broker must know exactly the topics of the store, have
its own replicas in their roles, and have no directory of another topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import cast

from semel_broker import world as broker_world
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.store import StoreError
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import load
from semel_broker.partitions.partition import Role
from semel_broker.topics.topics import Topics
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import Record, build_batch
from semel_storage import checkpoints
from semel_storage.log_directory import STRAY_SUFFIX, LogDirectory

from sim.broker import DATA
from sim.control import ControlBroker, ControlNode, ControlRun, Listener
from sim.disk import DiskWeather
from sim.world import NS

NAMES = ("a", "b", "c.d", "c_d", "e")
"""Few names, so that a name is used again while the deletion of the former topic is still in progress."""
BATCH = build_batch([Record(0, 0, None, b"x")])
LOOK_EVERY_NS = NS // 20
HANDS = 3
"""Tasks on each broker that change topics."""
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


class TopicBroker(ControlBroker):
    """A broker with topics. `is_at_rest`: its tasks change nothing any more."""

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
        await asyncio.gather(super()._change(control, store, rng), *asked)

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
        return super()._look() or bool(self.wrong)

    def _is_well(self) -> bool:
        """Also: nothing is left of deleted topics."""
        return super()._is_well() and not any(
            broker.known is None or list(strange(broker.known)) or list(left(broker.known)) for broker in self._own()
        )

    def _own(self) -> list[TopicBroker]:
        return [cast(TopicBroker, broker) for broker in self.brokers.values()]


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
