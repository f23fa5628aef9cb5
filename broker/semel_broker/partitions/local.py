"""The replicas on this broker: makes them, gives them roles as the cluster assigns them, and removes their logs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.checkpoints import PARTITION_METADATA, RECOVERY_POINT, CorruptCheckpoint
from semel_storage.disk.disk import MissingFile
from semel_storage.log.log import Log
from semel_storage.log_directory import LogDirectory, NotRemoved, WrongDirectory, partition_directory
from semel_storage.segments.log_config import LogConfig

from semel_broker.cluster.image import Image, PartitionView, Place
from semel_broker.cluster.records import TopicRecord
from semel_broker.cluster.topic_plan import text_of_id
from semel_broker.config.loading import BrokerConfig
from semel_broker.partitions.disk_hangs import DiskHangs
from semel_broker.partitions.disk_space import DiskSpace
from semel_broker.partitions.flusher import Flusher
from semel_broker.partitions.partition import Lease, Partition, Role
from semel_broker.partitions.replicas import Replicas
from semel_broker.scheduling.turns import Slices
from semel_broker.world import World

Listener = Callable[[Partition], None]
Owner = Callable[[str, int, bytes | None], PartitionView | None]
"""(topic, index, id in the directory) -> the partition that owns the directory, or None. Raises WrongDirectory."""


class Found(msgspec.Struct, frozen=True):
    """A partition of this broker that was written before. `problem`: why its files cannot be used; "": they can."""

    view: PartitionView
    problem: str = ""


class LocalPartitions:
    """By topic id and index. `listeners` are called with each partition whose role, leader or leader epoch changed, and
    with each that is retired.

    `lease`: while it is not valid, this broker leads and follows nothing. None: the broker is not in a cluster.
    """

    def __init__(
        self, world: World, config: BrokerConfig, image: Image, logs: LogDirectory, lease: Lease | None
    ) -> None:
        self.listeners: list[Listener] = []
        self.on_offline: list[Callable[[], None]] = []
        """Called after a partition went offline."""
        self._world = world
        self._config = config
        self._image = image
        self._logs = logs
        self._lease = lease
        self.flusher = Flusher(world.disk)
        self.hangs = DiskHangs(world, config)
        self.space = DiskSpace(world, config, logs.root, self.hangs)
        self._partitions: dict[Place, Partition] = {}
        self._has_roles = lease is None
        self.is_serving = False
        """The start is over: the opening of a log may not wait for the disk."""

    # --- looking up ---

    def get(self, topic_id: str, index: int) -> Partition | None:
        """The partition, or None if it was not made yet."""
        return self._partitions.get((topic_id, index))

    def all(self) -> list[Partition]:
        """All partitions that were made, by topic and index."""
        return sorted(self._partitions.values(), key=lambda partition: (partition.topic, partition.index))

    def of(self, topic_id: str) -> list[Partition]:
        """The partitions of one topic that were made, by index."""
        found = [partition for (owner, _), partition in self._partitions.items() if owner == topic_id]
        return sorted(found, key=lambda partition: partition.index)

    def offline(self) -> dict[str, list[int]]:
        """The partitions whose files cannot be used, by topic id."""
        found: dict[str, list[int]] = {}
        for partition in self.all():
            if partition.is_offline:
                found.setdefault(partition.topic_id, []).append(partition.index)
        return found

    def make(self, view: PartitionView, config: Callable[[], LogConfig], *, opens: bool) -> Partition:
        """The partition. Raises NOT_LEADER_OR_FOLLOWER if this broker has no replica of it.

        `opens`: its log was written before, and is opened before the partition has a role: for a listener it would be
        empty. Raises KAFKA_STORAGE_ERROR if no more files can be opened; then it is not made.
        """
        known = self._partitions.get(view.place)
        if known is not None:
            return known
        if self._config.node_id not in view.replicas:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"this broker has no replica of {view.topic}-{view.index}, brokers {list(view.replicas)} have one: "
                "refresh the metadata",
            )

        def open_log() -> Log:
            now_ms = self._world.now_ms()
            topic_id = TopicRecord(view.topic, view.topic_id, [], {}).id_bytes
            return self._logs.open_log(
                view.topic, view.index, config(), now_ms=now_ms, topic_id=topic_id, settles_later=self.is_serving
            )

        partition = self._partitions[view.place] = Partition(
            view.topic,
            view.index,
            open_log=open_log,
            world=self._world,
            fsync=self._config.durability == "fsync",
            flusher=self.flusher,
            topic_id=view.topic_id,
            role=Role.NONE,
            lease=self._lease,
            space=self.space,
            on_offline=self._went_offline,
        )
        if opens:
            try:
                partition.open()
            except KafkaError:
                if not partition.is_offline:
                    del self._partitions[view.place]
                    raise
        if self._has_roles:
            self._give_role(partition, view)
        return partition

    def is_interrupted(self, view: PartitionView) -> bool:
        """`LogDirectory.is_interrupted`."""
        return self._logs.is_interrupted(view.topic, view.index)

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was clean."""
        return self._logs.was_clean

    def size_of(self, topic: str, index: int) -> int:
        """Bytes of a log that is not open; 0 if its files cannot be read, which its opening reports."""
        try:
            return self._logs.size_of(topic, index)
        except (OSError, MissingFile):
            return 0

    # --- roles ---

    def take_roles(self) -> None:
        """This broker was admitted: it takes the roles that the cluster assigns, from now on."""
        self._has_roles = True
        for partition in self.all():
            self.follow((partition.topic_id, partition.index))

    def resign(self) -> None:
        """The session of this broker is over: it leads and follows nothing until it is admitted again."""
        self._has_roles = self._lease is None
        if self._has_roles:
            return
        for partition in self.all():
            partition.resign()
            self._notify(partition)

    def follow(self, place: Place) -> None:
        """The state of a partition has changed in the cluster."""
        partition, view = self._partitions.get(place), self._image.partition(*place)
        if partition is not None and view is not None and self._has_roles and not partition.is_retired:
            self._give_role(partition, view)

    def _give_role(self, partition: Partition, view: PartitionView) -> None:
        state, me = view.state, self._config.node_id
        if len(view.replicas) > 1 and state.leader_epoch < partition.leader_epoch:
            self._world.log.error(
                "older_leader_epoch_ignored",
                topic=view.topic,
                partition=view.index,
                told=state.leader_epoch,
                known=partition.leader_epoch,
            )
            return
        partition.is_whole = set(view.replicas) <= set(state.isr)
        if state.leader != me:
            assigned = (Role.FOLLOWER, state.leader, state.leader_epoch)
            if (partition.role, partition.leader, partition.leader_epoch) == assigned:
                return
            partition.become_follower(state.leader, state.leader_epoch)
        elif self._is_led_already(partition, view):
            if partition.replicas is not None:
                partition.replicas.assign(view.replicas, self._now_ms())
                partition.update_isr(state.isr)
            return
        else:
            partition.become_leader(max(state.leader_epoch, partition.leader_epoch), self._replicas(partition, view))
        self._notify(partition)

    def _is_led_already(self, partition: Partition, view: PartitionView) -> bool:
        """Whether it is led in this epoch already. An only replica may be ahead: other brokers have written its log."""
        if not partition.is_leading or (partition.replicas is None) is not (len(view.replicas) == 1):
            return False
        return partition.leader_epoch >= view.state.leader_epoch

    def _replicas(self, partition: Partition, view: PartitionView) -> Replicas | None:
        if len(view.replicas) == 1:
            return None
        return Replicas(
            self._config.node_id,
            view.replicas,
            view.state.isr,
            epoch_start_offset=partition.end_offset,
            now_ms=self._now_ms(),
        )

    def _now_ms(self) -> int:
        return int(self._world.monotonic() * 1000)

    def _went_offline(self) -> None:
        for listener in self.on_offline:
            listener()

    def _notify(self, partition: Partition) -> None:
        for listener in self.listeners:
            listener(partition)

    # --- logs ---

    def recover(self, wanted: Owner) -> list[Found]:
        """The partitions of this broker that have a directory, or had one that is missing.

        A directory of no known partition is set aside, not deleted: if the store was lost, the records remain. The
        problem of one directory concerns its partition alone.
        """
        found, has_forgotten = [], False
        for (name, index), point in self._logs.missing().items():
            view, _ = self._owner(name, index, None, wanted)
            if view is not None and self._config.node_id in view.replicas:
                found.append(Found(view, self._missing(name, index, point)))
            else:
                has_forgotten |= self._logs.forget(name, index)
        if has_forgotten:
            self._logs.save_checkpoints()
        for name, index in self._logs.partitions():
            try:
                view, problem = self._owner(name, index, self._logs.topic_id(name, index), wanted)
            except (CorruptCheckpoint, OSError) as error:
                view, problem = wanted(name, index, None), str(error)
            if view is not None and self._config.node_id in view.replicas:
                found.append(Found(view, problem))
            elif view is not None and not problem:
                self._delete_log(name, index)  # its replica was moved to other brokers
            elif problem:
                self._set_aside(name, index)
            else:
                self._clear_unowned(name, index)
        return found

    def _clear_unowned(self, name: str, index: int) -> None:
        """A directory of no known topic is set aside. One that was never durable and has no records is deleted: a power
        loss left it, of a topic that was deleted since.
        """
        try:
            was_durable = not self._logs.was_never_durable(name, index)
            is_empty = not was_durable and not self._logs.has_records(name, index)
        except OSError:
            was_durable, is_empty = True, False
        if is_empty:
            self._delete_log(name, index)
        else:
            self._set_aside(name, index, was_durable=was_durable)

    @staticmethod
    def _owner(name: str, index: int, topic_id: bytes | None, wanted: Owner) -> tuple[PartitionView | None, str]:
        """The partition that owns a directory, or that its name belongs to, and the problem of the directory."""
        try:
            return wanted(name, index, topic_id), ""
        except WrongDirectory as error:
            return wanted(name, index, None), str(error)

    def _missing(self, name: str, index: int, point: int) -> str:
        root = self._logs.root
        return (
            f"{root}/{partition_directory(name, index)} is missing: the directory of a partition of this broker that "
            f"was durable up to offset {point}. Restore it from a copy of the data directory. To begin it empty (or "
            f"with the records of other replicas), stop the broker and delete {root}/{RECOVERY_POINT}"
        )

    def check_owner(self, view: PartitionView) -> None:
        """The directory of this partition holds the id of an unknown topic: check that it may be set aside.

        In a cluster it may belong to a topic whose partition was moved to other brokers before the topic was deleted.
        It is set aside if a checksum confirms the id. Otherwise the id is damaged or the store has lost changes, and
        the partition would begin empty. Raises WrongDirectory.
        """
        if self._lease is not None and self._logs.has_checked_topic_id(view.topic, view.index):
            return
        path = f"{self._logs.root}/{partition_directory(view.topic, view.index)}"
        raise WrongDirectory(
            f"{path}/{PARTITION_METADATA} names a topic id that is neither known nor noted as deleted; the id of "
            f"{view.topic} is {view.topic_id}. Either the file is damaged, or the store that lists the topics is not "
            f"of the same time as {path}: restore both from one copy. If the records there are those of {view.topic}, "
            "delete the file, and it is written anew; to begin empty, move the directory away"
        )

    def _set_aside(self, name: str, index: int, *, was_durable: bool = True) -> None:
        """`was_durable`: False for records without a topic id, which a power loss took before any was acknowledged."""
        try:
            aside = self._logs.set_aside(name, index, unique=self._unique())
        except (OSError, MissingFile) as error:
            self._world.log.error(
                "stray_partition_not_set_aside",
                topic=name,
                partition=index,
                directory=f"{self._logs.root}/{partition_directory(name, index)}",
                error=str(error),
                do="it belongs to no topic, and is not used: move it to another directory",
            )
        else:
            tell = self._world.log.error if was_durable else self._world.log.warning
            tell("stray_partition_set_aside", topic=name, partition=index, directory=aside)

    def _delete_log(self, name: str, index: int) -> None:
        with suppress(NotRemoved):  # it is logged, and the next start tries it again
            self._logs.delete_log(name, index, unique=self._unique())

    def retire(self, partition: Partition) -> None:
        """Remove the partition from this broker at once. The caller closes it and deletes its log later."""
        del self._partitions[partition.topic_id, partition.index]
        partition.retire()
        self._notify(partition)

    async def delete_topic(self, record: TopicRecord, *, has_successor: bool, slices: Slices) -> None:
        """Delete the logs of a deleted topic, but not those of a new topic with the same name.

        A directory that has lost its topic id in a power cut belongs to the new topic, if there is one. One with a
        damaged topic id is set aside, if no new topic may own it. Raises NotRemoved.
        """
        own = await slices.finish(self._own_directories(record, has_successor=has_successor))
        deletion = self._logs.deletion(record.name, own, unique=record.topic_id)
        await slices.finish(deletion.forget())
        await self._logs.forgotten()
        await slices.finish(deletion.rename())
        await self._world.disk.settle(self._logs.root)
        await slices.finish(deletion.remove())

    def delete_topic_now(self, record: TopicRecord, *, has_successor: bool) -> None:
        """As `delete_topic`, but blocks; for the start of the broker."""
        steps = self._own_directories(record, has_successor=has_successor)
        own: list[int] = []
        while True:
            try:
                next(steps)
            except StopIteration as end:
                own = end.value
                break
        self._logs.delete_logs(record.name, own, unique=record.topic_id)

    def _own_directories(self, record: TopicRecord, *, has_successor: bool) -> Generator[int, None, list[int]]:
        """The partitions of a deleted topic whose directories are its own. Forgets those without a directory."""
        unnamed = None if not has_successor else record.id_bytes
        own = []
        for index in range(len(record.replicas)):
            if not self._logs.has_directory(record.name, index):
                self._logs.forget(record.name, index)
            elif self._is_of(record, index, has_successor, unnamed):
                own.append(index)
            yield 1
        return own

    def _is_of(self, record: TopicRecord, index: int, has_successor: bool, unnamed: bytes | None) -> bool:
        """Whether the directory of this partition is that of the deleted topic."""
        try:
            return self._logs.topic_id(record.name, index) in (record.id_bytes, unnamed)
        except OSError:
            return not has_successor  # it can be renamed, even if it cannot be read
        except CorruptCheckpoint:
            if not has_successor:
                self._set_aside(record.name, index)
            return False

    async def delete(self, partition: Partition) -> None:
        """Delete the log of a partition that is closed."""
        deletion = self._logs.deletion(partition.topic, [partition.index], unique=self._unique())
        for _ in deletion.forget():
            """One step."""
        await self._logs.forgotten()
        for _ in deletion.rename():
            """One step."""
        await self._world.disk.settle(self._logs.root)
        with suppress(NotRemoved):  # it is logged, and the next start tries it again
            for _ in deletion.remove():
                """One step."""
        self._world.log.info("replica_removed", topic=partition.topic, partition=partition.index)

    def _unique(self) -> str:
        return text_of_id(self._world.rng.randbytes(16)).replace("-", "_")
