"""The shards of a coordinator: one for each partition of its internal topic that this broker leads.

When this broker gains the leadership of a partition, the shard reads the partition in the background, and requests wait
for it up to a limit. When it loses the leadership, the shard is gone at once: requests that wait get NOT_COORDINATOR,
and the clients look for the next coordinator. Records that were written and not yet durable are up to the log: the next
leader reads them, or they are lost.
"""

from __future__ import annotations

from asyncio import Lock, Task, get_running_loop, sleep, wait
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition

from semel_broker.cluster.store import StoreError
from semel_broker.partitions.partition import Partition
from semel_broker.topics.topics import Topic, Topics
from semel_broker.world import Logger

RETRY_S = 0.1
"""Between attempts to read a partition that cannot be read now."""
TRANSIENT = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
"""Errors that pass: another role or a new session of this broker, or replicas, are on their way."""


class Stage(Enum):
    """FAILED: the records cannot be read, and an operator has to act. GONE: another broker coordinates the ids."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    GONE = "gone"


NEXT: dict[Stage, tuple[Stage, ...]] = {
    Stage.LOADING: (Stage.READY, Stage.FAILED, Stage.GONE),
    Stage.READY: (Stage.GONE,),
    Stage.FAILED: (Stage.GONE,),
    Stage.GONE: (),
}


class Shard:
    """One partition that this broker leads in one leader epoch, and the ids whose records lie there.

    Records of a former leader that this broker has may be committed. So the shard waits until all in-sync replicas have
    them, then reads. `reading`: one shard reads at a time, so that the event loop is free for requests to the others.

    A subclass overrides `_load`, which reads; `_after_load`, which resumes pending work; `_fail_waiting`, which answers
    the requests that wait; and `_finish`, which waits for writes under way when the broker stops. `kind`: for the log.
    """

    kind = "ids"

    def __init__(self, partition: Partition, log: Logger, reading: Lock) -> None:
        self.partition = partition
        self.index = partition.index
        self.epoch = partition.leader_epoch
        self.stage = Stage.LOADING
        self._log = log
        self._reading = reading
        self._why = ""
        self._error: KafkaError | None = None
        self._loading: Task[None] | None = None
        self.load_s = 0.0
        """The time that the load took."""

    @property
    def is_ready(self) -> bool:
        """Whether the shard can answer: all records are read, and this broker's lease as the leader is valid."""
        if self.stage is not Stage.READY:
            return False
        try:
            self.partition.check_leading()
        except KafkaError:
            return False
        return True

    @property
    def is_gone(self) -> bool:
        return self.stage is Stage.GONE

    def begin(self) -> None:
        """Begin to read the partition; returns at once. A partition without a log is ready at once, one that is offline
        has failed."""
        if self.partition.is_offline:
            self._why = self.partition.offline_reason
            self._enter(Stage.FAILED)
        elif self.partition.is_open:
            self._loading = get_running_loop().create_task(self._run(), name=f"load {self.kind} {self.index}")
        else:
            self._load_nothing()
            self._enter(Stage.READY)

    async def loaded(self, timeout_s: float) -> None:
        """Return once the shard can answer.

        Raises COORDINATOR_LOAD_IN_PROGRESS after `timeout_s`, COORDINATOR_NOT_AVAILABLE if the partition cannot be
        read, NOT_COORDINATOR.
        """
        if self._loading is not None and self.stage is Stage.LOADING:
            await wait((self._loading,), timeout=timeout_s)  # a cancelled request does not cancel the load
        if self.stage is Stage.LOADING:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"{self.partition.topic}-{self.index} is still being read: try again",
            )
        if self.stage is Stage.FAILED:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self.partition.topic}-{self.index} cannot be read: {self._why}: see the broker's log",
            )
        self.check()

    def check(self) -> None:
        """Raise NOT_COORDINATOR unless this broker's lease as the coordinator is valid.

        Raises COORDINATOR_NOT_AVAILABLE if this broker is stopping.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        try:
            self.partition.check_leading()
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{error}; look for the coordinator again") from None

    def lose(self, error: KafkaError) -> None:
        """Another broker leads the partition: answer every request with `error` now."""
        self._end(error)

    async def close(self, error: KafkaError) -> None:
        """The broker stops: answer every request with `error`; return once all writes are durable."""
        self._end(error)
        if self._loading is not None:
            await wait((self._loading,))
        await self._finish()

    # --- for subclasses ---

    async def _load(self) -> None:
        """Read all records; called again after a `TRANSIENT` KafkaError."""

    async def _after_load(self) -> None:
        """Resume the work that the records show, before the first request; called again as `_load`."""

    def _load_nothing(self) -> None:
        """The partition has no log: there is nothing to read."""

    def _fail_waiting(self, error: KafkaError) -> None:
        """Answer all requests that wait with `error`, and stop all timers."""

    async def _finish(self) -> None:
        """Return once all writes have taken effect."""

    # --- inside ---

    def _end(self, error: KafkaError) -> None:
        self._error = error
        self._enter(Stage.GONE)
        if self._loading is not None:
            self._loading.cancel()
        self._fail_waiting(error)

    def _enter(self, stage: Stage) -> None:
        assert stage in NEXT[self.stage], (self.kind, self.index, self.stage, stage)
        self.stage = stage

    async def _run(self) -> None:
        end = self.partition.end_offset
        begun = get_running_loop().time()
        while True:
            try:
                await self.partition.committed(end)
                async with self._reading:
                    await self._load()
                await self._after_load()
            except Exception as error:
                if isinstance(error, KafkaError) and error.code in TRANSIENT:
                    await sleep(RETRY_S)
                    continue
                self._why = str(error)
                self._enter(Stage.FAILED)
                self._log.exception(f"{self.kind}_not_loaded", partition=self.index, error=repr(error))
            else:
                self.load_s = get_running_loop().time() - begun
                self._enter(Stage.READY)
            return


S = TypeVar("S", bound=Shard)


class Shards(Generic[S]):
    """The shards of one coordinator, by partition of the internal topic `name`. `make(partition, reading)`: a shard.

    `load_timeout_ms`: how long a request waits for a shard that is being read. `place(id, partition count)`: the
    partition of an id. `id_bytes_max`: of an id that a request may name; None: any length.
    """

    def __init__(
        self,
        topics: Topics,
        name: str,
        make: Callable[[Partition, Lock], S],
        *,
        load_timeout_ms: int,
        place: Callable[[str, int], int] = coordinator_partition,
        id_bytes_max: int | None = None,
    ) -> None:
        self._topics = topics
        self._name = name
        self._make = make
        self._place = place
        self._id_bytes_max = id_bytes_max
        self._load_timeout_s = load_timeout_ms / 1000
        self._shards: dict[int, S] = {}
        self._reading = Lock()
        self._stopping: KafkaError | None = None

    def start(self) -> None:
        """Make a shard for each partition that this broker leads, and follow the changes of leadership."""
        self._topics.listeners.append(self._changed)
        for partition in self._topics.led(self._name):
            self._changed(partition)

    async def close(self, error: KafkaError) -> None:
        """Close all shards: present and later requests get `error`. Returns once all writes are durable."""
        self._stopping = error
        if self._changed in self._topics.listeners:
            self._topics.listeners.remove(self._changed)
        for _, shard in sorted(self._shards.items()):
            if not shard.is_gone:
                await shard.close(error)

    def of(self, key: str) -> S | None:
        """The shard of this id, if it can answer now."""
        topic = self._topics.get(self._name)
        shard = self._shards.get(self._place(key, topic.partition_count)) if topic is not None else None
        return shard if shard is not None and shard.is_ready else None

    async def ready_if_any(self, key: str) -> S | None:
        """`ready`; None while the internal topic does not exist, which this does not create."""
        return await self.ready(key) if self._topics.get(self._name) is not None else None

    async def ready(self, key: str) -> S:
        """The shard of this id, once it can answer.

        Raises COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, and INVALID_REQUEST for an
        id that is too long.
        """
        self.check_length(key)
        if (ready := self.of(key)) is not None:
            return ready
        shard = self._at(self._place(key, (await self.topic()).partition_count))
        await shard.loaded(self._load_timeout_s)
        return shard

    async def index_of(self, key: str) -> int:
        """The partition of the id, whichever broker leads it. Raises COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST."""
        self.check_length(key)
        return self._place(key, (await self.topic()).partition_count)

    async def topic(self) -> Topic:
        """The internal topic, created if it does not exist. Raises COORDINATOR_NOT_AVAILABLE."""
        topic = self._topics.get(self._name)
        if topic is not None:
            return topic
        if self._stopping is not None:
            raise self._stopping.with_traceback(None)
        try:
            return await self._topics.ensure(self._name)
        except (KafkaError, StoreError) as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name} cannot be created now, try again: {error}"
            ) from error

    def at(self, index: int) -> S | None:
        """The shard of this partition, in any stage."""
        return self._shards.get(index)

    def all(self) -> list[S]:
        """The shards in any stage, by partition."""
        return [shard for _, shard in sorted(self._shards.items())]

    def here(self) -> list[S]:
        """The shards that can answer now, by partition."""
        return [shard for _, shard in sorted(self._shards.items()) if shard.is_ready]

    async def all_loaded(self) -> list[S]:
        """`here`, once every shard is read, without the shards that are lost meanwhile.

        Raises COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        if self._stopping is not None:
            raise self._stopping.with_traceback(None)
        for _, shard in sorted(self._shards.items()):
            try:
                await shard.loaded(self._load_timeout_s)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
        return self.here()

    # --- inside ---

    def check_length(self, key: str) -> None:
        """Raise INVALID_REQUEST for an id that is too long to be kept."""
        most = self._id_bytes_max
        if most is not None and (size := len(key.encode())) > most:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the id that begins with {key[:40]!r} has {size} bytes, and at most {most} are allowed: shorten it",
            )

    def _at(self, index: int) -> S:
        if self._stopping is not None:
            raise self._stopping.with_traceback(None)
        if index not in self._shards:
            try:
                self._changed(self._topics.partition(self._name, index))  # the partition may be new to this broker
            except KafkaError as error:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{error}; look for the coordinator again") from None
        shard = self._shards.get(index)
        if shard is None:
            raise self._elsewhere(index)
        return shard

    def _changed(self, partition: Partition) -> None:
        """The partition has another role, leader or epoch, or is retired."""
        if partition.topic != self._name or self._stopping is not None:
            return
        leads = partition.is_leading and not partition.is_retired
        present = self._shards.get(partition.index)
        if present is not None:
            if leads and present.partition is partition and present.epoch == partition.leader_epoch:
                return
            del self._shards[partition.index]
            present.lose(self._elsewhere(partition.index))
        if leads:
            shard = self._shards[partition.index] = self._make(partition, self._reading)
            shard.begin()

    def _elsewhere(self, index: int) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_COORDINATOR, f"this broker does not lead {self._name}-{index}: look for the coordinator again"
        )
