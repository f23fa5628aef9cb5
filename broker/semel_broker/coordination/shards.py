"""What a coordinator has to do here: a shard for each partition of its internal topic that this broker leads.

Leadership gained: what is stored is read in the background, and requests wait for it, for a while. Leadership lost: the
shard is gone at once, and whoever waits there is told to look for the next coordinator. What had been written and was
not yet durable is for the log to decide: the next leader reads it, or it is nowhere.
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

AGAIN_S = 0.1
"""Between tries to read what cannot be read now."""
PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
"""Why it cannot be: another role, or a new session, is on its way, or replicas are."""


class Stage(Enum):
    """FAILED: what is stored cannot be read, which is for people to look at. GONE: somebody else coordinates."""

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
    """One partition, led by this broker in one leader epoch; a coordinator's share of the ids. `what`: for the log.

    What a former leader wrote, and this broker has, counts: so it is waited for until all in sync have it, then read.
    `reading`: of several shards, one reads at a time, so that all the others' requests find the loop free.

    To be derived from: `_load` reads, `_go_on` does what follows from it; `_let_go` answers whoever waits; where this
    broker only stops, `_finish` waits for what is under way. Where another one goes on, the partition refuses that.
    """

    what = "ids"

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

    @property
    def is_ready(self) -> bool:
        """Whether it may be asked: all is read, and this broker is the leader for sure."""
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
        """Begin to read what is stored; returns at once. Where nothing was ever written it is ready."""
        if self.partition.is_open:
            self._loading = get_running_loop().create_task(self._run(), name=f"load {self.what} {self.index}")
        else:
            self._load_nothing()
            self._enter(Stage.READY)

    async def loaded(self, patience_s: float) -> None:
        """Return once it may be asked. Raises KafkaError 14 if that takes too long, 15 if it never will be, 16."""
        if self._loading is not None and self.stage is Stage.LOADING:
            await wait((self._loading,), timeout=patience_s)  # whatever becomes of it; not cancelled with who waits
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
        """Raises NOT_COORDINATOR unless this broker still coordinates for sure (15 if it is stopping)."""
        if self._error is not None:
            raise self._error
        try:
            self.partition.check_leading()
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{error}; look for the coordinator again") from None

    def lose(self, error: KafkaError) -> None:
        """Another broker leads the partition: everybody gets `error`, at once."""
        self._end(error)

    async def close(self, error: KafkaError) -> None:
        """The broker stops: everybody gets `error`; return once what was written is durable."""
        self._end(error)
        if self._loading is not None:
            await wait((self._loading,))
        await self._finish()

    # --- for those who derive ---

    async def _load(self) -> None:
        """Read everything; called again after a KafkaError that is `PASSING`."""

    async def _go_on(self) -> None:
        """Do what follows from what was read, before anybody may ask; called again as `_load`."""

    def _load_nothing(self) -> None:
        """Nothing was ever written."""

    def _let_go(self, error: KafkaError) -> None:
        """Answer everybody who waits, and let no timer ring any more."""

    async def _finish(self) -> None:
        """Return once what is written has taken effect."""

    # --- inside ---

    def _end(self, error: KafkaError) -> None:
        self._error = error
        self._enter(Stage.GONE)
        if self._loading is not None:
            self._loading.cancel()
        self._let_go(error)

    def _enter(self, stage: Stage) -> None:
        assert stage in NEXT[self.stage], (self.what, self.index, self.stage, stage)
        self.stage = stage

    async def _run(self) -> None:
        end = self.partition.end_offset
        while True:
            try:
                await self.partition.committed(end)
                async with self._reading:
                    await self._load()
                await self._go_on()
            except Exception as error:
                if isinstance(error, KafkaError) and error.code in PASSING:
                    await sleep(AGAIN_S)
                    continue
                self._why = str(error)
                self._enter(Stage.FAILED)
                self._log.exception(f"{self.what}_not_loaded", partition=self.index, error=repr(error))
            else:
                self._enter(Stage.READY)
            return


S = TypeVar("S", bound=Shard)


class Shards(Generic[S]):
    """The shards of one coordinator, by partition of the internal topic `name`. `make(partition, reading)`: a shard.

    `patience_ms`: how long a request waits while what is stored is being read. `place(id, partition count)`: the
    partition that an id belongs to.
    """

    def __init__(
        self,
        topics: Topics,
        name: str,
        make: Callable[[Partition, Lock], S],
        *,
        patience_ms: int,
        place: Callable[[str, int], int] = coordinator_partition,
    ) -> None:
        self._topics = topics
        self._name = name
        self._make = make
        self._place = place
        self._patience_s = patience_ms / 1000
        self._shards: dict[int, S] = {}
        self._reading = Lock()
        self._stopping: KafkaError | None = None

    def start(self) -> None:
        """Take on what this broker leads, and follow what it gains and loses."""
        self._topics.listeners.append(self._changed)
        for partition in self._topics.led(self._name):
            self._changed(partition)

    async def close(self, error: KafkaError) -> None:
        """Let all go: who waits, or comes later, gets `error`. Returns once what was written is durable."""
        self._stopping = error
        if self._changed in self._topics.listeners:
            self._topics.listeners.remove(self._changed)
        for _, shard in sorted(self._shards.items()):
            if not shard.is_gone:
                await shard.close(error)

    def of(self, key: str) -> S | None:
        """The shard of this id, if it may be asked at once."""
        topic = self._topics.get(self._name)
        shard = self._shards.get(self._place(key, topic.partition_count)) if topic is not None else None
        return shard if shard is not None and shard.is_ready else None

    async def ready_if_any(self, key: str) -> S | None:
        """`ready`; None where nothing was ever stored: the topic is not made to find that out."""
        return await self.ready(key) if self._topics.get(self._name) is not None else None

    async def ready(self, key: str) -> S:
        """The shard of this id, once it may be asked. Raises KafkaError 14, 15, 16."""
        if (ready := self.of(key)) is not None:
            return ready
        shard = self._at(self._place(key, (await self.topic()).partition_count))
        await shard.loaded(self._patience_s)
        return shard

    async def index_of(self, key: str) -> int:
        """The partition that coordinates the id, wherever it is led. Raises COORDINATOR_NOT_AVAILABLE."""
        return self._place(key, (await self.topic()).partition_count)

    async def topic(self) -> Topic:
        """The internal topic, made if it is not there. Raises COORDINATOR_NOT_AVAILABLE."""
        topic = self._topics.get(self._name)
        if topic is not None:
            return topic
        if self._stopping is not None:
            raise self._stopping
        try:
            return await self._topics.ensure(self._name)
        except (KafkaError, StoreError) as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name} cannot be created now: {error}"
            ) from error

    def at(self, index: int) -> S | None:
        """The shard of this partition, in whatever stage it is."""
        return self._shards.get(index)

    def here(self) -> list[S]:
        """The shards that may be asked, by partition."""
        return [shard for _, shard in sorted(self._shards.items()) if shard.is_ready]

    async def all_loaded(self) -> list[S]:
        """`here`, once everything is read. Raises KafkaError 14, 15; what is lost meanwhile is left out."""
        if self._stopping is not None:
            raise self._stopping
        for _, shard in sorted(self._shards.items()):
            try:
                await shard.loaded(self._patience_s)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
        return self.here()

    # --- inside ---

    def _at(self, index: int) -> S:
        if self._stopping is not None:
            raise self._stopping
        if index not in self._shards:
            try:
                self._changed(self._topics.partition(self._name, index))  # it may not have been asked for before
            except KafkaError as error:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{error}; look for the coordinator again") from None
        shard = self._shards.get(index)
        if shard is None:
            raise self._elsewhere(index)
        return shard

    def _changed(self, partition: Partition) -> None:
        """Its role, its leader or its epoch is another one, or the partition is retired."""
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
